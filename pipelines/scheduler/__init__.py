"""The scheduler: a centre that plans runs, executors that do them, and the wire between."""
