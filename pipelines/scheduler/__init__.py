"""The scheduler, as XXL-Job's: a centre plans runs, executors do them, a wire lies between.

Place in the walk: beside the other pipelines; the centre shares alerting's database.

Invariant: what decides is pure and takes the time as an argument. Absent on purpose: the lake.
"""
