"""Tracks the offsets that each group has committed and pulled on every queue."""
