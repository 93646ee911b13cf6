"""Causes of lag: the figures they are found from, the tests, and their names."""
