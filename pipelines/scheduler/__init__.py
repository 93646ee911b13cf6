"""Job scheduler: centres plan runs, and executors perform them, using XXL-Job's protocol.

Place in the walk: beside the other pipelines; the centre shares alerting's database.

Invariant: what decides is pure and takes the time as an argument. Absent on purpose: the lake.
"""
