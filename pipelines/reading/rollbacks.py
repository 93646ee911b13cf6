"""Detects broker rollbacks, in which the offsets of several groups fall at once.

Place in the walk: gold duplicate_risk_windows, as a reader sees them → one row per broker and
moment, for notebook and overview. A broker that comes back with an old offset table, without one,
or with a shorter log takes every group back at once: windows of such a cause that open shortly
after one another at one broker are one roll-back when they concern several groups, and so are
windows of readers that had left before the boot. An administrator's reset is none.

Invariant: a queue counts once, however many windows are about it. It is computed where it is read:
no executor sees all groups of a broker. Absent on purpose: words, and a guess why the table was
old.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, cast

import polars as pl

CAUSES: Final = ("BROKER_CRASH", "OFFSET_STORE_LOST", "REPLAY_AFTER_TRUNCATION", "REWIND")
"""Causes that take a broker's groups back together."""
BOOTS: Final = "kind = 'BOOT'"
"""SQL condition on lifecycle."""
TOGETHER: Final = timedelta(seconds=60)
"""Windows that open within this of one another: clients of a broker that came back report their
offsets each 5 s, and look for it each 30 s."""
START: Final = timedelta(seconds=600)
"""A start takes no longer, from what it finds lost to its boot."""
GROUPS_MIN: Final = 2

COSTS_NOTHING: Final = (
    (pl.col("cause") == "BROKER_CRASH")
    & (pl.col("at_risk_messages") == 0)
    & (pl.col("redelivered_messages") == 0)
).fill_null(value=False)
"""Of windows: a crash that takes nothing back, for who reads on there knows where it is. What is
not known is not nothing."""

_BROKER: Final = ("cluster", "broker", "emitter")
_QUEUE: Final = ("group", "topic", "queue_id")
NO_BOOTS: Final = pl.DataFrame(schema={"emitter": pl.String, "event_time": pl.Datetime("us")})
FIRST: Final = (
    *("began_at", "broker", "groups", "queues", "at_risk_messages", "redelivered_messages"),
    *("causes", "group_names"),
)
"""The columns that a person looks at first."""


def rollbacks(windows: pl.DataFrame, boots: pl.DataFrame) -> pl.DataFrame:
    """One row per roll-back, oldest first; `windows` has the newest revision of each, `boots` the
    rows of lifecycle that report on them.

    at_risk_messages, redelivered_messages: the largest that any window reports on each queue,
    summed; as for a window, the latter is null, or the least, where redelivered_unknown_reason says
    why. group_names: by their names. window_ids: the windows that it is reported on.
    """
    fell = _fallen(windows, boots).sort(*_BROKER, "fell_at")
    apart = (pl.col("fell_at") - pl.col("fell_at").shift(1)).over(_BROKER)
    is_other = pl.col("life").ne_missing(pl.col("life").shift(1).over(_BROKER))
    begins = (apart.is_null() | (apart > TOGETHER) | is_other).cast(pl.Int64)
    falls = fell.with_columns(begins.cum_sum().over(_BROKER).alias("together"))
    queues = falls.group_by(*_BROKER, "together", *_QUEUE).agg(
        pl.col("fell_at").min(),
        pl.col("at_risk_messages").max(),
        pl.col("redelivered_messages").max(),
        pl.col("redelivered_unknown_reason").drop_nulls().first(),
        pl.col("cause").unique(),
        pl.col("state").eq("OPEN").any().alias("is_open"),
        pl.col("window_id"),
    )
    found = queues.group_by(*_BROKER, "together").agg(
        pl.col("fell_at").min().alias("began_at"),
        pl.col("group").n_unique().alias("groups"),
        pl.len().alias("queues"),
        pl.col("at_risk_messages").sum(),
        pl.col("redelivered_messages").sum(),
        pl.col("redelivered_unknown_reason").drop_nulls().first(),
        pl.col("is_open").sum().alias("queues_open"),
        pl.col("cause").explode().unique().sort().alias("causes"),
        pl.col("group").unique().sort().alias("group_names"),
        pl.col("window_id").explode().sort().alias("window_ids"),
    )
    is_unknown = pl.col("redelivered_unknown_reason").is_not_null()
    again = pl.col("redelivered_messages")
    many = (
        found.filter(pl.col("groups") >= GROUPS_MIN)
        .drop("together")
        .with_columns(pl.when(~(is_unknown & (again == 0))).then(again))
    )
    return many.sort("began_at", *_BROKER)


def _fallen(windows: pl.DataFrame, boots: pl.DataFrame) -> pl.DataFrame:
    """Windows of queues that a broker took back: `fell_at`, when it did; `life`, the boot of its
    life in which it did.
    """
    moment = windows.schema["opened_at"]
    booted = boots.select("emitter", pl.col("event_time").cast(moment)).sort("event_time")
    met = windows.sort("opened_at")
    for strategy, name in (("backward", "last_boot"), ("forward", "next_boot")):
        met = met.join_asof(
            booted.rename({"event_time": name}),
            left_on="opened_at",
            right_on=name,
            by="emitter",
            strategy=cast(Any, strategy),
            check_sortedness=False,
        )
    # Its reader left, and what it had committed came again to whoever asked after the boot.
    is_over = pl.col("basis") == "DEPARTURE"
    is_over &= pl.col("redelivered_from") < pl.col("first_from_offset")
    is_over &= (pl.col("next_boot") <= pl.col("observed_at")).fill_null(value=False)
    is_over = is_over.fill_null(value=False)
    fell_at = pl.when(is_over).then("next_boot").when(pl.col("cause").is_in(CAUSES))
    # What a start finds lost is reported shortly before its boot.
    is_start = (pl.col("basis") == "RESTART") & (pl.col("next_boot") - pl.col("opened_at") <= START)
    life = pl.when(is_over | is_start.fill_null(value=False)).then("next_boot")
    fallen = met.with_columns(
        fell_at.then("opened_at").alias("fell_at"), life.otherwise("last_boot").alias("life")
    )
    return fallen.filter(pl.col("fell_at").is_not_null() & ~COSTS_NOTHING)
