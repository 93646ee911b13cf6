"""Benchmarks of the analytics: cycles, replays and aged lakes, in CPU and wall seconds."""
