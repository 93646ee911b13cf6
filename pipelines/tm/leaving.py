"""Adds to `tm`'s answers a sentence on topics that a group has left.

Place in the walk: bronze lifecycle → a sentence behind those about lag. Absent on purpose: words.
"""

from __future__ import annotations

import polars as pl

from pipelines.reading.left_topics import left_topics, still_left
from pipelines.reading.reading import Reading
from pipelines.tm.arguments import Asked


def left_text(reading: Reading, asked: Asked, lag: pl.DataFrame) -> str:
    """A further sentence, with a blank before it; `lag`: of the queues that the group reads."""
    left = left_topics(reading, asked.since, asked.until)
    left = left.filter(pl.col("group") == asked.group)
    if asked.topic is not None:
        left = left.filter(pl.col("topic") == asked.topic)
    words = still_left(left, lag["topic"].unique().to_list())
    return f" {'; '.join(words)}." if words else ""
