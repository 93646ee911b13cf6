"""Files of readings, converted by several executors: docs/case-study.md describes it."""
