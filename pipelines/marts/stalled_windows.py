"""Intervals in which a queue's consumption was not OK, as revisions: opened, changed in rule or
kind, closed.

Place in the walk: judged rows in trouble → gold stalled_windows. Carried: the open windows.

Invariant: the revisions of one window_id are numbered without gaps from 1; the last one of a CLOSED
window keeps the rule and kind that were shown before. Absent on purpose: updates of figures alone.
Lag over time is consumer_lag's.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from engine.telemetry.tables import Column, must
from pipelines.marts.columns import (
    BROKER,
    CLUSTER,
    EMITTER,
    GROUP,
    INTERVAL,
    LONG,
    OBSERVED_DATE,
    QUEUE,
    SEQ,
    STRING,
    TIMESTAMP,
    TOPIC,
)
from pipelines.marts.declaring import as_declared, window_id
from pipelines.marts.judging.queue_numbers import QUEUE_KEY
from pipelines.marts.judging.queues import NAME as JUDGED_QUEUES
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.marts.sentences import clock, messages, number
from pipelines.settings import MS_US, Evaluation

STALLED_WINDOWS: Final = GoldTable(
    "stalled_windows",
    "revision of an interval in which a queue's consumption was not OK",
    (
        *INTERVAL,
        CLUSTER,
        BROKER,
        GROUP,
        TOPIC,
        QUEUE,
        must("rule", STRING, "NO_OFFSET, DATA_LOST, STOPPED, REWOUND, STALLED or SLOW"),
        must(
            "kind",
            STRING,
            "FROZEN_HEAD, DEAD_QUEUE, DEAD_CONSUMER, BLOCKED_ORDERLY, PAUSED or UNDETERMINED",
        ),
        must("window_ms", LONG, "length of the evaluation window"),
        must("slide_ms", LONG, "distance of evaluation ticks"),
        Column("committed_from", LONG, "consume offset at the window's start"),
        Column("committed_to", LONG, "consume offset at its end"),
        Column("pulled_from", LONG, "pulled mark at the window's start"),
        Column("pulled_to", LONG, "pulled mark at its end"),
        Column("max_offset_from", LONG, "max offset at the window's start"),
        Column("max_offset_to", LONG, "max offset at its end"),
        Column("lag_messages", LONG, "lag at observed_at"),
        Column("time_lag_ms", LONG, "time lag at observed_at"),
        must("reports", LONG, "offset reports inside the window, unchanged ones included"),
        Column("client_id", STRING, "client that held the queue last"),
        Column("head_message_id", STRING, "message at the head of that client's window, when told"),
        Column("head_since", TIMESTAMP, "since when it is in a listener"),
        Column("stack", STRING, "stack of that listener, when told"),
        must("evidence", STRING, "one sentence with the figures that fired the rule"),
        EMITTER,
        SEQ,
        OBSERVED_DATE,
    ),
    ("window_id", "revision"),
    revised=True,
    on_ticks="true",
)

WINDOWS: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("window_id", pa.string()),
        ("revision", pa.int64()),
        ("opened_us", pa.int64()),
        ("rule", pa.string()),
        ("kind", pa.string()),
        ("head_message_id", pa.string()),
        ("head_since_us", pa.int64()),
        ("stack", pa.string()),
        ("client_id", pa.string()),
    ]
)
"""Open windows, by the number of their queue."""

_HEAD: Final = ("head_message_id", "head_since_us", "stack")
_HEAD_KINDS: Final = ("FROZEN_HEAD", "BLOCKED_ORDERLY")

Row = dict[str, Any]


def stalled_windows(given: Given) -> Made:
    """One row per revision of an interval in which a queue was not OK."""
    judged = given.facts[JUDGED_QUEUES]
    troubled = judged.filter(judged["is_troubled"])
    if not troubled.num_rows:
        return Made(MART.none)
    windows = {row["number"]: row for row in given.state["windows"].to_pylist()}
    told = []
    for row in troubled.sort_by("tick_us").to_pylist():
        revision = _revision(windows, row, given.evaluation)
        if revision is not None:
            told.append(revision)
    left = [windows[one] for one in sorted(windows)]
    return Made(_as_rows(told), {"windows": pa.Table.from_pylist(left, WINDOWS)})


def _revision(windows: dict[int, Row], row: Row, evaluation: Evaluation) -> Row | None:
    """The revision that a judged row makes, if any; opens, changes or closes the window."""
    window = windows.get(row["number"])
    if not row["is_bad"]:
        if window is None:
            return None
        del windows[row["number"]]
        return _told({**window, "revision": window["revision"] + 1}, row, evaluation, "CLOSED")
    seen = {**(window or {}), "rule": row["rule"], "kind": row["kind"]}
    if window is None:
        seen = {**dict.fromkeys(WINDOWS.names), **seen, "number": row["number"], "revision": 0}
        seen["opened_us"] = row["tick_us"] - evaluation.slide_us
        parts = [row[name] for name in QUEUE_KEY]
        seen["window_id"] = window_id(STALLED_WINDOWS.name, *parts, seen["opened_us"])
    has_head = row["kind"] in _HEAD_KINDS
    if has_head and row["head_message_id"] is not None:
        seen |= {name: row[name] for name in _HEAD}
    seen["client_id"] = row["client_id"] or seen["client_id"]
    windows[row["number"]] = seen
    if window is not None and not _is_other(window, seen, has_head=has_head):
        return None
    seen["revision"] += 1
    return _told(seen, row, evaluation, "OPEN")


def _is_other(window: Row, seen: Row, *, has_head: bool) -> bool:
    """Does it show another rule, kind or head than before?"""
    if (window["rule"], window["kind"]) != (seen["rule"], seen["kind"]):
        return True
    return has_head and window["head_message_id"] != seen["head_message_id"]


def _told(window: Row, row: Row, evaluation: Evaluation, state: str) -> Row:
    """The columns of a revision."""
    seen = row["is_evaluated"]
    figures = {
        "committed_from": row["committed_before"],
        "committed_to": row["committed"],
        "pulled_from": row["pulled_before"],
        "pulled_to": row["pulled"],
        "max_offset_from": row["max_offset_before"],
        "max_offset_to": row["max_offset"],
        "lag_messages": row["lag"],
    }
    time_lag_us = row["time_lag_us"]
    is_head = window["kind"] in _HEAD_KINDS
    head = {name: window[name] if is_head else None for name in _HEAD}
    made = {
        **row,
        **{name: value if seen else None for name, value in figures.items()},
        **head,
        "window_id": window["window_id"],
        "revision": window["revision"],
        "state": state,
        "observed_us": row["tick_us"],
        "opened_at": window["opened_us"],
        "closed_at": row["tick_us"] if state == "CLOSED" else None,
        "rule": window["rule"],
        "kind": window["kind"],
        "window_ms": evaluation.window_ms,
        "slide_ms": evaluation.slide_ms,
        "time_lag_ms": time_lag_us // MS_US if seen and time_lag_us is not None else None,
        "head_since": head["head_since_us"],
        "client_id": row["client_id"] or window["client_id"],
    }
    made["evidence"] = _evidence(made, evaluation)
    return made


def _as_rows(told: list[Row]) -> pa.Table:
    names = [name for name in told[0] if name in _TYPES] if told else list(_TYPES)
    columns = {name: pa.array([row[name] for row in told], _TYPES[name]) for name in names}
    return as_declared(columns, STALLED_WINDOWS)


_TYPES: Final = {
    column.name: {"STRING": pa.string(), "INT": pa.int32()}.get(column.type.name, pa.int64())
    for column in STALLED_WINDOWS.columns
    if column.name not in ("observed_at", "valid_from", "observed_date")
} | {"observed_us": pa.int64()}
"""Columns as they are made; as_declared turns moments into timestamps."""


def _evidence(row: Row, evaluation: Evaluation) -> str:
    """One sentence with the figures that fired the rule."""
    if row["state"] == "CLOSED":
        if not row["is_evaluated"]:
            return "the broker reports this queue of the group no more"
        committed, lag = number(row["committed_to"]), messages(row["lag_messages"])
        return f"clean again: commit offset {committed}, {lag} behind"
    return _what(row, evaluation.window_ms // 1000) + _who(row) + _head(row)


def _what(row: Row, seconds: int) -> str:
    committed, behind = number(row["committed_to"]), messages(row["lag_messages"])
    pulls = f"pulls went from {number(row['pulled_from'])} to {number(row['pulled_to'])}"
    moved = f", {pulls}, {behind} waiting"
    end = number(row["max_offset_to"])
    match row["rule"]:
        case "STALLED":
            return f"commit offset stood at {committed} for {seconds} s{moved}"
        case "STOPPED":
            return f"no offset report for {seconds} s, the last said {committed}{moved}"
        case "SLOW" if row["growth"] is not None:
            return (
                f"{behind} behind, and falling behind by {row['growth']} messages an hour: the "
                f"least lag grew in each of the last three minutes{_retention(row)}"
            )
        case "SLOW":
            return (
                f"commits advance from {number(row['committed_from'])} to {committed} in "
                f"{seconds} s, yet the lag only grew, to {behind}"
            )
        case "REWOUND":
            high = "what it was" if row["high"] is None else row["high"]
            return f"commit offset fell to {committed} and has not regained {high}"
        case "DATA_LOST":
            kept = f"[{row['min_offset']}, {end}]"
            return f"commit offset {committed} lies outside what the queue keeps, {kept}"
    return f"no offset was ever committed in {seconds} s while messages up to {end} wait"


def _retention(row: Row) -> str:
    """When what waits will be beyond what the queue keeps, at the present rate; a queue that keeps
    everything from offset 0 on says nothing about it.
    """
    kept = None if row["max_offset"] is None else row["max_offset"] - row["min_offset"]
    if not row["min_offset"] or kept is None or row["lag_messages"] is None:
        return ""
    minutes = max(0, kept - row["lag_messages"]) * 60 // row["growth"]
    return f"; the oldest of them are deleted unread in about {minutes} minutes at this rate"


def _who(row: Row) -> str:
    match row["kind"]:
        case "DEAD_CONSUMER":
            return "; the group has no member"
        case "DEAD_QUEUE":
            last_us = row["last_pull_us"]
            when = "" if last_us is None else f" at {clock(last_us)}"
            return f"; nobody pulls, last {row['client_id'] or 'nobody'}{when}"
        case "BLOCKED_ORDERLY":
            return "; the queue is locked by its orderly reader"
    return ""


def _head(row: Row) -> str:
    if row["head_message_id"] is None:
        return ""
    since_us = row["head_since_us"]
    where = " is at the head" if since_us is None else f" is in a listener since {clock(since_us)}"
    return f"; message {row['head_message_id']}{where}"


MART = mart(
    STALLED_WINDOWS,
    stalled_windows,
    reads=(JUDGED_QUEUES,),
    carries={"windows": WINDOWS},
)
