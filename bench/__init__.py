"""Benchmarks that run on this machine and print tables; nothing here asserts."""
