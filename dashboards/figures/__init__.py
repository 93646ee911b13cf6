"""Figures as pure functions: rows in, figure out; no Dash, no lake, no clock."""
