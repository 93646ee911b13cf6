"""Marts: one file per gold table, and the steps that several of them start from."""
