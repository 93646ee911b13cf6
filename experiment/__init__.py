"""Experiments: real processes are harmed, and what the lake had predicted is held against it."""
