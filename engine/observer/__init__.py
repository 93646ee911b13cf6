"""Watching a cluster from outside: its brokers are asked through the admin protocol, and what they
answer becomes the same rows that our own broker tells of itself.

Place in the walk: beside it; a broker that is watched knows nothing of it. Each has an emitter,
a spool and a shipper of its own.

Absent on purpose: judging (pipelines), and whatever changes something in the cluster.
"""
