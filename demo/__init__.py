"""A whole cluster on one machine, with incidents played on schedule, and a verdict computed from
gold alone.
"""
