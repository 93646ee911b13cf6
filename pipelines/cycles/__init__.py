"""Runs pipeline cycles, each of which turns one cut of the facts into gold exactly once."""
