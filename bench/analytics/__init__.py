"""Benchmarks for analytics: cycles, replays, live runs, aged lakes and alerting."""
