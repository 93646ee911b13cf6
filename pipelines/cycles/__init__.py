"""Cycles: each takes a cut of facts, computes gold on executors and commits it exactly once."""
