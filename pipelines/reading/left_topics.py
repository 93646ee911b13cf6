"""Describes the topics that a group has left and no longer reads.

Place in the walk: bronze lifecycle → words. Absent on purpose: who concludes it (the engine).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import polars as pl

from pipelines.reading.moment import sql_time
from pipelines.reading.reading import Reading
from pipelines.sentences.losses import left_text


def left_topics(reading: Reading, since: datetime | None, until: datetime | None) -> pl.DataFrame:
    """Every leaving in a range, oldest first."""
    seen = ["kind = 'TOPIC_LEFT'"]
    seen += [] if until is None else [f"event_time <= {sql_time(until)}"]
    return reading.facts("lifecycle", *seen, since=since)


def still_left(left: pl.DataFrame, read: Collection[str]) -> list[str]:
    """What is said of each topic that is not among those that are read now; `left`: of one group,
    oldest first.
    """
    gone = left.filter(~pl.col("topic").is_in(list(read)))
    last = gone.unique("topic", keep="last", maintain_order=True)
    return [left_text(row) for row in last.iter_rows(named=True)]
