"""Checks that a queue's minimum and maximum offsets never fall within one incarnation.

A queue is reported when it moved, so the row before may have been judged long ago: the last ends of
each queue are carried from run to run, at most ENDS_MAX of them. Beyond it those reported longest
ago are forgotten: an end that is not carried is not compared with later rows.

A life ends with the broker's (a recovery may have cut the log), and with the topic; lost rows may
have reported either. Invariant: carried rows are read, never counted as checked. Absent on purpose:
ends in a group's watermarks (`gold_against_facts`).
"""

from __future__ import annotations

from typing import Final

import polars as pl

from engine.telemetry.tables import QUEUE_WATERMARKS, Column
from expectations.check import Check, Severity

TABLE: Final = QUEUE_WATERMARKS.name
CHECK: Final = Check("queue_ends_never_fall_in_a_life", TABLE, Severity.CRITICAL)
ENDS_MAX: Final = 200_000
"""Queues whose ends are carried, about 20 bytes each."""
TOPIC_GONE: Final = "TOPIC_GONE"
NEW_LIVES: Final = ("BOOT", "RECOVERY", "ROLE_CHANGE", "SPOOL_LOSS", TOPIC_GONE)
"""Kinds of lifecycle behind which a queue may begin anew: all of the emitter's, or the topic's."""

_QUEUE: Final = ("cluster", "broker", "emitter", "topic", "queue_id")
_ENDS: Final = ("min_offset", "max_offset")
_KEPT: Final = (*_QUEUE, "broker_epoch", "seq", *_ENDS)
KEPT: Final[tuple[Column, ...]] = tuple(
    column for column in QUEUE_WATERMARKS.columns if column.name in _KEPT
)
"""What is carried of a queue."""
_END_OF_TIME: Final = 2**63 - 1
SHOWN: Final = ("min_before", "min_offset", "max_before", "max_offset")


def falls(rows: pl.DataFrame, lifecycle: pl.DataFrame, carried: pl.DataFrame) -> pl.DataFrame:
    """New rows by which a queue begins or ends before where it did in its row before."""
    both = pl.concat([carried, rows.select(carried.columns)])
    over = [*_QUEUE, "broker_epoch", "life_seq"]
    before = _in_lives(both, lifecycle, at=pl.col("seq")).with_columns(
        pl.col("min_offset").shift(1).over(over, order_by="seq").alias("min_before"),
        pl.col("max_offset").shift(1).over(over, order_by="seq").alias("max_before"),
    )
    has_fallen = pl.any_horizontal(
        pl.col("min_offset") < pl.col("min_before"), pl.col("max_offset") < pl.col("max_before")
    )
    return before.filter(has_fallen).sort("emitter", "seq")


def newest(rows: pl.DataFrame, lifecycle: pl.DataFrame, carried: pl.DataFrame) -> pl.DataFrame:
    """The last ends of each queue that lives on behind a batch, the newest ENDS_MAX of them."""
    both = pl.concat([carried, rows.select(carried.columns)]).sort("seq")
    last = both.unique(_QUEUE, keep="last", maintain_order=True)
    now = _in_lives(last, lifecycle, at=pl.lit(_END_OF_TIME))
    alive = now.filter(pl.col("life_seq") < pl.col("seq"))
    return alive.select(carried.columns).sort("broker_epoch", "seq", descending=True).head(ENDS_MAX)


def _in_lives(queues: pl.DataFrame, lifecycle: pl.DataFrame, *, at: pl.Expr) -> pl.DataFrame:
    """`life_seq`: where the life began in which each queue is at a seq; 0: before what is here."""
    ends = lifecycle.filter(pl.col("kind").is_in(NEW_LIVES)).sort("seq")
    is_of_topic = pl.col("kind") == TOPIC_GONE
    of_all = ends.filter(~is_of_topic).select("emitter", pl.col("seq").alias("of_all"))
    of_topic = ends.filter(is_of_topic).select("emitter", "topic", pl.col("seq").alias("of_topic"))
    sought = queues.with_columns(at.alias("at")).sort("at")
    found = sought.join_asof(
        of_all, left_on="at", right_on="of_all", by="emitter", check_sortedness=False
    ).join_asof(
        of_topic,
        left_on="at",
        right_on="of_topic",
        by=["emitter", "topic"],
        check_sortedness=False,
    )
    life = pl.max_horizontal("of_all", "of_topic").fill_null(0)
    return found.with_columns(life.alias("life_seq")).drop("at")
