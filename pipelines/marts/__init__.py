"""Marts that compute gold: one module per table, plus the steps that several of them share."""
