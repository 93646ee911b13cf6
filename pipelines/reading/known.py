"""Restates earlier rows as of a given moment, marking values that are no longer known.

Place in the walk: gold's newest rows and a `Moment` → the same rows as they are true at it.
Invariant: unknown is contagious: what rests on an unknown figure (`Column.rests_on`) is unknown,
and so is a sum with one unknown part, whose known parts are a lower bound in a column of its own.
Lists are sorted, and rules and metrics judge, by that bound. Absent on purpose: reading tables, and
words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import polars as pl

from engine.telemetry.tables import Column
from pipelines.base.wording import bound_of
from pipelines.lake.schemas import QUEUE
from pipelines.marts.consumer_lag import CONSUMER_LAG, STEADY_PER_MINUTE
from pipelines.marts.group_state import GROUP_STATE
from pipelines.reading.moment import Moment, reached_rows
from pipelines.sentences.groups import NOTHING_KNOWN
from pipelines.sentences.stalls import UNKNOWN_NOW

GROUP: Final = GROUP_STATE.key[:3]


def resting_on(columns: Iterable[Column], *names: str) -> frozenset[str]:
    """These columns, and all that are computed from them."""
    found, before = frozenset(names), frozenset[str]()
    columns = tuple(columns)
    while found != before:
        before = found
        found |= {one.name for one in columns if not found.isdisjoint(one.rests_on)}
    return found


def with_bounds(states: pl.DataFrame) -> pl.DataFrame:
    """Rows of group_state, those of an earlier version as they would be made now: it summed up the
    queues that it knew.
    """
    if not {"queues", "queues_known"} <= set(states.columns):
        return states
    is_part = (pl.col("queues_known") < pl.col("queues")).fill_null(value=False)
    made = []
    for name in ("lag_messages", "time_lag_ms"):
        if {name, bound_of(name)} <= set(states.columns):
            made.append(pl.coalesce(bound_of(name), name).alias(bound_of(name)))
            made.append(pl.when(~is_part).then(name).alias(name))
    return states.with_columns(made)


def by_bounds(states: pl.DataFrame) -> pl.DataFrame:
    """Rows of group_state, figures that are unknown in part by their lower bounds: for queries,
    which know no bounds."""
    names = (name for name in ("lag_messages", "time_lag_ms") if bound_of(name) in states.columns)
    return states.with_columns(pl.coalesce(name, bound_of(name)).alias(name) for name in names)


def held_to(lag: pl.DataFrame, moment: Moment) -> pl.DataFrame:
    """Rows of consumer_lag as they are true at the moment, which is beyond their own.

    A queue that was not reported again has not changed; so what waits has waited for longer,
    exactly. Of emitters of which nothing is known by then the lag is unknown.
    """
    reached = pl.DataFrame(
        reached_rows(moment.reached),
        schema={
            "emitter": pl.String,
            "judged_to": pl.Datetime("us", "UTC"),
            "seq_to": pl.Int64,
        },
    )
    waited_ms = (pl.col("judged_to") - pl.col("observed_at")).dt.total_milliseconds()
    grown = pl.when(pl.col("lag_messages") > 0).then(waited_ms.clip(lower_bound=0)).otherwise(0)
    held = (
        lag.join(reached.select("emitter", "judged_to"), on="emitter", how="left")
        .with_columns((pl.col("time_lag_ms") + grown.fill_null(0)).alias("time_lag_ms"))
        .select(lag.columns)
    )
    return without_lag(held, pl.col("emitter").is_in(list(moment.unknown)), "EMITTER_SILENT")


def without_lag(lag: pl.DataFrame, is_unknown: pl.Expr, why: str) -> pl.DataFrame:
    """Rows of consumer_lag, some of which say nothing about now."""
    said = {
        **dict.fromkeys(_OF_QUEUE, pl.lit(None)),
        "provenance": pl.lit("UNKNOWN"),
        "unknown_reason": pl.lit(why),
    }
    return _where(is_unknown, said, lag)


def lag_known(lag: pl.DataFrame, states: pl.DataFrame) -> pl.DataFrame:
    """Lag of queues as far as their group is known on their broker: while nothing is known of any
    of them (rows were lost, a clock was set), what was reported before says nothing.
    """
    is_nothing = (pl.col("state") == "UNKNOWN") & (pl.col("queues_known") == 0)
    key = list(GROUP)
    lost = states.filter(is_nothing).select(*key, pl.lit(value=True).alias("is_lost"))
    marked = lag.join(lost, on=key, how="left")
    is_lost = pl.col("is_lost").fill_null(value=False) & pl.col("lag_messages").is_not_null()
    return without_lag(marked, is_lost, "NOT_TOLD").select(lag.columns)


def states_at(states: pl.DataFrame, moment: Moment) -> pl.DataFrame:
    """Newest states of groups as they are at the moment: unknown, and why, where nothing is known
    of their broker any more.
    """
    unknown = moment.unknown
    is_unknown = pl.col("emitter").is_in(list(unknown))
    why = pl.col("emitter").replace_strict(unknown, default=None, return_dtype=pl.String)
    said = {
        **dict.fromkeys(_OF_GROUP, pl.lit(None)),
        "state": pl.lit("UNKNOWN"),
        "reason": pl.format(NOTHING_KNOWN, "group", "broker", why),
        "queues_known": pl.lit(0, pl.Int32),
        "unknown_reason": pl.lit("EMITTER_SILENT"),
    }
    return _where(is_unknown, said, states)


_OF_QUEUE: Final = resting_on(CONSUMER_LAG.columns, "lag_messages", "time_lag_ms")
"""Columns that say nothing of a queue whose lag is unknown."""
_OF_GROUP: Final = resting_on(
    GROUP_STATE.columns, "lag_at_least_messages", "time_lag_at_least_ms", "members"
)
"""Columns that say nothing of a group of which nothing is known."""
_OF_SUM: Final = resting_on(GROUP_STATE.columns, "lag_messages")
"""Columns that say nothing of a group while the lag of one queue is unknown."""


def _where(is_meant: pl.Expr, said: dict[str, pl.Expr], rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, with other values where something holds."""
    return rows.with_columns(
        pl.when(is_meant).then(value).otherwise(pl.col(name)).alias(name)
        for name, value in said.items()
        if name in rows.columns
    )


def states_with(lag: pl.DataFrame, states: pl.DataFrame) -> pl.DataFrame:
    """Newest states of groups with their lag as it is now, in place of what each has recorded.

    `lag` is the newest lag of every queue, held to the moment.
    """
    key = list(GROUP)
    now = lag.group_by(key).agg(*behind(), pl.len().cast(pl.Int32).alias("queues"))
    figures = [name for name in now.columns if name not in key]
    joined = states.join(now.rename({name: f"{name}_now" for name in figures}), on=key, how="left")
    is_reported = pl.col("queues_now").is_not_null()
    found = _where(is_reported, {name: pl.col(f"{name}_now") for name in figures}, joined)
    is_part = pl.col("lag_messages").is_null()
    return _where(is_part, dict.fromkeys(_OF_SUM, pl.lit(None)), found).select(states.columns)


def behind() -> list[pl.Expr]:
    """How far some queues of consumer_lag are behind together: lag_messages and time_lag_ms, null
    when one is unknown, their lower bounds, queues_known, queues_behind, and unknown_reason.
    """
    lag, time_lag = pl.col("lag_messages"), pl.col("time_lag_ms")
    why = pl.col("unknown_reason").filter(lag.is_null())
    return [
        pl.when(lag.is_not_null().all()).then(lag.sum()).alias("lag_messages"),
        pl.when(time_lag.is_not_null().all()).then(time_lag.max()).alias("time_lag_ms"),
        pl.when(lag.is_not_null().any()).then(lag.sum()).alias(bound_of("lag_messages")),
        time_lag.max().alias(bound_of("time_lag_ms")),
        lag.is_not_null().sum().cast(pl.Int32).alias("queues_known"),
        (lag > 0).sum().cast(pl.Int32).alias("queues_behind"),
        why.sort().first().alias("unknown_reason"),
    ]


def summed_up(lag: pl.DataFrame) -> dict[str, Any] | None:
    """The same and how many queues they are; None of none."""
    if lag.is_empty():
        return None
    return lag.select(*behind(), pl.len().alias("queues")).row(0, named=True)


def trend_of_all() -> pl.Expr:
    """GROWING, STEADY or SHRINKING of the sum over some queues of consumer_lag; null when the
    change of one of them is unknown.
    """
    change = pl.col("lag_change_per_minute")
    total = pl.when(change.is_not_null().all()).then(change.sum())
    return (
        pl.when(total.abs() <= STEADY_PER_MINUTE)
        .then(pl.lit("STEADY"))
        .when(total > 0)
        .then(pl.lit("GROWING"))
        .when(total < 0)
        .then(pl.lit("SHRINKING"))
        .alias("trend")
    )


BEGINNINGS: Final = ("opened_at", "head_since")
"""Columns of a window that prove that its trouble had begun: the window is open, or the message at
its head is in its listener.
"""


def began_at(window: Mapping[str, Any]) -> datetime:
    """When a window's trouble began: the earliest moment that is proven."""
    begin: datetime = min(window[name] for name in BEGINNINGS if window.get(name) is not None)
    return begin


def stood_until(windows: pl.DataFrame, lag: pl.DataFrame, moment: Moment) -> pl.DataFrame:
    """Stalled windows with what is true of them at the moment.

    `began_at`: the earliest beginning that is proven; `stood_ms`: how long they have lasted since;
    of those still open also the queue's lag now, in place of what a revision has recorded. `lag` is
    the newest lag of every queue. An open window of which nothing is known any more stays open, and
    says why.
    """
    now = held_to(lag, moment).select(
        *QUEUE, pl.col("lag_messages").alias("lag_now"), pl.col("time_lag_ms").alias("time_lag_now")
    )
    judged_to = pl.lit(moment.present, pl.Datetime("us", "UTC"))
    is_open = pl.col("closed_at").is_null()
    lasted = pl.coalesce("closed_at", judged_to) - pl.min_horizontal(BEGINNINGS)
    unknown = moment.unknown
    is_silent = is_open & pl.col("emitter").is_in(list(unknown))
    why = pl.when(is_silent).then(pl.lit("EMITTER_SILENT")).otherwise(pl.col("unknown_reason"))
    words = pl.col("emitter").replace_strict(unknown, default=None, return_dtype=pl.String)
    said = pl.format(UNKNOWN_NOW, words, pl.col("evidence"))
    windows = windows.with_columns(
        why.alias("unknown_reason"),
        pl.when(is_silent).then(said).otherwise(pl.col("evidence")).alias("evidence"),
    )
    is_known = pl.col("unknown_reason").is_null()
    return windows.join(now, on=QUEUE, how="left").select(
        *(
            pl.when(is_open)
            .then(pl.when(is_known).then(pl.coalesce(f"{of}_now", name)))
            .otherwise(pl.col(name))
            .alias(name)
            if (of := {"lag_messages": "lag", "time_lag_ms": "time_lag"}.get(name))
            else pl.col(name)
            for name in windows.columns
        ),
        pl.min_horizontal(BEGINNINGS).alias("began_at"),
        lasted.dt.total_milliseconds().clip(lower_bound=0).alias("stood_ms"),
    )
