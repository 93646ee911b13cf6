"""Tracks the risk of double consumption from the events that open, confirm and end it."""
