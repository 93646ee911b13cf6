"""The scheduler: jobs that are due run once, on executors that are there; an XXL-Job-class centre.

Place in the walk: beside the other pipelines; it shares their database with `alerting.store`.

Invariant: what decides is pure and takes the time as an argument. Absent on purpose: the lake.
"""
