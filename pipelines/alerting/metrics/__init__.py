"""Prometheus metrics about the platform, served by `tidemark alerts run` at `/metrics`.

Place in the walk: beside alerting, on the same gold and the same database; a scrape reads, and
changes nothing.

Invariant: what is unknown has no series, and is never 0; the number of series is bounded, and what
found no room is counted in a series of its own. Absent on purpose: a broker's own metrics, which it
serves itself.
"""
