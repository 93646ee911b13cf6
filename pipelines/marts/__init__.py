"""Marts: one file per gold table, plus the steps that several of them share."""
