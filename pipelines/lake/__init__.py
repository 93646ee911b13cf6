"""Lake storage, independent of its tables' meaning: schemas, logs, files, leases, appends."""
