"""How the tables came to be, one file a change; applied in order when a database is opened."""
