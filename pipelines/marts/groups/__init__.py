"""Computes parts of a group's state: totals over its queues and missing acknowledgements."""
