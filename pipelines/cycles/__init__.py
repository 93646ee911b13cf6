"""Cycles: facts are cut, computed by Spark's executors, and committed exactly once."""
