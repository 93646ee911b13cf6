"""Cycles: what is taken, computed by Spark's executors, and committed, exactly once."""
