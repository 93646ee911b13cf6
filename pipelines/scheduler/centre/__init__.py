"""Scheduling centre: plans and sends runs, receives results and resolves runs in doubt.

Place in the walk: above the store and the wire. Several centres share a database and nothing else.
"""
