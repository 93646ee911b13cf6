"""Checks interval tables for consistent revisions, valid bounds and overlapping readers.

Revisions follow each other, an interval ends after it began, and one client reads a queue at a
time.

An interval may have been opened long before a batch, so the open ones are carried from run to run,
at most OPEN_MAX a table. Beyond it the oldest are forgotten: an interval that is not carried is not
compared with later rows, and never counts as wrong.

Invariant: carried rows are read, never counted as checked. Absent on purpose: closed intervals.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from engine.telemetry.tables import Column
from expectations.check import Check, Severity
from pipelines.base.settings import SECOND_US
from pipelines.marts.mart import GoldTable

OPEN_MAX: Final = 200_000
"""Open intervals of a table that are carried, about 0.2 KiB each."""
OVERLAP_MAX_S: Final = 60
"""Two clients that read one queue for longer do not hand it over."""
NAMED_MAX: Final = 3
"""Owners of a queue that are named."""

_KEPT: Final = (
    *("window_id", "revision", "state", "observed_at", "valid_from", "opened_at", "closed_at"),
    *("cluster", "broker", "group", "topic", "queue_id", "client_id", "emitter", "seq"),
)
EXCLUSIVE: Final = Check("one_owner_a_queue", "ownership", Severity.WARNING)


def well_formed(table: GoldTable) -> Check:
    """The check of a table's intervals."""
    return Check(f"{table.name}_well_formed", table.name, Severity.CRITICAL)


def kept_columns(table: GoldTable) -> list[Column]:
    """What is carried of an open interval."""
    return [column for column in table.columns if column.name in _KEPT]


def malformed(rows: pl.DataFrame, carried: pl.DataFrame) -> pl.DataFrame:
    """Revisions that do not fit their interval, taken with what is known of it."""
    both = pl.concat(
        [
            carried.with_columns(pl.lit(value=False).alias("is_new")),
            rows.select(carried.columns).with_columns(pl.lit(value=True).alias("is_new")),
        ]
    ).sort("window_id", "revision", "is_new")
    before = both.with_columns(
        pl.col("revision").shift(1).over("window_id").alias("revision_before"),
        pl.col("opened_at").shift(1).over("window_id").alias("opened_before"),
    )
    is_wrong = (
        ((pl.col("state") == "CLOSED") != pl.col("closed_at").is_not_null())
        | (pl.col("closed_at") < pl.col("opened_at")).fill_null(value=False)
        | (pl.col("valid_from") != pl.col("observed_at"))
        | (pl.col("revision") < 1)
        | (pl.col("opened_at") != pl.col("opened_before")).fill_null(value=False)
        | (pl.col("revision") != pl.col("revision_before") + 1).fill_null(value=False)
    )
    return before.filter(pl.col("is_new") & is_wrong)


def still_open(rows: pl.DataFrame, carried: pl.DataFrame) -> pl.DataFrame:
    """The open intervals behind a batch, the newest OPEN_MAX of them."""
    both = pl.concat([carried, rows.select(carried.columns)]).sort("revision")
    newest = both.unique("window_id", keep="last", maintain_order=True)
    opened = newest.filter(pl.col("state") == "OPEN")
    return opened.sort("opened_at", "window_id", descending=True).head(OPEN_MAX)


def shared_queues(opened: pl.DataFrame, *, judged_to_us: int) -> pl.DataFrame:
    """Queues that several clients have been reading for longer than a hand-over takes."""
    if "client_id" not in opened.columns:
        return opened.clear()
    since_us = pl.col("opened_at").dt.epoch("us")
    ripe = opened.filter(since_us < judged_to_us - OVERLAP_MAX_S * SECOND_US)
    by_queue = ripe.group_by(
        "cluster", "broker", "emitter", "group", "topic", "queue_id", maintain_order=True
    )
    return by_queue.agg(
        pl.col("client_id").n_unique().alias("owners"),
        pl.col("client_id").unique().sort().head(NAMED_MAX).str.join(" and ").alias("who"),
    ).filter(pl.col("owners") > 1)
