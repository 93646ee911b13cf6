"""Pulls: how they wait, what wakes them, and which messages they select."""
