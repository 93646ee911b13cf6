"""Pure functions that write every user-facing sentence, grouped by subject."""
