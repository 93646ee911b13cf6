"""Runs a rule's SQL query on in-memory tables.

Place in the walk: below rules, which try theirs without rows, and `evaluating`. Apart from both,
for a process that works out queries needs nothing else (`query_child`).

Invariant: pure. Absent on purpose: bounds of time and memory, which `queries` sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

Answering = Callable[[str, Mapping[str, pl.DataFrame]], pl.DataFrame]
"""A query and the rows of its tables by their names → its answer. Raises ValueError."""


def answered(sql: str, rows: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The answer to a query over the rows of tables."""
    return pl.SQLContext(frames=dict(rows), eager=True).execute(sql)
