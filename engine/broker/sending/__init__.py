"""Determines where a message is put, when it is safe, and whether it was stored before."""
