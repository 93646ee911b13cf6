"""The centre: it plans, sends, hears results and asks about runs that it does not understand.

Place in the walk: above the store and the wire. Several centres share a database and nothing else.
"""
