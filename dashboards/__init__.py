"""The browser's window on the lake: an overview, a page per group, the checks."""
