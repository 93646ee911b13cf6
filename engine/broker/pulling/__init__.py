"""Pull processing: checks, message filters, long polling and responses."""
