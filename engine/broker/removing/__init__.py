"""Removes topics, groups, queues and offsets in bounded steps."""
