"""The changes; each names the one before it."""
