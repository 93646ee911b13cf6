"""Producers whose messages appear only when a local transaction has succeeded."""
