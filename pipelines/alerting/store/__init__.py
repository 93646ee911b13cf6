"""SQL store for alerts, alert groups, silences, notices and the last cycle processed.

Place in the walk: between deciding and sending: the outbox sends what is stored here, and nothing
else. Invariant: only the leader stores steps, by a fencing token that each transaction checks.
Absent on purpose: clocks, history (the Delta table `alerts`), and waiting for a database that does
not answer: StoreUnavailable says so, and the caller tries again.
"""
