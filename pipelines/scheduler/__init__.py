"""The scheduler: a centre plans jobs, executors run them, and the wire is XXL-Job's.

Place in the walk: beside the other pipelines; the centre shares alerting's database.

Invariant: what decides is pure and takes the time as an argument. Absent on purpose: the lake.
"""
