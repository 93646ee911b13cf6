"""Half messages, open transactions and their checks."""
