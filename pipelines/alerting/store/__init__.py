"""What alerting knows and has promised, in SQL: alerts, groups, silences, notices, how far it came.

Place in the walk: between deciding and telling. A step that was decided is stored whole or not at
all; the outbox tells what is stored here, and nothing else.

Invariant: only the leader stores steps, by a fencing token that each transaction checks. Absent on
purpose: clocks (moments are arguments), history (the Delta table `alerts`), and waiting for a
database that does not answer: StoreUnavailable says so, and whoever asked tries again.
"""
