"""Adds notes on abandoned topics and POP consumption to `tm` answers about a group.

Place in the walk: bronze lifecycle, gold pop_progress → sentences behind those about lag.
"""

from __future__ import annotations

import polars as pl

from pipelines.reading.left_topics import left_topics, still_left
from pipelines.reading.reading import LOOK_BACK, Reading
from pipelines.sentences.pop_groups import pop_group
from pipelines.tm.arguments import Asked


def left_text(reading: Reading, asked: Asked, lag: pl.DataFrame) -> str:
    """A further sentence, with a blank before it; `lag`: of the queues that the group reads."""
    left = left_topics(reading, asked.since, asked.until)
    left = left.filter(pl.col("group") == asked.group)
    if asked.topic is not None:
        left = left.filter(pl.col("topic") == asked.topic)
    words = still_left(left, lag["topic"].unique().to_list())
    return f" {'; '.join(words)}." if words else ""


def pop_text(reading: Reading, asked: Asked) -> str:
    """A further sentence, with a blank before it; nothing of a group that does not read by POP."""
    present = reading.moment.present
    if present is None or asked.group is None:
        return ""
    since = present - LOOK_BACK
    rows = reading.rows("pop_progress", *asked.place, *asked.times, since=since)
    found = pop_group(reading.present("pop_progress", rows))
    return "" if found is None else f" {found.sentence(asked.group)}"
