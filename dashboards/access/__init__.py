"""Identifies who sent a request and decides whether to serve it."""
