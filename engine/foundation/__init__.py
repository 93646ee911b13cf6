"""Words that every other room may use: errors, limits, units, ids, configuration and the observer
port. No I/O.
"""
