"""The scheduler: a centre that says when, executors that do it, and the wire between, as XXL-Job.

Place in the walk: beside the other pipelines; the centre shares alerting's database.

Invariant: what decides is pure and takes the time as an argument. Absent on purpose: the lake.
"""
