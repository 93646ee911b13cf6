"""The tables of a lake without their meaning: schemas, logs, files, leases, appends."""
