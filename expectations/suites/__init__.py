"""Data-quality suites, one module each, from table schemas to emitter telemetry."""
