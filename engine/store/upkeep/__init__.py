"""Upkeep of the message store: durability, recovery and retention."""
