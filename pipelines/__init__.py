"""Spark pipelines that turn bronze facts into gold tables, and the tools built on them."""
