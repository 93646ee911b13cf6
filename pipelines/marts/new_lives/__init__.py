"""Queues of recreated topics: where groups began to read the new life."""
