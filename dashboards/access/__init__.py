"""Identifies the sender of a request and decides whether it is answered."""
