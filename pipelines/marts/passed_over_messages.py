"""Records the messages that a group skipped in each queue of a recreated topic.

Place in the walk: facts of a group and lifecycle → gold passed_over_messages. Carried: how far each
queue of a group is by its marks (`positions`), and by accepted reports that no mark follows yet
(`commits`); the same of topics that are gone (`earlier`); and queues of new lives, with what shows
where the group began (`new_life_cases`).

Invariant: one row a queue of a group and new life, once it is known (or will never be known) where
it began; a group that read all of it has a row too, with 0 messages. One more follows each time a
broker shows that a member skips some. A group that nobody knew in the earlier life has none. No
Python loop goes over queues of topics that were not made again.
Absent on purpose: what shows where a group began (`new_life_cases`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.base.settings import DAY_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import LONG, QUEUE_AT, STAMP, STRING, TIMESTAMP, rows_as_declared
from pipelines.marts.judging.queue_numbers import NAME as QUEUE_NUMBERS
from pipelines.marts.judging.queue_numbers import own_numbers
from pipelines.marts.keys import (
    QUEUE_FIELDS,
    QUEUE_KEY,
    are_among,
    newest_of_each,
    overlaid,
    positions_of,
    recent,
)
from pipelines.marts.lifecycle_events import GONE, MADE_AGAIN, concerns, without_ended
from pipelines.marts.mart import Given, GoldTable, Made, Positions, mart
from pipelines.marts.new_life_cases import PLACED, PULLED, Case, Verdict
from pipelines.sentences.new_lives import evidence
from pipelines.staging.facts import is_one_of

PASSED_OVER_MESSAGES: Final = GoldTable(
    "passed_over_messages",
    "queue of a group in a new life of its topic, once it is known where the group began in it, "
    "and each time it skips messages later",
    (
        *QUEUE_AT,
        must("made_again_at", TIMESTAMP, "when the topic was made again"),
        must(
            "outcome",
            STRING,
            "READ (from its beginning on), PASSED_OVER, SET (somebody set the group's offset), or "
            "UNKNOWN (nobody saw where a member that lived through it went on)",
        ),
        must("from_offset", LONG, "first offset of the new life, or of what was skipped later"),
        must("to_offset", LONG, "one past the last that was passed over, or may have been"),
        Column("messages", LONG, "to_offset - from_offset; 0 when READ; null when UNKNOWN or SET"),
        Column(
            "error_messages",
            LONG,
            "how many more it may be, as the group was seen so much further; null when it is exact "
            "or unknown",
        ),
        must("provenance", STRING, "EXACT, or OBSERVED: seen at polls, not reported"),
        must("evidence", STRING, "one sentence with the figures"),
        *STAMP,
    ),
    ("emitter", "seq", "group", "topic", "queue_id"),
)

REMEMBERED_US: Final = DAY_US
"""So long positions count after they were reported, those of a topic after it was gone, and a case
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
        ("is_placed", pa.bool_()),
        ("is_settled", pa.bool_()),
    ]
)
"""Queues of new lives, those of observed brokers until it is known where the group began; seq and
event_us are those of the row by which the topic was made again.
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
    shown, touched = _last_shown(state["positions"], marks, facts[QUEUE_NUMBERS])
    positions = _left(shown, lifecycle, events)
    touched = touched if positions is shown else None
    carried = {} if positions is state["positions"] else {"positions": positions}
    commits = _commits(state["commits"], facts["consume_offsets"], positions, events)
    if commits is not state["commits"]:
        carried["commits"] = commits
    if events.num_rows or remembers:
        for name, rows in book.carried().items():
            carried[name] = recent(rows, _moments(marks, lifecycle, rows), REMEMBERED_US)
    rows = rows_as_declared(book.rows, PASSED_OVER_MESSAGES)
    return Made(rows, carried, {} if touched is None else {"positions": touched})


def _last_shown(
    known: pa.Table, marks: pa.Table, numbered: pa.Table
) -> tuple[pa.Table, Positions | None]:
    """The last marks of each queue, and which of them are new; None: none is."""
    if not marks.num_rows:
        return known, None
    places, _ = own_numbers(known, marks, numbered)
    last = np.full(int(places.max()) + 1, -1)
    last[places] = np.arange(len(places))  # Of several assignments to one place the last stays.
    touched = np.flatnonzero(last >= 0)
    new = marks.select(POSITIONS.names).take(pa.array(last[touched])).cast(POSITIONS)
    return overlaid(known, touched, new), touched


def _left(positions: pa.Table, lifecycle: pa.Table, events: pa.Table) -> pa.Table:
    """The positions without those of queues that are gone, and those that are too old."""
    ends = events.filter(is_one_of(events["kind"], *GONE)).to_pylist()
    if ends:
        positions = without_ended(positions, ends)
    if pc.any(is_one_of(lifecycle["kind"], "SNAPSHOT")).as_py() and positions.num_rows:
        # What is there is reported in each snapshot.
        positions = recent(positions, _moments(positions, lifecycle), REMEMBERED_US)
    return positions


def _commits(known: pa.Table, reports: pa.Table, positions: pa.Table, events: pa.Table) -> pa.Table:
    """The last accepted report of each queue that is younger than its marks."""
    is_read = pc.and_(reports["accepted"], pc.greater(reports["offset"], 0))
    reports = reports.filter(pc.and_(is_read, pc.invert(is_one_of(reports["path"], PLACED))))
    if not reports.num_rows and not known.num_rows:
        return known
    columns = {name: reports[name] for name, _ in (*_PLACE, *_STAMP)}
    columns |= {"committed": reports["offset"], "last_puller": reports["client_id"]}
    columns |= {name: pa.nulls(reports.num_rows) for name in ("pulled", "members")}
    new = pa.table(columns).select(POSITIONS.names).cast(POSITIONS)
    newest = newest_of_each(known, new, QUEUE_KEY)
    places, _ = positions_of(positions, newest, QUEUE_KEY)
    marked = np.full(positions.num_rows + newest.num_rows, -1)
    marked[: positions.num_rows] = np.asarray(positions["seq"])
    newest = newest.filter(pa.array(np.asarray(newest["seq"]) > marked[places]))
    ends = events.filter(is_one_of(events["kind"], *GONE)).to_pylist()
    newest = without_ended(newest, ends)
    return recent(newest, _moments(newest, positions), REMEMBERED_US)


def _moments(*tables: pa.Table) -> pa.Table:
    kinds = pa.schema([("emitter", KEY_TEXT), ("event_us", pa.int64())])
    return pa.concat_tables([rows.select(kinds.names).cast(kinds) for rows in tables])


def _steps(facts: Mapping[str, pa.Table], cases: pa.Table, events: pa.Table) -> Iterator[Row]:
    """All rows that concern cases, or topics that are gone or made again, in order; `table` says
    what each is.
    """
    found = [{**row, "table": "lifecycle"} for row in events.to_pylist()]
    topics = events.filter(pc.is_valid(events["topic"]))
    open_cases = cases.filter(pc.invert(pc.fill_null(cases["is_settled"], fill_value=False)))
    for table in ("group_watermarks", "consume_offsets", "offset_answers", "client_windows"):
        rows = facts[table]
        is_wanted = pc.or_(are_among(rows, open_cases, QUEUE_KEY), are_among(rows, topics, _TOPIC))
        if table == "consume_offsets":
            is_skipped = pc.and_(is_one_of(rows["path"], PULLED), are_among(rows, cases, QUEUE_KEY))
            is_wanted = pc.or_(is_wanted, is_skipped)
        found += [{**row, "table": table} for row in rows.filter(is_wanted).to_pylist()]
    members = facts["rebalance_events"]
    members = members.filter(is_one_of(members["kind"], *_LOSSES))
    found += [{**row, "table": "rebalance_events"} for row in members.to_pylist()]
    yield from sorted(found, key=lambda row: (row["emitter"], row["seq"]))


@dataclass(slots=True)
class _Book:
    """Positions of topics that are gone or made again, and the cases of new lives."""

    positions: dict[Key, Row] = field(default_factory=dict)
    commits: dict[Key, Row] = field(default_factory=dict)
    earlier: dict[Key, Row] = field(default_factory=dict)
    cases: dict[Key, tuple[Row, Case]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def open(self, state: Mapping[str, pa.Table], events: pa.Table) -> None:
        """What is known of the topics that events concern, and of all cases."""
        topics = events.filter(pc.is_valid(events["topic"]))
        for name, rows in (("positions", self.positions), ("commits", self.commits)):
            known = state[name]
            for row in known.filter(are_among(known, topics, _TOPIC)).to_pylist():
                rows[_key(row)] = row
        self.earlier = {_key(row): row for row in state["earlier"].to_pylist()}
        for row in state["cases"].to_pylist():
            values = {one.name: row[one.name] for one in fields(Case)}
            self.cases[_key(row)] = row, Case(**values)

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
        for key in dict.fromkeys((*self.positions, *self.commits, *self.cases)):
            if not _is_ended(key, event):
                continue
            row = self._last_of(key)
            is_topic = event["kind"] == "TOPIC_GONE"
            if row is not None and is_topic and not _is_forgotten(row["event_us"], event):
                self.earlier[key] = {**row, "event_us": event["event_us"]}
        if event["kind"] == "GROUP_GONE":
            for key in [key for key in self.earlier if _is_ended(key, event)]:
                del self.earlier[key]

    def _last_of(self, key: Key) -> Row | None:
        """How far the group was in a queue that is gone, which is forgotten; None: nowhere."""
        row, report = self.positions.pop(key, None), self.commits.pop(key, None)
        if row is None or (report is not None and report["seq"] > row["seq"]):
            row = _over(row, report)
        place, case = self.cases.pop(key, (None, None))
        if place is None or case is None or case.is_settled:
            return row
        # Nobody saw where it went on, so it may be where it was in the life before.
        nobody = case.reader is None and not case.has_left
        before = {name: place.get(name) for name in POSITIONS.names} | {
            "committed": case.reached,
            "last_puller": case.reader,
            "members": 0 if nobody else None,
        }
        if row is None:
            return before
        committed = max(case.reached, row["committed"] or 0)
        return {**row, "committed": committed, "last_puller": row["last_puller"] or case.reader}

    def _begin(self, key: Key, position: Row, event: Row) -> None:
        marks = (position["committed"], position["pulled"])
        reached = max((mark for mark in marks if mark is not None), default=0)
        if reached == 0 or _is_forgotten(position["event_us"], event):
            return
        reader = None if position["members"] == 0 else position["last_puller"]
        is_polled = event["time_from_us"] is not None
        case = Case(
            reached=reached,
            reader=reader,
            is_polled=is_polled,
            made_us=event["event_us"],
            # Looks may know that members are there, and of none what it reads.
            has_left=is_polled and reader is None and position["members"] != 0,
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
                self.earlier[key] = {**row, "last_puller": None, "members": 0}

    def _judge(self, step: Row) -> None:
        """A row of one queue of a group."""
        key, table = _key(step), step["table"]
        if table == "group_watermarks":
            self.positions[key] = {name: step[name] for name in POSITIONS.names}
            self.commits.pop(key, None)
        elif table == "consume_offsets" and _is_read(step):
            last = {"committed": step["offset"], "last_puller": step["client_id"]}
            self.commits[key] = {name: step.get(name) for name in POSITIONS.names} | last
        if key not in self.cases:
            return
        place, case = self.cases[key]
        if _is_forgotten(case.made_us, step):
            del self.cases[key]
            return
        verdict: Verdict | None = None
        if table == "consume_offsets" and step["path"] == PULLED:
            verdict = case.pulled(step)
        elif case.is_settled:
            return
        elif table == "group_watermarks":
            verdict = case.marked(step)
        elif table == "offset_answers":
            verdict = case.answered(step)
        elif table == "client_windows":
            verdict = None if step["dropped"] else case.held(step)
        elif step["accepted"]:
            verdict = case.placed(step)
        elif step["path"] == "OBSERVED":
            verdict = case.lived(step)
        if verdict is None:
            return
        self.rows.append(_row(place, case, step, verdict))
        case.is_settled = True
        if case.is_polled:  # Nothing more is seen of it.
            del self.cases[key]


def _is_read(report: Row) -> bool:
    """Does a report say that a group has read so far?"""
    return bool(report["accepted"] and report["offset"] > 0 and report["path"] != PLACED)


def _over(position: Row | None, report: Row | None) -> Row | None:
    """The marks of a queue with a younger report."""
    if position is None or report is None:
        return position or report
    puller = report["last_puller"] or position["last_puller"]
    return {**position, "committed": report["committed"], "last_puller": puller}


def _key(row: Row) -> Key:
    return tuple(row[name] for name in QUEUE_KEY)


def _is_of_topic(key: Key, event: Row) -> bool:
    return bool((key[0], key[2]) == (event["emitter"], event["topic"]))


def _is_ended(key: Key, event: Row) -> bool:
    return bool(key[0] == event["emitter"]) and concerns(event, *key[1:])


def _is_forgotten(since_us: int, now: Row) -> bool:
    return bool(now["event_us"] - since_us > REMEMBERED_US)


def _row(place: Row, case: Case, step: Row, verdict: Verdict) -> dict[str, Any]:
    row = {
        **{name: place[name] for name, _ in _PLACE},
        "observed_us": step["event_us"],
        "seq": step["seq"],
        "made_again_at": case.made_us,
        **{name: getattr(verdict, name) for name in _FIGURES},
        "provenance": "OBSERVED" if case.is_polled else "EXACT",
    }
    return {**row, "evidence": evidence(row, verdict.how)}


_FIGURES: Final = ("outcome", "from_offset", "to_offset", "messages", "error_messages")

MART: Final = mart(
    PASSED_OVER_MESSAGES,
    passed_over_messages,
    reads=(
        "group_watermarks",
        QUEUE_NUMBERS,
        "consume_offsets",
        "offset_answers",
        "client_windows",
        "rebalance_events",
        "lifecycle",
    ),
    carries={"positions": POSITIONS, "commits": POSITIONS, "earlier": POSITIONS, "cases": CASES},
)
