"""Pure functions that turn query results into page content."""
