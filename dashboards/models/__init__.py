"""Computes what pages show, as pure functions of what was read."""
