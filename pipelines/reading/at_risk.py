"""Counts the distinct messages at risk of redelivery across duplicate-risk windows.

Invariant: a message counts once, however many windows are about it: the exposure of a queue and the
departure of its reader are about the same range. Absent on purpose: what came of them
(`pipelines.sentences.duplicates`), and gold's own column, which is about one window.
"""

from __future__ import annotations

import polars as pl

from pipelines.lake.schemas import QUEUE


def at_risk_by(windows: pl.DataFrame, *place: str) -> pl.DataFrame:
    """`at_risk_messages` of each place, that is of some columns of the windows; sorted by it."""
    # Of each queue in the order of their begins: what lies beyond all ranges before.
    reached = pl.col("to_offset").cum_max().shift(1).over(QUEUE)
    begin = pl.max_horizontal("from_offset", reached)
    fresh = (pl.col("to_offset") - begin).clip(lower_bound=0).alias("at_risk_messages")
    counted = windows.sort(*QUEUE, "from_offset").select(*place, fresh)
    return counted.group_by(*place).agg(pl.col("at_risk_messages").sum()).sort(*place)


def at_risk(windows: pl.DataFrame) -> int:
    """Messages of all these windows together."""
    return int(at_risk_by(windows, *QUEUE)["at_risk_messages"].sum())
