"""Intervals in which a queue's consumption was not OK, as revisions: opened, changed in rule, kind
or head, unknown for a while, closed.

Place in the walk: judged rows in trouble, and ticks at which nothing is known of an emitter → gold
stalled_windows. Carried: the open windows.

Invariant: the revisions of one window_id are numbered without gaps from 1; the last one of a CLOSED
window keeps the rule and kind that were shown before. A window of which nothing is known stays open
and says why it is unknown: it is closed only by what is seen of its queue. Absent on purpose:
updates of figures alone. Lag over time is consumer_lag's.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

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
from pipelines.marts.judging.judged_rows import HEAD
from pipelines.marts.judging.packed import NEVER
from pipelines.marts.judging.progress import CADENCES
from pipelines.marts.judging.queues import NAME as JUDGED_QUEUES
from pipelines.marts.judging.ticks import NAME as TICKS
from pipelines.marts.judging.ticks import WORDS
from pipelines.marts.keys import QUEUE_KEY
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.marts.sentences import (
    clock,
    deleted_unread,
    messages,
    number,
    rate,
)
from pipelines.settings import MS_US, SECOND_US, Evaluation
from pipelines.wording import duration, spoken

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
        must("rule", STRING, "NO_OFFSET, DATA_LOST, STOPPED, REWOUND, STALLED, SLOW or PAUSED"),
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
        Column("client_id", STRING, "client that holds the queue, or pulled it last"),
        Column("head_message_id", STRING, "message at the head of that client's window, when told"),
        Column("head_since", TIMESTAMP, "since when it is in a listener"),
        Column("stack", STRING, "stack of that listener, when told"),
        must("evidence", STRING, "one sentence with the figures that fired the rule"),
        EMITTER,
        SEQ,
        OBSERVED_DATE,
        Column(
            "head_offset",
            LONG,
            "offset of the message that all others wait for: the head of the client's window, when "
            "told, else the one at the consume offset; null when the kind is not determined",
        ),
        Column(
            "stands_since",
            TIMESTAMP,
            "since when it stands, by its kind: the head in its listener, or the last pull of a "
            "queue that nobody pulls; null when not told",
        ),
        Column(
            "unknown_reason",
            STRING,
            "why nothing is known of the queue from observed_at on: SPOOL_LOSS, EMITTER_SILENT or "
            "CLOCK_STEPPED; null when it is known",
        ),
        Column(
            "reached",
            LONG,
            "first offset that is not finished, as far as anybody knows; above the consume offset "
            "when the client has finished more than it reported",
        ),
        Column(
            "growth_per_hour",
            LONG,
            "messages an hour by which the queue falls further behind, below 0: it gains; 0 when "
            "neither is certain, null when it is too early to say",
        ),
        Column(
            "retained_until",
            TIMESTAMP,
            "when its unread messages begin to be deleted at that rate; null unless it falls "
            "behind and the queue has begun to delete",
        ),
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
        ("head_offset", pa.int64()),
        ("seq", pa.int64()),
        ("unknown_reason", pa.string()),
        ("cluster", pa.string()),
        ("broker", pa.string()),
        ("emitter", pa.string()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int64()),
    ]
)
"""Open windows, by the number of their queue."""

_HEAD: Final = HEAD
_HEAD_KINDS: Final = ("FROZEN_HEAD", "BLOCKED_ORDERLY")
_PULL_KINDS: Final = ("DEAD_QUEUE", "DEAD_CONSUMER", "PAUSED")
"""Kinds of a queue that nobody pulls."""
_PLACE: Final = ("cluster", "broker", "emitter", "group", "topic", "queue_id")
_FIGURES: Final = (
    "committed_from",
    "committed_to",
    "pulled_from",
    "pulled_to",
    "max_offset_from",
    "max_offset_to",
    "lag_messages",
    "time_lag_ms",
    "reached",
    "growth_per_hour",
    "retained_until",
)

Row = dict[str, Any]


def stalled_windows(given: Given) -> Made:
    """One row per revision of an interval in which a queue was not OK."""
    judged = given.facts[JUDGED_QUEUES]
    troubled = judged.filter(judged["is_troubled"])
    ticks = given.facts[TICKS]
    unknown = ticks.filter(pc.invert(ticks["is_alive"]))
    if not troubled.num_rows and not (unknown.num_rows and given.state["windows"].num_rows):
        return Made(MART.none)
    windows = {row["number"]: row for row in given.state["windows"].to_pylist()}
    told = []
    events = [*unknown.to_pylist(), *troubled.to_pylist()]
    for row in sorted(events, key=lambda one: one["tick_us"]):
        if "number" not in row:
            told += _unknown(windows, row, given.evaluation)
            continue
        revision = _revision(windows, row, given.evaluation)
        if revision is not None:
            told.append(revision)
    left = [windows[one] for one in sorted(windows)]
    return Made(_as_rows(told), {"windows": pa.Table.from_pylist(left, WINDOWS)})


def _unknown(windows: dict[int, Row], tick: Row, evaluation: Evaluation) -> list[Row]:
    """What is told of an emitter's open windows when nothing is known of it any more."""
    told = []
    for number_of_queue in sorted(windows):
        window = windows[number_of_queue]
        if window["emitter"] != tick["emitter"]:
            continue
        why = tick["why_unknown"]
        window |= {"revision": window["revision"] + 1, "unknown_reason": why}
        made = {**window, **dict.fromkeys(_FIGURES), "reports": 0, "last_pull_us": None}
        if window["kind"] not in _HEAD_KINDS:
            made |= dict.fromkeys(_HEAD)
        made |= _frame(made, tick["tick_us"], evaluation) | {"state": "OPEN", "closed_at": None}
        made["stands_since"] = _stands_since(made)
        shown = spoken(window["rule"])
        made["evidence"] = f"unknown: {WORDS[why]}; it was {shown} before"
        told.append(made)
    return told


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
    if has_head and (row["head_message_id"] is not None or row["head_offset"] is not None):
        is_same = all(row[name] == seen[name] for name in ("head_message_id", "head_offset"))
        stack = row["stack"] or (seen["stack"] if is_same else None)
        seen |= {name: row[name] for name in _HEAD} | {"stack": stack}
    seen["client_id"] = _client(row) or seen["client_id"]
    seen |= {name: row[name] for name in (*_PLACE, "seq")} | {"unknown_reason": None}
    windows[row["number"]] = seen
    if window is not None and not _is_other(window, seen, has_head=has_head):
        return None
    seen["revision"] += 1
    return _told(seen, row, evaluation, "OPEN")


def _is_other(window: Row, seen: Row, *, has_head: bool) -> bool:
    """Does it show another rule, kind or head, or more of the head? Is it known again?"""
    if (window["rule"], window["kind"]) != (seen["rule"], seen["kind"]):
        return True
    if window["unknown_reason"] is not None:
        return True
    return has_head and any(window[name] != seen[name] for name in _HEAD)


def _client(row: Row) -> str | None:
    """Who holds the head, or is paused, by its own account; else who pulled last."""
    is_own = row["kind"] in (*_HEAD_KINDS, "PAUSED")
    client: str | None = (row["sampled_client"] if is_own else None) or row["client_id"]
    return client


def _stands_since(row: Row) -> int | None:
    if row["kind"] in _HEAD_KINDS:
        since: int | None = row["head_since_us"]
        return since
    last_pull: int | None = row["last_pull_us"]
    return last_pull if row["kind"] in _PULL_KINDS else None


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
        "reached": row["reached"],
        "growth_per_hour": row["growth"],
        "retained_until": _retained_until(row),
    }
    time_lag_us = row["time_lag_us"]
    is_head = window["kind"] in _HEAD_KINDS
    head = {name: window[name] if is_head else None for name in _HEAD}
    if head["head_offset"] is None and window["kind"] != "UNDETERMINED":
        head["head_offset"] = row["committed"]
    made = {
        **row,
        **{name: value if seen else None for name, value in figures.items()},
        **head,
        **_frame({**window, **head}, row["tick_us"], evaluation),
        "state": state,
        "closed_at": row["tick_us"] if state == "CLOSED" else None,
        "rule": window["rule"],
        "kind": window["kind"],
        "time_lag_ms": time_lag_us // MS_US if seen and time_lag_us is not None else None,
        "client_id": _client(row) or window["client_id"],
        "unknown_reason": None,
    }
    made["stands_since"] = _stands_since(made)
    made["evidence"] = _evidence(made)
    return made


def _frame(window: Row, tick_us: int, evaluation: Evaluation) -> Row:
    """What every revision of a window says of it."""
    return {
        "window_id": window["window_id"],
        "revision": window["revision"],
        "observed_us": tick_us,
        "opened_at": window["opened_us"],
        "head_since": window["head_since_us"],
        "window_ms": evaluation.window_ms,
        "slide_ms": evaluation.slide_ms,
    }


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


def _evidence(row: Row) -> str:
    """One sentence with the figures that fired the rule."""
    if row["state"] == "CLOSED":
        if not row["is_evaluated"]:
            return "the broker reports this queue of the group no more"
        committed, lag = number(row["committed_to"]), messages(row["lag_messages"])
        return f"clean again: commit offset {committed}, {lag} behind"
    if row["rule"] == "PAUSED":
        return _paused(row)
    return _what(row) + _who(row) + _head(row)


def _paused(row: Row) -> str:
    since_us = row["last_pull_us"]
    since = "" if since_us is None else f" since {clock(since_us)}"
    return (
        f"paused by {row['client_id'] or 'its client'}, which works on the queue, holds nothing of "
        f"it and has asked for nothing{since}, {messages(row['lag_messages'])} waiting"
    )


def _what(row: Row) -> str:
    seconds = row["patience_us"] // SECOND_US
    committed, behind = number(row["committed_to"]), messages(row["lag_messages"])
    pulls = f"pulls went from {number(row['pulled_from'])} to {number(row['pulled_to'])}"
    moved = f", {pulls}, {behind} waiting"
    end = number(row["max_offset_to"])
    match row["rule"]:
        case "STALLED" if row["passed"] is not None:
            usual_ms = row["usual_us"] // MS_US
            return (
                f"the head stands for {row['head_age_us'] // SECOND_US} s while "
                f"{messages(row['passed'])} behind it were finished, and listener calls hardly "
                f"ever take longer than {usual_ms} ms; commit offset {committed}{moved}"
            )
        case "STALLED" if _is_ahead(row) and (row["is_told"] or row["open"]):
            what = "the client finished nothing" if row["is_told"] else "nothing was pulled"
            return (
                f"{what} beyond {row['reached']} for {seconds} s, consume offset {committed}, "
                f"{pulls}, {messages(row['open'])} waiting there"
            )
        case "STALLED":
            return f"commit offset stood at {committed} for {seconds} s{moved}{_usual(row)}"
        case "STOPPED":
            return (
                f"no offset report for {seconds} s, the last said {committed}{moved}{_usual(row)}"
            )
        case "SLOW":
            return _slow(row)
        case "REWOUND":
            high = "what it was" if row["high"] is None else row["high"]
            return f"commit offset fell to {committed} and has not regained {high}"
        case "DATA_LOST":
            kept = f"[{row['min_offset']}, {end}]"
            return f"commit offset {committed} lies outside what the queue keeps, {kept}"
    return f"no offset was ever committed in {seconds} s while messages up to {end} wait"


def _is_ahead(row: Row) -> bool:
    """Has the client finished more than it has reported?"""
    reached, committed = row["reached"], row["committed_to"]
    return reached is not None and (committed is None or reached > committed)


def _usual(row: Row) -> str:
    """On what the length of the stand rests, where the client tells nothing."""
    usual_ms = row["commit_cadence_ms"]
    if row["is_told"] or usual_ms is None or usual_ms * MS_US * CADENCES < row["patience_us"]:
        return ""
    return f"; usually it is reported each {usual_ms // 1000} s"


def _slow(row: Row) -> str:
    behind, growth = messages(row["open"]), row["growth"]
    if growth is not None and growth > 0:
        return (
            f"{behind} behind, and falling behind by {rate(growth)}, {growth} messages an hour; "
            f"{deleted_unread(row['retained'], growth)}"
        )
    late = ""
    if row["open_since_us"] is not None and row["open_since_us"] != NEVER:
        late = f", the first of them for {duration((row['tick_us'] - row['open_since_us']) / 1000)}"
    if growth == 0:
        return f"{behind} wait{late}; the group neither falls behind nor gains"
    reached = number(row["reached"])
    return f"messages are finished up to {reached}, yet what waits only grew, to {behind}{late}"


def _retained_until(row: Row) -> int | None:
    """When retention reaches what waits, µs since 1970."""
    if row["retained"] is None or not row["growth"] or row["growth"] <= 0:
        return None
    left_s = max(0, row["retained"]) * 3600 // row["growth"]
    return int(row["tick_us"] + left_s * SECOND_US)


def _who(row: Row) -> str:
    match row["kind"]:
        case "DEAD_CONSUMER":
            last = "" if row["client_id"] is None else f", last {_last_puller(row)}"
            return f"; the group has no member{last}"
        case "DEAD_QUEUE":
            return f"; nobody pulls, last {_last_puller(row)}"
        case "BLOCKED_ORDERLY":
            return f"; the queue is locked by its orderly reader {row['client_id'] or ''}".rstrip()
    return ""


def _last_puller(row: Row) -> str:
    last_us = row["last_pull_us"]
    when = "" if last_us is None else f" at {clock(last_us)}"
    return f"{row['client_id'] or 'nobody'}{when}"


def _head(row: Row) -> str:
    if row["kind"] not in _HEAD_KINDS:
        return ""
    name = row["head_message_id"]
    if name is None and row["head_offset"] is None:
        return ""
    message = f"message {name}" if name is not None else f"the message at {row['head_offset']}"
    since_us = row["head_since_us"]
    where = " is at the head" if since_us is None else f" is in a listener since {clock(since_us)}"
    return f"; {message}{where}"


MART = mart(
    STALLED_WINDOWS,
    stalled_windows,
    reads=(JUDGED_QUEUES, TICKS),
    carries={"windows": WINDOWS},
)
