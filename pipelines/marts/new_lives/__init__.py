"""Queues of topics that were made again: where groups began in the new life."""
