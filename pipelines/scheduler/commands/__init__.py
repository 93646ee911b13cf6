"""Commands of `tidemark scheduler` and `tidemark jobs`, one module per type of object."""
