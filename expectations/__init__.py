"""Defines data-quality checks in code, runs them on a lake and stores the results in gold."""
