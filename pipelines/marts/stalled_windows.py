"""Records, as revisions, the intervals in which a queue's consumption was not OK.

A revision opens or closes a window, changes its rule, kind or head, or says that it is unknown.

Place in the walk: judged rows in trouble, and ticks at which nothing is known of an emitter → gold
stalled_windows. Carried: the open windows. Invariant: the revisions of one window_id are numbered
without gaps from 1; the last of a CLOSED window has the rule and kind shown for longest. It is
closed only by what is seen of its queue. Absent on purpose: updates of figures alone, which are
consumer_lag's.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.base.settings import MS_US, SECOND_US, Evaluation
from pipelines.base.time_units import moment_at
from pipelines.marts.columns import (
    LONG,
    QUEUE_INTERVAL,
    STAMP,
    STRING,
    TIMESTAMP,
    as_declared,
    window_id,
)
from pipelines.marts.judging.judged_rows import HEAD
from pipelines.marts.judging.packed import NEVER
from pipelines.marts.judging.progress import CADENCES
from pipelines.marts.judging.queues import NAME as JUDGED_QUEUES
from pipelines.marts.judging.ticks import NAME as TICKS
from pipelines.marts.judging.ticks import WORDS
from pipelines.marts.keys import QUEUE_KEY
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.sentences import stalls as sentences
from pipelines.sentences.figures import whole

STALLED_WINDOWS: Final = GoldTable(
    "stalled_windows",
    "revision of an interval in which a queue's consumption was not OK",
    (
        *QUEUE_INTERVAL,
        must("rule", STRING, "NO_OFFSET, DATA_LOST, STOPPED, REWOUND, STALLED, SLOW or PAUSED"),
        must(
            "kind",
            STRING,
            "FROZEN_HEAD, DEAD_QUEUE, DEAD_CONSUMER, BLOCKED_ORDERLY, PAUSED or UNDETERMINED: its "
            "client does not say what it holds. With the rule, as it is shown now; of a CLOSED "
            "window, as it was shown for longest",
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
        Column(
            "head_message_id", STRING, "message at the head of that client's window, when reported"
        ),
        Column("head_since", TIMESTAMP, "since when it is in a listener"),
        Column("stack", STRING, "stack of that listener, when reported"),
        must("evidence", STRING, "the headline, the figures that fired the rule, and what to do"),
        *STAMP,
        Column(
            "head_offset",
            LONG,
            "offset of the message that all others wait for: the head of the client's window, when "
            "reported, else the one at the consume offset; null when the kind is not determined",
        ),
        Column(
            "stands_since",
            TIMESTAMP,
            "since when it stands, by its kind: the head in its listener, or the last pull of a "
            "queue that nobody pulls; null when not known",
        ),
        Column(
            "unknown_reason",
            STRING,
            "why nothing is known of the queue from observed_at on: SPOOL_LOSS, EMITTER_SILENT, "
            "LOOKS_MISSED or CLOCK_STEPPED; null when it is known",
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
        Column("headline", STRING, "what is wrong, where and since when, in one sentence"),
    ),
    ("window_id", "revision"),
    revised=True,
    on_ticks="true",
)

HELD: Final = pa.struct([("rule", pa.string()), ("kind", pa.string()), ("held_us", pa.int64())])
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
        ("since_us", pa.int64()),
        ("held", pa.list_(HELD)),
        ("is_falling", pa.bool_()),
        ("stands", pa.bool_()),
    ]
)
"""Open windows, by the number of their queue. since_us: the tick since which it is of its rule and
kind; held: for how long it was of those before, a few at most. is_falling: was it certain that it
falls behind?
"""

_HEAD: Final = HEAD
_HEAD_KINDS: Final = ("FROZEN_HEAD", "BLOCKED_ORDERLY")
_PULL_KINDS: Final = ("DEAD_QUEUE", "DEAD_CONSUMER", "PAUSED")
"""Kinds of a queue that nobody pulls."""
_PLACE: Final = ("cluster", "broker", "emitter", "group", "topic", "queue_id")
CLOCKS_US: Final = 60 * SECOND_US
"""Clocks of a client and its broker may differ by so much, and a time of either is still shown."""
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
    revisions = []
    events = [*unknown.to_pylist(), *troubled.to_pylist()]
    for row in sorted(events, key=lambda one: one["tick_us"]):
        if "number" not in row:
            revisions += _unknown(windows, row, given.evaluation)
            continue
        revision = _revision(windows, row, given.evaluation)
        if revision is not None:
            revisions.append(revision)
    left = [windows[one] for one in sorted(windows)]
    return Made(_as_rows(revisions), {"windows": pa.Table.from_pylist(left, WINDOWS)})


def _unknown(windows: dict[int, Row], tick: Row, evaluation: Evaluation) -> list[Row]:
    """What is reported on an emitter's open windows when nothing is known of it any more."""
    revisions = []
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
        made["headline"] = made["evidence"] = sentences.unknown(made, WORDS[why])
        revisions.append(made)
    return revisions


def _revision(windows: dict[int, Row], row: Row, evaluation: Evaluation) -> Row | None:
    """The revision that a judged row makes, if any; opens, changes or closes the window."""
    window = windows.get(row["number"])
    if not row["is_bad"]:
        if window is None:
            return None
        del windows[row["number"]]
        longest = _longest(_held_until(window, row["tick_us"]))
        closed = {**window, "revision": window["revision"] + 1, **longest}
        return _row_of(closed, row, evaluation, "CLOSED")
    seen = {**(window or {}), "rule": row["rule"], "kind": row["kind"]}
    if window is None:
        seen = {**dict.fromkeys(WINDOWS.names), **seen, "number": row["number"], "revision": 0}
        seen["opened_us"] = row["tick_us"] - evaluation.slide_us
        parts = [row[name] for name in QUEUE_KEY]
        seen["window_id"] = window_id(STALLED_WINDOWS.name, *parts, seen["opened_us"])
    if window is None or not _is_as_before(window, seen):
        seen["held"] = [] if window is None else _held_until(window, row["tick_us"])
        seen["since_us"] = row["tick_us"]
    has_head = row["kind"] in _HEAD_KINDS
    if has_head and (row["head_message_id"] is not None or row["head_offset"] is not None):
        is_same = all(row[name] == seen[name] for name in ("head_message_id", "head_offset"))
        stack = row["stack"] or (seen["stack"] if is_same else None)
        since_us = _earliest(seen, row) if is_same else row["head_since_us"]
        seen |= {name: row[name] for name in _HEAD} | {"stack": stack, "head_since_us": since_us}
    seen["client_id"] = _client(row) or seen["client_id"]
    seen["stands"] = row["stands"]
    seen["is_falling"] = row["growth"] is not None and row["growth"] > 0
    seen |= {name: row[name] for name in (*_PLACE, "seq")} | {"unknown_reason": None}
    windows[row["number"]] = seen
    if window is not None and not _is_other(window, seen, has_head=has_head):
        return None
    seen["revision"] += 1
    return _row_of(seen, row, evaluation, "OPEN")


def _earliest(window: Row, row: Row) -> int | None:
    """Since when a head is in its listener, which was seen there before: a broker that was started
    again asks anew and knows no earlier moment. A moment that cannot be counts for nothing.
    """
    since_us: int | None = row["head_since_us"]
    before: int | None = window["head_since_us"]
    if before is None or since_us is None or _client(row) != window["client_id"]:
        return since_us
    return min(before, since_us) if _can_be(before, row) else since_us


def _is_other(window: Row, seen: Row, *, has_head: bool) -> bool:
    """Does it show another rule, kind, course or head, or more of the head? Does it move again, or
    stand again? Is it known again?
    """
    if not _is_as_before(window, seen):
        return True
    if window["unknown_reason"] is not None:
        return True
    # An earlier version did not carry it.
    was_falling = window["is_falling"]
    if seen["rule"] == "SLOW" and was_falling is not None and was_falling != seen["is_falling"]:
        return True
    if sentences.moves_again(window) != sentences.moves_again(seen):
        return True
    return has_head and any(window[name] != seen[name] for name in _HEAD)


def _is_as_before(window: Row, seen: Row) -> bool:
    return (window["rule"], window["kind"]) == (seen["rule"], seen["kind"])


def _held_until(window: Row, tick_us: int) -> list[Row]:
    """For how long a window was of each rule and kind, up to a tick, in the order of their last
    beginnings.
    """
    now = {"rule": window["rule"], "kind": window["kind"]}
    before = window["held"] or []
    since_us = window["opened_us"] if window["since_us"] is None else window["since_us"]
    same = [one["held_us"] for one in before if _is_as_before(one, now)]
    others = [one for one in before if not _is_as_before(one, now)]
    return [*others, {**now, "held_us": tick_us - since_us + sum(same)}]


def _longest(held: list[Row]) -> Row:
    """The rule and kind that a window is remembered by: those it was of for longest, and of equal
    ones the last.
    """
    longest = max(reversed(held), key=lambda one: one["held_us"])
    return {"rule": longest["rule"], "kind": longest["kind"]}


def _client(row: Row) -> str | None:
    """The client that holds the head, or is paused, by its own account; else the last puller."""
    is_own = row["kind"] in (*_HEAD_KINDS, "PAUSED")
    client: str | None = (row["sampled_client"] if is_own else None) or row["client_id"]
    return client


def _stands_since(row: Row) -> int | None:
    if row["kind"] in _HEAD_KINDS:
        since: int | None = row["head_since_us"]
        return since
    last_pull: int | None = row["last_pull_us"]
    return last_pull if row["kind"] in _PULL_KINDS else None


def _row_of(window: Row, row: Row, evaluation: Evaluation, state: str) -> Row:
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
    if not _can_be(head["head_since_us"], row):
        head["head_since_us"] = None
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
        "rule_now": row["rule"],
        "time_lag_ms": time_lag_us // MS_US if seen and time_lag_us is not None else None,
        "client_id": _client(row) or window["client_id"],
        "unknown_reason": None,
    }
    made["stands_since"] = _stands_since(made)
    return made | _in_words(made)


def _can_be(head_since_us: int | None, row: Row) -> bool:
    """Can a head have gone to its listener then? A client says it by its own clock, which may be
    wrong by hours: not before its message was stored, and not after now.
    """
    if head_since_us is None:
        return True
    stored_us = _first_stored_us(row)
    is_stored = stored_us is None or head_since_us >= stored_us - CLOCKS_US
    return bool(is_stored and head_since_us <= row["tick_us"] + CLOCKS_US)


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


def _as_rows(rows: list[Row]) -> pa.Table:
    names = [name for name in rows[0] if name in _TYPES] if rows else list(_TYPES)
    columns = {name: pa.array([row[name] for row in rows], _TYPES[name]) for name in names}
    return as_declared(columns, STALLED_WINDOWS)


_TYPES: Final = {
    column.name: {"STRING": pa.string(), "INT": pa.int32()}.get(column.type.name, pa.int64())
    for column in STALLED_WINDOWS.columns
    if column.name not in ("observed_at", "valid_from", "observed_date")
} | {"observed_us": pa.int64()}
"""Columns as they are made; as_declared turns moments into timestamps."""


def _retained_until(row: Row) -> int | None:
    """When retention reaches what waits, µs since 1970."""
    if row["retained"] is None or not row["growth"] or row["growth"] <= 0:
        return None
    left_s = max(0, row["retained"]) * 3600 // row["growth"]
    return int(row["tick_us"] + left_s * SECOND_US)


def _in_words(row: Row) -> Row:
    """The columns that say it in sentences."""
    said = {
        **row,
        "head_since": _moment(row["head_since_us"]),
        "stands_since": _moment(row["stands_since"]),
        "is_silent": not (row["is_told"] and row["held_count"]),
        "waited_ms": _waited_ms(row),
        "usual_report_ms": _usual_report_ms(row),
    }
    if row["state"] != "CLOSED":
        return {"headline": whole(sentences.headline(said)), "evidence": sentences.evidence(said)}
    if not row["is_evaluated"]:
        text = sentences.gone(said)
    else:
        text = sentences.over(said, catches_up=row["rule_now"] == "CATCHING_UP")
    return {"headline": text, "evidence": text}


def _first_stored_us(row: Row) -> int | None:
    """When the first message that is not finished was stored."""
    stored_us: int | None = row["open_since_us"]
    return None if stored_us == NEVER else stored_us


def _waited_ms(row: Row) -> int | None:
    """How long the first message that is not finished has waited."""
    stored_us = _first_stored_us(row)
    return None if stored_us is None else int(row["tick_us"] - stored_us) // MS_US


def _usual_report_ms(row: Row) -> int | None:
    """How often offsets are usually reported, where the length of the stand rests on it."""
    usual_ms: int | None = row["commit_cadence_ms"]
    if row["is_told"] or usual_ms is None or usual_ms * MS_US * CADENCES < row["patience_us"]:
        return None
    return usual_ms


def _moment(moment_us: int | None) -> datetime | None:
    return None if moment_us is None else moment_at(moment_us)


MART = mart(
    STALLED_WINDOWS,
    stalled_windows,
    reads=(JUDGED_QUEUES, TICKS),
    carries={"windows": WINDOWS},
)
