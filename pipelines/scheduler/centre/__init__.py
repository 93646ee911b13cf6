"""The centre: plans and sends runs, receives their results and resolves runs in doubt.

Place in the walk: above the store and the wire. Several centres share a database and nothing else.
"""
