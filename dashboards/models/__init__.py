"""Computes what pages show, as pure functions of the data read."""
