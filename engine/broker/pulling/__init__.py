"""Pulls that wait, what wakes them, and which messages they select."""
