"""`tidemark scheduler` and `tidemark jobs`: one module per kind of thing that is changed."""
