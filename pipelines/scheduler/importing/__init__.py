"""Imports an XXL-Job database: reads a dump or a server, plans the import, then stores it.

Invariant: nothing is taken over in silence: what is not, or is read differently, has its reason.
"""
