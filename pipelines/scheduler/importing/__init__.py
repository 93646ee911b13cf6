"""Imports jobs from an XXL-Job database, read from a dump or a live server.

Invariant: nothing is taken over in silence: what is not, or is read differently, has its reason.
"""
