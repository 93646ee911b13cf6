"""Pure functions that build figures from rows, without Dash, the lake or a clock."""
