"""Prepares rows from `topic_data` for display on the topic page.

Invariant: nothing here reads a lake or a clock. What is not known is a value with its reason, and
no sum hides how many of its parts are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import polars as pl

from dashboards.formatting import HowFarBehind
from dashboards.reads.cluster import NO_NAME_SERVER, WriteQueues
from dashboards.theme import StateSign, state_sign
from pipelines.base.wording import bound_of
from pipelines.reading.known import behind, trend_of_all
from pipelines.sentences.figures import whole
from pipelines.sentences.groups import lag_unknown, stands_nowhere
from pipelines.sentences.stalls import stands_now

Row = dict[str, Any]
MINUTE_S: Final = 60

ONE_REPORT: Final = "one report in this range; choose a longer one"
MOVED_BACK: Final = "its end moved back in this range: cut by a recovery, or made anew"
NOT_REPORTED: Final = "its watermarks were not reported in this range"
NO_ROUTE: Final = "the name server has no route to it"


@dataclass(frozen=True, slots=True)
class GroupOnTopic(HowFarBehind):
    """A group as it reads this topic."""

    cluster: str
    group: str
    sign: StateSign
    reason: str
    trend: str | None
    queues: int
    queues_known: int
    observed_at: datetime
    """Of the queue whose newest report is oldest: no number above is younger than it looks."""


@dataclass(frozen=True, slots=True)
class TopicQueue:
    """A queue of the topic; None is unknown, with the reason beside it."""

    broker: str
    queue_id: int
    readable: bool | None
    writable: bool | None
    write_unknown: str
    min_offset: int
    max_offset: int
    last_store_time: datetime | None
    per_minute: float | None
    rate_unknown: str
    seen_at: datetime


def groups_on(lag: pl.DataFrame, stalls: pl.DataFrame) -> list[GroupOnTopic]:
    """Groups that read the topic, worst first; `stalls` are the windows open at the range's end."""
    found = {
        (row["broker"], row["group"], row["queue_id"]): row for row in stalls.iter_rows(named=True)
    }
    lines = [_group(part, found) for part in lag.partition_by("group", maintain_order=True)]
    return sorted(
        lines,
        key=lambda line: (
            line.sign.rank,
            -(line.time_lag_at_least_ms or 0),
            -(line.lag_at_least_messages or 0),
            line.group,
        ),
    )


def _group(lag: pl.DataFrame, stalls: dict[tuple[Any, ...], Row]) -> GroupOnTopic:
    rows = lag.rows(named=True)
    judged = [(_sign(row, stalls), row) for row in rows]
    sign, worst = min(judged, key=lambda one: one[0].rank)
    [sums] = lag.select(*behind(), trend_of_all()).rows(named=True)
    return GroupOnTopic(
        cluster=worst["cluster"],
        group=worst["group"],
        sign=sign,
        reason=_reason(worst, stalls),
        lag_messages=sums["lag_messages"],
        lag_at_least_messages=sums[bound_of("lag_messages")],
        time_lag_ms=sums["time_lag_ms"],
        time_lag_at_least_ms=sums[bound_of("time_lag_ms")],
        trend=sums["trend"],
        queues=len(rows),
        queues_known=sums["queues_known"],
        observed_at=min(row["observed_at"] for row in rows),
    )


def _window(row: Row, stalls: dict[tuple[Any, ...], Row]) -> Row | None:
    return stalls.get((row["broker"], row["group"], row["queue_id"]))


def _sign(row: Row, stalls: dict[tuple[Any, ...], Row]) -> StateSign:
    window = _window(row, stalls)
    if window is not None:
        return state_sign(window["rule"])
    return state_sign("OK" if row["lag_messages"] is not None else row["unknown_reason"])


def _reason(row: Row, stalls: dict[tuple[Any, ...], Row]) -> str:
    window = _window(row, stalls)
    if window is not None:
        return whole(stands_now(window), f"this was seen first: {window['evidence']}")
    if row["lag_messages"] is None:
        return lag_unknown(row)
    return stands_nowhere(row["group"], row["topic"])


def queues_of(
    produced: pl.DataFrame, route: list[WriteQueues] | None, *, no_route: str = NO_NAME_SERVER
) -> list[TopicQueue]:
    """The topic's queues; `route` is None when nobody could be asked, for the reason `no_route`."""
    writers = {one.broker: one for one in route or ()}
    reason = NO_ROUTE if route is not None else no_route
    return [
        _queue(row, writers.get(row["broker"]), reason) for row in produced.iter_rows(named=True)
    ]


def _queue(row: Row, writers: WriteQueues | None, no_route: str) -> TopicQueue:
    per_minute, rate_unknown = _rate(row)
    return TopicQueue(
        broker=row["broker"],
        queue_id=row["queue_id"],
        readable=row["readable"],
        writable=writers.may_write and row["queue_id"] < writers.write_queues if writers else None,
        write_unknown="" if writers else no_route,
        min_offset=row["min_offset"],
        max_offset=row["max_offset"],
        last_store_time=row["last_store_time"],
        per_minute=per_minute,
        rate_unknown=rate_unknown,
        seen_at=row["last_at"],
    )


def _rate(row: Row) -> tuple[float | None, str]:
    """Messages a minute between the first and the last report; or None and why."""
    if row["fell"]:
        return None, MOVED_BACK
    seconds = (row["last_at"] - row["first_at"]).total_seconds()
    if seconds <= 0:
        return None, ONE_REPORT
    return (row["max_offset"] - row["first_offset"]) / seconds * MINUTE_S, ""


def rate_of(queues: list[TopicQueue]) -> tuple[float | None, int]:
    """(messages a minute of the queues that are known, how many are not)."""
    known = [queue.per_minute for queue in queues if queue.per_minute is not None]
    return (sum(known) if known else None), len(queues) - len(known)


def rate_text(per_minute: float | None, reason: str = "") -> str:
    """A rate with one digit after the point while that says something."""
    if per_minute is None:
        return f"unknown: {reason}" if reason else "unknown"
    return f"{per_minute:,.1f}" if 0 < per_minute < 100 else f"{per_minute:,.0f}"
