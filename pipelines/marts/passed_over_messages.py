"""What groups passed over of a topic that was made again, queue by queue.

Place in the walk: facts of a group and lifecycle → gold passed_over_messages. Carried: how far each
queue of a group is (`positions`); the same of topics that are gone (`earlier`); and queues of new
lives of which it is not known yet where the group began (`cases`).

Invariant: one row a queue of a group and new life, once it is known (or will never be known) where
it began; a group that read all of it has a row too, with 0 messages. A group that nobody knew in
the earlier life has none. No Python loop goes over queues of topics that were not made again.
Absent on purpose: what shows where a group began (`new_lives/cases`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.marts.columns import (
    BROKER,
    CLUSTER,
    EMITTER,
    GROUP,
    LONG,
    OBSERVED_AT,
    OBSERVED_DATE,
    QUEUE,
    SEQ,
    STRING,
    TIMESTAMP,
    TOPIC,
)
from pipelines.marts.declaring import rows_as_declared
from pipelines.marts.forgetting import recent
from pipelines.marts.keys import (
    QUEUE_FIELDS,
    QUEUE_KEY,
    are_among,
    is_one_of,
    overlaid,
    positions_of,
)
from pipelines.marts.life_cycles import GONE, MADE_AGAIN, concerns, without_ended
from pipelines.marts.mart import KEY_TEXT, Given, GoldTable, Made, Positions, mart
from pipelines.marts.new_lives.cases import Case, Verdict, sentence
from pipelines.settings import DAY_US

PASSED_OVER_MESSAGES: Final = GoldTable(
    "passed_over_messages",
    "queue of a group in a new life of its topic, once it is known where the group began in it",
    (
        OBSERVED_AT,
        CLUSTER,
        BROKER,
        GROUP,
        TOPIC,
        QUEUE,
        must("made_again_at", TIMESTAMP, "when the topic was made again"),
        must(
            "outcome",
            STRING,
            "READ (from its beginning on), PASSED_OVER, or UNKNOWN (nobody saw where a member "
            "that lived through it went on)",
        ),
        must("from_offset", LONG, "first offset of the new life"),
        must("to_offset", LONG, "one past the last that was passed over, or may have been"),
        Column("messages", LONG, "to_offset - from_offset; 0 when READ; null when UNKNOWN"),
        Column(
            "error_messages",
            LONG,
            "how many more it may be, as the group was seen so much further; null when it is exact "
            "or unknown",
        ),
        must("provenance", STRING, "EXACT, or OBSERVED: seen at looks, and not told"),
        must("evidence", STRING, "one sentence with the figures"),
        EMITTER,
        SEQ,
        OBSERVED_DATE,
    ),
    ("emitter", "seq", "group", "topic", "queue_id"),
)

REMEMBERED_US: Final = DAY_US
"""So long positions count after they were told, those of a topic after it was gone, and a case
after the topic was made again; then they are forgotten.
"""

_PLACE: Final = (("cluster", KEY_TEXT), ("broker", KEY_TEXT), *QUEUE_FIELDS)
_STAMP: Final = (("seq", pa.int64()), ("event_us", pa.int64()))
POSITIONS: Final = pa.schema(
    [
        *_PLACE,
        *_STAMP,
        ("committed", pa.int64()),
        ("pulled", pa.int64()),
        ("last_puller", KEY_TEXT),
        ("members", pa.int32()),
    ]
)
"""The last marks of each queue of a group."""
CASES: Final = pa.schema(
    [
        *_PLACE,
        *_STAMP,
        ("reached", pa.int64()),
        ("reader", KEY_TEXT),
        ("is_polled", pa.bool_()),
        ("made_us", pa.int64()),
        ("begin", pa.int64()),
        ("has_left", pa.bool_()),
        ("carried", pa.int64()),
        ("is_stored", pa.bool_()),
        ("end", pa.int64()),
    ]
)
"""Queues of new lives of which it is not known yet where the group began; seq and event_us are
those of the row by which the topic was made again.
"""
_TOPIC: Final = ("emitter", "topic")
_LOSSES: Final = ("LEFT", "EXPIRED", "REVOKED")

Row = Mapping[str, Any]
Key = tuple[Any, ...]


def passed_over_messages(given: Given) -> Made:
    """One row per queue of a group and new life of its topic."""
    facts, state = given.facts, given.state
    marks, lifecycle = facts["group_watermarks"], facts["lifecycle"]
    events = lifecycle.filter(is_one_of(lifecycle["kind"], *GONE, MADE_AGAIN))
    book = _Book()
    remembers = bool(state["cases"].num_rows or state["earlier"].num_rows)
    if events.num_rows or remembers:
        book.open(state, events)
        for step in _steps(facts, state["cases"], events):
            book.take(step)
    positions, touched = _positions(state["positions"], marks, lifecycle, events)
    carried = {} if positions is state["positions"] else {"positions": positions}
    if events.num_rows or remembers:
        for name, rows in book.carried().items():
            carried[name] = recent(rows, _moments(marks, lifecycle, rows), REMEMBERED_US)
    rows = rows_as_declared(book.rows, PASSED_OVER_MESSAGES)
    return Made(rows, carried, {} if touched is None else {"positions": touched})


def _positions(
    known: pa.Table, marks: pa.Table, lifecycle: pa.Table, events: pa.Table
) -> tuple[pa.Table, Positions | None]:
    """The last marks of each queue, and which of them are new; None: rows have moved."""
    new = marks.select(POSITIONS.names).cast(POSITIONS)
    positions, touched = known, None
    if new.num_rows:
        places, _ = positions_of(known, new, QUEUE_KEY)
        positions, touched = overlaid(known, places, new), np.unique(places)
    ends = events.filter(is_one_of(events["kind"], *GONE)).to_pylist()
    if ends:
        positions, touched = without_ended(positions, ends), None
    if pc.any(is_one_of(lifecycle["kind"], "SNAPSHOT")).as_py() and positions.num_rows:
        # What is there is told in each snapshot.
        moments = _moments(positions, lifecycle)
        positions, touched = recent(positions, moments, REMEMBERED_US), None
    return positions, touched


def _moments(*tables: pa.Table) -> pa.Table:
    kinds = pa.schema([("emitter", KEY_TEXT), ("event_us", pa.int64())])
    return pa.concat_tables([rows.select(kinds.names).cast(kinds) for rows in tables])


def _steps(facts: Mapping[str, pa.Table], cases: pa.Table, events: pa.Table) -> Iterator[Row]:
    """All rows that concern cases, or topics that are gone or made again, in order; `table` says
    what each is.
    """
    found = [{**row, "table": "lifecycle"} for row in events.to_pylist()]
    topics = events.filter(pc.is_valid(events["topic"]))
    for table in ("group_watermarks", "consume_offsets", "offset_answers", "client_windows"):
        rows = facts[table]
        is_wanted = pc.or_(are_among(rows, cases, QUEUE_KEY), are_among(rows, topics, _TOPIC))
        found += [{**row, "table": table} for row in rows.filter(is_wanted).to_pylist()]
    members = facts["rebalance_events"]
    members = members.filter(is_one_of(members["kind"], *_LOSSES))
    found += [{**row, "table": "rebalance_events"} for row in members.to_pylist()]
    yield from sorted(found, key=lambda row: (row["emitter"], row["seq"]))


@dataclass(slots=True)
class _Book:
    """Positions of topics that are gone or made again, and the cases of new lives."""

    positions: dict[Key, Row] = field(default_factory=dict)
    earlier: dict[Key, Row] = field(default_factory=dict)
    cases: dict[Key, tuple[Row, Case]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def open(self, state: Mapping[str, pa.Table], events: pa.Table) -> None:
        """What is known of the topics that events concern, and of all cases."""
        known, topics = state["positions"], events.filter(pc.is_valid(events["topic"]))
        for row in known.filter(are_among(known, topics, _TOPIC)).to_pylist():
            self.positions[_key(row)] = row
        self.earlier = {_key(row): row for row in state["earlier"].to_pylist()}
        for row in state["cases"].to_pylist():
            told = {one.name: row[one.name] for one in fields(Case)}
            self.cases[_key(row)] = row, Case(**told)

    def take(self, step: Row) -> None:
        """One row."""
        if step["table"] == "lifecycle":
            self._live(step)
        elif step["table"] == "rebalance_events":
            self._leave(step)
        else:
            self._judge(step)

    def carried(self) -> dict[str, pa.Table]:
        """What is remembered."""
        cases = [
            {**place, **{one.name: getattr(case, one.name) for one in fields(Case)}}
            for place, case in self.cases.values()
        ]
        return {
            "earlier": pa.Table.from_pylist(list(self.earlier.values()), schema=POSITIONS),
            "cases": pa.Table.from_pylist(cases, schema=CASES),
        }

    def _live(self, event: Row) -> None:
        """A topic, some queues or a group are gone, or a topic is there again."""
        if event["kind"] == MADE_AGAIN:
            for key in [key for key in self.earlier if _is_of_topic(key, event)]:
                self._begin(key, self.earlier.pop(key), event)
            return
        for key in [key for key in self.cases if _is_ended(key, event)]:
            del self.cases[key]
        for key in [key for key in self.positions if _is_ended(key, event)]:
            row = self.positions.pop(key)
            if event["kind"] == "TOPIC_GONE" and not _is_forgotten(row["event_us"], event):
                self.earlier[key] = {**row, "event_us": event["event_us"]}
        if event["kind"] == "GROUP_GONE":
            for key in [key for key in self.earlier if _is_ended(key, event)]:
                del self.earlier[key]

    def _begin(self, key: Key, position: Row, event: Row) -> None:
        marks = (position["committed"], position["pulled"])
        reached = max((mark for mark in marks if mark is not None), default=0)
        if reached == 0 or _is_forgotten(position["event_us"], event):
            return
        case = Case(
            reached=reached,
            reader=None if position["members"] == 0 else position["last_puller"],
            is_polled=event["time_from_us"] is not None,
            made_us=event["event_us"],
        )
        names = (name for name, _ in _PLACE)
        place = {name: position[name] for name in names}
        self.cases[key] = {**place, "seq": event["seq"], "event_us": event["event_us"]}, case

    def _leave(self, event: Row) -> None:
        """A member is no reader any more: of what it gave away, or of all."""
        given_away = {(queue["topic"], queue["queue_id"]) for queue in event["queues"] or ()}
        for key, (_, case) in self.cases.items():
            if key[:2] == (event["emitter"], event["group"]) and (
                event["kind"] != "REVOKED" or key[2:] in given_away
            ):
                case.left(event["client_id"], event["event_us"])
        for key, row in self.earlier.items():
            if key[:2] == (event["emitter"], event["group"]) and (
                event["kind"] != "REVOKED" and row["last_puller"] == event["client_id"]
            ):
                self.earlier[key] = {**row, "last_puller": None}

    def _judge(self, step: Row) -> None:
        """A row of one queue of a group."""
        key, table = _key(step), step["table"]
        if table == "group_watermarks":
            self.positions[key] = {name: step[name] for name in POSITIONS.names}
        if key not in self.cases:
            return
        place, case = self.cases[key]
        if _is_forgotten(case.made_us, step):
            del self.cases[key]
            return
        verdict: Verdict | None = None
        if table == "group_watermarks":
            verdict = case.marked(step)
        elif table == "offset_answers":
            verdict = case.answered(step)
        elif table == "client_windows":
            verdict = None if step["dropped"] else case.held(step)
        elif step["accepted"]:
            verdict = case.placed(step)
        elif step["path"] == "OBSERVED":
            verdict = case.lived(step)
        if verdict is not None:
            del self.cases[key]
            self.rows.append(_row(place, case, step, verdict))


def _key(row: Row) -> Key:
    return tuple(row[name] for name in QUEUE_KEY)


def _is_of_topic(key: Key, event: Row) -> bool:
    return bool((key[0], key[2]) == (event["emitter"], event["topic"]))


def _is_ended(key: Key, event: Row) -> bool:
    return bool(key[0] == event["emitter"]) and concerns(event, *key[1:])


def _is_forgotten(since_us: int, now: Row) -> bool:
    return bool(now["event_us"] - since_us > REMEMBERED_US)


def _row(place: Row, case: Case, step: Row, verdict: Verdict) -> dict[str, Any]:
    return {
        **{name: place[name] for name, _ in _PLACE},
        "observed_us": step["event_us"],
        "seq": step["seq"],
        "made_again_at": case.made_us,
        **{name: getattr(verdict, name) for name in _FIGURES},
        "provenance": "OBSERVED" if case.is_polled else "EXACT",
        "evidence": sentence(place, case.made_us, verdict),
    }


_FIGURES: Final = ("outcome", "from_offset", "to_offset", "messages", "error_messages")

MART: Final = mart(
    PASSED_OVER_MESSAGES,
    passed_over_messages,
    reads=(
        "group_watermarks",
        "consume_offsets",
        "offset_answers",
        "client_windows",
        "rebalance_events",
        "lifecycle",
    ),
    carries={"positions": POSITIONS, "earlier": POSITIONS, "cases": CASES},
)
