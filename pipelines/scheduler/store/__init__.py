"""The scheduler's SQL store for jobs, executors and runs, kept in alerting's database.

Place in the walk: below the centre and the commands. Several centres share these tables and nothing
else: planning passes take turns by a lock on one row, runs move as `run_life` allows, under a lock
on theirs. Invariant: each operation is one short transaction; what follows from the end of a run (a
retry, child jobs, a next time) is stored with it. Absent on purpose: clocks, entropy and the
network.
"""
