"""Lake storage layer, independent of table contents: schemas, logs, files and leases."""
