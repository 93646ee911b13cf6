"""Parts of a group's state: its queue figures, their sums and the reason."""
