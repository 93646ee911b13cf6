"""Shared foundation: errors, limits, units, settings and the interface for observers."""
