"""Computes each queue's lag, in messages and in time, at every progress report.

Place in the walk: staged group_watermarks → gold consumer_lag. Carried: the known lags of each
queue in the minute before its last row, for the trend.

Invariant: a lag that is not known is null and `unknown_reason` says why; nothing is clamped or
interpolated. An offset beyond the end of the queue is BEYOND_END, no number, so that it can reduce
no sum. Lag in a queue that nobody may read any more (at or above readQueueNums) is UNREADABLE. A
clock that is set back begins a new minute. The time is the store time of the very message at the
committed offset, as the engine reports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.base.settings import MINUTE_US, MS_US, SECOND_US, TREND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import LONG, QUEUE_AT, STAMP, STRING, TIMESTAMP, as_declared
from pipelines.marts.judging.packed import UNKNOWN, Flags, as_column, flags, numbers, truncated
from pipelines.marts.judging.queue_numbers import NAME as QUEUE_NUMBERS
from pipelines.marts.judging.ticks import CLOCK_STEPPED
from pipelines.marts.mart import Given, GoldTable, Made, Positions, fleeting, mart
from pipelines.marts.polled import NAME as POLLED
from pipelines.marts.polled import changed_messages, errors_ms, marked
from pipelines.marts.timeless import NAME as TIMELESS
from pipelines.marts.timeless import timely
from pipelines.staging.facts import is_one_of
from pipelines.staging.soundness import COMMITTED_STATES

CONSUMER_LAG: Final = GoldTable(
    "consumer_lag",
    "group, topic, broker, queue and grid second at which something changed (at least each 10 min)",
    (
        *QUEUE_AT,
        Column(
            "lag_messages",
            LONG,
            "max_offset - committed, never below 0; without a consume offset max_offset - began, "
            "and 0 of an empty queue; null when unknown",
        ),
        Column(
            "time_lag_ms",
            LONG,
            "event time minus store time of the message AT committed; 0 when nothing waits",
        ),
        Column(
            "time_lag_error_ms",
            LONG,
            "half-width of the error bar of time_lag_ms; 0 when EXACT, error_ms when OBSERVED",
            rests_on=("time_lag_ms",),
        ),
        must(
            "provenance",
            STRING,
            "EXACT, OBSERVED (polled, not reported: as of the moment at which its broker was "
            "polled), UNREADABLE (nobody may read the queue), INTERPOLATED, EXTRAPOLATED, "
            "PURGED or UNKNOWN",
        ),
        Column(
            "unknown_reason",
            STRING,
            "why lag or time lag is null: NO_OFFSET, BROADCAST, PURGED, BEYOND_END (the consume "
            "offset lies beyond max_offset), CLOCK_STEPPED, STORED_AHEAD (the message was "
            "stored after the row's own moment), WORD_NOT_KNOWN (a later version wrote "
            "the state), ...",
        ),
        Column("inflight_messages", LONG, "pulled - committed; null when nobody has pulled"),
        Column("committed", LONG, "consume offset in broker memory (NEXT to consume)"),
        Column(
            "persisted",
            LONG,
            "consume offset in the broker's file; of a row with an error_ms taken to be what was "
            "committed 6 s before",
        ),
        Column("pulled", LONG, "next offset nobody of the group has pulled"),
        Column("processed", LONG, "one past the highest finished offset, as clients reported"),
        must("min_offset", LONG, "first message that is stored"),
        must("max_offset", LONG, "next offset to be written"),
        Column(
            "trend",
            STRING,
            "GROWING, STEADY or SHRINKING over the last minute; null when too few rows, of those "
            "since the consume offset fell last",
            rests_on=("lag_change_per_minute",),
        ),
        Column(
            "lag_change_per_minute",
            LONG,
            "messages a minute by which lag_messages changes; null as trend",
            rests_on=("lag_messages",),
        ),
        Column(
            "drain_time_ms",
            LONG,
            "time until lag 0 at the present rate; null unless SHRINKING",
            rests_on=("lag_change_per_minute",),
        ),
        Column("last_commit_time", TIMESTAMP, "when the group last reported an offset"),
        Column("last_pull_time", TIMESTAMP, "when the group last pulled"),
        Column("last_puller", STRING, "client that pulled last"),
        *STAMP,
        Column(
            "error_ms",
            LONG,
            "how far the moments of this row may be off: it was polled so often; null when it was "
            "reported",
        ),
        Column(
            "error_messages",
            LONG,
            "by how many messages lag_messages changes in that time, at its present rate; null "
            "when it was reported, or when the rate is not known",
            rests_on=("lag_change_per_minute",),
        ),
        Column(
            "members_unknown_reason",
            STRING,
            "why nobody knows the group's members: they may be connected with a proxy that nobody "
            "can ask; null when they are known",
        ),
        Column(
            "began",
            LONG,
            "where the group began to read the queue, which has no consume offset; null when it "
            "has one, or when nobody knows",
        ),
    ),
    ("cluster", "broker", "group", "topic", "queue_id", "observed_at", "seq"),
)

TREND_SPAN_US_MIN: Final = 10 * SECOND_US
"""A trend needs an older row at least this far back."""
STEADY_PER_MINUTE: Final = 10
"""STEADY: the lag changes by at most so many messages a minute, however large it is."""

POINTS: Final = fleeting(
    pa.schema([(name, pa.int64()) for name in ("number", "event_us", "lag", "committed")])
)
"""Known lags, and the offsets that they count from: those of a queue lie in the order of seq, and
their moments do not fall.
"""
_POINT: Final = tuple(POINTS.names)


def consumer_lag(given: Given) -> Made:
    """One row per (group, topic, broker, queue, grid second) at which something changed, at least
    in each snapshot.
    """
    rows = timely(given)
    change, points = _changes(rows, numbers(given.facts[QUEUE_NUMBERS]["number"]), given)
    lag = numbers(rows["lag_messages"])
    is_shrinking = (change != UNKNOWN) & (change < -STEADY_PER_MINUTE) & (lag > 0)
    rate = np.where(is_shrinking, -change, 1)
    drain_ms = np.where(is_shrinking, lag, 0) * 60_000 // rate
    time_lag_ms = pc.divide(rows["time_lag_us"], MS_US)
    error_ms = errors_ms(rows, given.facts[POLLED], by="seq")
    polled_ms = pc.fill_null(as_column(error_ms), 0)
    bars = pc.add(polled_ms, pc.fill_null(rows["store_time_error_ms"], 0))
    made = {
        **dict(zip(rows.schema.names, rows.columns, strict=True)),
        "observed_us": rows["event_us"],
        "last_commit_time": rows["last_commit_us"],
        "last_pull_time": rows["last_pull_us"],
        "time_lag_ms": time_lag_ms,
        "time_lag_error_ms": pc.if_else(pc.is_valid(time_lag_ms), bars, None),
        "provenance": marked(_provenance(rows), error_ms),
        "unknown_reason": unknown_reason(rows),
        "inflight_messages": pc.subtract(rows["pulled"], rows["committed"]),
        "trend": trends(change),
        "lag_change_per_minute": as_column(change),
        "drain_time_ms": as_column(np.where(is_shrinking, drain_ms, UNKNOWN)),
        "error_ms": as_column(error_ms),
        "error_messages": changed_messages(error_ms, change),
    }
    gold = as_declared(made, CONSUMER_LAG, keeps_dictionaries=True)
    return Made(gold, {"points": points})


def trends(change_per_minute: Positions) -> pa.Array:
    """GROWING, STEADY or SHRINKING; null when the change is unknown."""
    known = change_per_minute != UNKNOWN
    is_steady = known & (np.abs(change_per_minute) <= STEADY_PER_MINUTE)
    return _first_that_holds(
        {
            "STEADY": is_steady,
            "GROWING": known & (change_per_minute > 0),
            "SHRINKING": known & (change_per_minute < 0),
        },
        otherwise=None,
    )


def _changes(rows: pa.Table, number: Positions, given: Given) -> tuple[Positions, pa.Table]:
    """By how many messages a minute the lag of each row changes, against the oldest known lag of
    the minute before it and since the offset fell; and the points to be carried on.
    """
    carried = given.state["points"]
    lag = numbers(rows["lag_messages"])
    is_known = np.flatnonzero(lag != UNKNOWN)
    change = np.full(rows.num_rows, UNKNOWN)
    if not len(is_known):
        return change, carried
    given_rows = (number, numbers(rows["event_us"]), lag, numbers(rows["committed"]))
    new = [column[is_known] for column in given_rows]
    has_new = np.zeros(int(number.max()) + 1, bool)
    has_new[new[0]] = True
    before = [numbers(carried[name]) for name in _POINT]
    is_met = (before[0] < len(has_new)) & has_new[np.minimum(before[0], len(has_new) - 1)]
    met = np.flatnonzero(is_met)
    joined = [np.concatenate([old[met], one]) for old, one in zip(before, new, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    of_queue, moments, lags, offsets = (column[order] for column in joined)
    is_next = np.concatenate([[False], of_queue[1:] == of_queue[:-1]])
    is_set_back = np.concatenate([[False], moments[1:] < moments[:-1]])
    is_set_back[1:] |= (offsets[1:] < offsets[:-1]) & (offsets[1:] != UNKNOWN)
    eras = np.cumsum(~is_next | is_set_back)
    oldest = _oldest(eras, moments)
    span_us = moments - moments[oldest]
    grown = (lags - lags[oldest]) * MINUTE_US
    found = np.where(
        span_us >= TREND_SPAN_US_MIN, truncated(grown, np.maximum(span_us, 1)), UNKNOWN
    )
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    change[is_known] = found[place[len(met) :]]
    is_kept = _is_in_last_minute(of_queue, moments, eras)
    others = np.flatnonzero(~is_met)
    left = [
        pa.array(np.concatenate([old[others], one[is_kept]]))
        for old, one in zip(before, (of_queue, moments, lags, offsets), strict=True)
    ]
    return change, pa.table(left, schema=POINTS)


def _oldest(eras: Positions, moments: Positions) -> Positions:
    """Per point the first one of its era that is not older than a minute before it; moments do not
    fall within an era.
    """
    begins = np.flatnonzero(np.diff(eras, prepend=-1))
    oldest = np.repeat(begins, np.diff(begins, append=len(eras)))
    later = np.flatnonzero(moments - moments[oldest] > TREND_US)
    if not len(later):
        return oldest
    begin = int(moments.min()) - TREND_US
    span = int(moments.max()) - begin + 1
    if int(eras[-1]) * span >= 2**62:
        return _oldest_by_walking(oldest, moments)
    place = eras * span + (moments - begin)
    oldest[later] = np.searchsorted(place, place[later] - TREND_US)
    return oldest


def _oldest_by_walking(firsts: Positions, moments: Positions) -> Positions:
    """The same for eras that lie too far from each other to be numbered in one."""
    oldest = np.empty_like(firsts)
    at = 0
    for row, (first, moment) in enumerate(zip(firsts.tolist(), moments.tolist(), strict=True)):
        at = max(at, first)
        while moments[at] < moment - TREND_US:
            at += 1
        oldest[row] = at
    return oldest


def _is_in_last_minute(of_queue: Positions, moments: Positions, eras: Positions) -> Flags:
    """Is the point in the last era of its queue, and in the last minute of it?"""
    ends = np.flatnonzero(np.concatenate([of_queue[1:] != of_queue[:-1], [True]]))
    counts = np.diff(ends, prepend=-1)
    last_us, last_era = np.repeat(moments[ends], counts), np.repeat(eras[ends], counts)
    return np.asarray((moments >= last_us - TREND_US) & (eras == last_era))


def _provenance(rows: pa.Table) -> pa.Array:
    state, is_read = rows["committed_state"], ~flags(rows["is_broadcast"])
    return _first_that_holds(
        {
            "UNREADABLE": is_read & flags(is_one_of(state, "UNREADABLE")),
            "INTERPOLATED": np.asarray(
                pc.and_(pc.is_valid(rows["time_lag_us"]), pc.is_valid(rows["store_time_error_ms"]))
            ),
            "EXACT": np.asarray(pc.is_valid(rows["time_lag_us"])),
            "PURGED": is_read & flags(is_one_of(state, "PURGED")),
        },
        otherwise="UNKNOWN",
    )


def unknown_reason(rows: pa.Table) -> pa.Array:
    """Why lag or time lag of each row is null."""
    if not rows["lag_messages"].null_count and not rows["time_lag_us"].null_count:
        return pa.nulls(rows.num_rows, KEY_TEXT)
    state = rows["committed_state"]
    return _first_that_holds(
        {
            "BROADCAST": flags(rows["is_broadcast"]),
            "NO_OFFSET": flags(is_one_of(state, "NONE")) & _is_null(rows["lag_messages"]),
            "PURGED": flags(is_one_of(state, "PURGED")),
            "BEYOND_END": flags(pc.greater(rows["committed"], rows["max_offset"])),
            "WORD_NOT_KNOWN": ~flags(is_one_of(state, *COMMITTED_STATES)),
            CLOCK_STEPPED: flags(rows["is_timeless"]),
            "STORED_AHEAD": _are_stored_ahead(rows),
            "STORE_TIME_NOT_TOLD": _is_null(rows["time_lag_us"]),
        },
        otherwise=None,
    )


def _first_that_holds(conditions: Mapping[str, Flags], *, otherwise: str | None) -> pa.Array:
    """Per row the first word whose condition holds, as a text of a dictionary."""
    words = [*conditions, *([] if otherwise is None else [otherwise])]
    codes = np.full(len(next(iter(conditions.values()))), len(conditions), np.int32)
    for code, holds in reversed([*enumerate(conditions.values())]):
        codes[holds] = code
    is_null = codes == len(words)
    places = pa.array(codes, mask=is_null) if is_null.any() else pa.array(codes)
    return pa.DictionaryArray.from_arrays(places, words)


def _is_null(column: pa.ChunkedArray) -> Flags:
    return np.asarray(pc.is_null(column))


def _are_stored_ahead(rows: pa.Table) -> Flags:
    """Is the message at the consume offset one of the future, so that nobody knows its age?"""
    is_ahead = flags(pc.greater(rows["store_us_at_committed"], rows["event_us"]))
    return np.asarray(is_ahead & np.asarray(pc.is_null(rows["time_lag_us"])))


MART = mart(
    CONSUMER_LAG,
    consumer_lag,
    reads=("group_watermarks", QUEUE_NUMBERS, TIMELESS, POLLED),
    carries={"points": POINTS},
    wakes=("group_watermarks", QUEUE_NUMBERS, TIMELESS),
)
