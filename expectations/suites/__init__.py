"""The laws: of every table, of rows, between rows, of intervals, and of telemetry by emitter."""
