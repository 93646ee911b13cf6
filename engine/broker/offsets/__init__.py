"""Offsets that groups have committed and pulled on each queue."""
