"""Parts of a group's state: figures of its queues, their sums, and the reason."""
