"""Benchmarks of this machine, printed as tables; nothing here asserts."""
