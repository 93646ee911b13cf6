"""What the engine reports about itself, as rows: declared in tables, gathered in events, kept in
the spool, shipped to Delta.
"""
