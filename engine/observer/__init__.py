"""Observes a cluster from outside through the admin protocol, without changing it.

What its brokers answer becomes the same rows that our own broker reports about itself.

Place in the walk: beside it; a broker that is watched knows nothing of it. Each has an emitter,
a spool and a shipper of its own.

Absent on purpose: judging (pipelines), and whatever changes something in the cluster.
"""
