"""The shipper process, which moves spooled rows into the lake.

Runs beside a broker, one per spool, never inside it.

Exempt from the rule that only engine/runtime touches files and the clock: it is never simulated,
and its other half is delta-rs, which knows no doors.
"""
