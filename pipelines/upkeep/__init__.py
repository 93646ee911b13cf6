"""Maintains a lake by merging small files and dropping days past their retention."""
