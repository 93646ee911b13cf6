"""Benchmarks that run on the local machine and print tables, without assertions."""
