"""Upkeep of the lake: merges small files, and drops days that are past their retention."""
