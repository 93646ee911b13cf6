"""`tidemark scheduler` and `tidemark jobs`: one module per kind of object they change."""
