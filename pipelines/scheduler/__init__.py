"""The scheduler: a centre plans jobs and executors run them, over XXL-Job's wire protocol.

Place in the walk: beside the other pipelines; the centre shares alerting's database.

Invariant: what decides is pure and takes the time as an argument. Absent on purpose: the lake.
"""
