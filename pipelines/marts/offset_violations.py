"""Records accepted offset reports that violate an offset rule, with any known explanation.

A violation may have no such fact.

Place in the walk: consume_offsets, redeliveries, rebalance_events and lifecycle → gold
offset_violations, which expectations assert on and the stall rules take their falls from. Carried:
when each queue was last replayed and changed hands, who reported it last, when each life of a
broker lost something, and when topics were made again, as long as it may account for anything.

Laws: MONOTONIC (an offset never falls), AT_MOST_MAX (never beyond the queue's end), AT_LEAST_MIN
(never before its first kept message). Invariant: a cause is only ever a fact reported before the
violation, and a hand-over only the queue's own; what happened before the end of a topic or group
accounts for nothing of its next life. Absent on purpose: forgiveness. An explained violation is a
row like any other, with `explained` true.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.base.settings import MINUTE_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import BOOLEAN, LONG, QUEUE_AT, STAMP, STRING, rows_as_declared
from pipelines.marts.keys import QUEUE_KEY, are_among, newest_of_each, recent
from pipelines.marts.lifecycle_events import (
    GONE,
    MADE_AGAIN,
    broker_died,
    is_of_another_life,
    log_cut,
    offsets_lost,
    without_ended,
)
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.marts.violation_facts import FALLS, MOVE_KEPT_US, MOVES, WRITERS, Moves, Writers
from pipelines.staging.facts import is_one_of

OFFSET_VIOLATIONS: Final = GoldTable(
    "offset_violations",
    "accepted offset report that broke an offset law",
    (
        *QUEUE_AT,
        must("law", STRING, "MONOTONIC, AT_MOST_MAX or AT_LEAST_MIN"),
        must("offset", LONG, "offset reported"),
        Column("previous_offset", LONG, "offset stored before"),
        Column("min_offset", LONG, "first message that is stored"),
        Column("max_offset", LONG, "next offset to be written"),
        must("delta", LONG, "by how many messages the law is broken"),
        must(
            "cause",
            STRING,
            "RESET, BROKER_RESTART, EARLIER_LIFE (the offset, or the one before it, is of the "
            "topic's life before this one), REPLAY, HAND_OVER, TWO_WRITERS (clients that take "
            "turns, or two processes of one client id) or UNEXPLAINED",
        ),
        must("explained", BOOLEAN, "does another fact account for it?"),
        Column("path", STRING, "commit path"),
        Column("client_id", STRING, "who reported"),
        *STAMP,
        Column(
            "other_client_id",
            STRING,
            "who had reported before, within a minute: of TWO_WRITERS the other one; null when "
            "nobody had, or not known",
        ),
    ),
    ("emitter", "seq", "law"),
)

CAUSE_SPAN_US: Final = MINUTE_US
"""A restart that cost the broker something, or a replay, accounts for violations this long."""
EARLIER_LIFE: Final = "EARLIER_LIFE"
LIFE_SPAN_US: Final = 60 * MINUTE_US
"""So long after its topic was made again an offset beyond the end is taken for one of the life
before: a client that was paused reports what it remembers.
"""
UNACCOUNTED: Final = ("TWO_WRITERS", "UNEXPLAINED")
"""Causes that no other fact accounts for."""


@dataclass(frozen=True, slots=True)
class Excuse:
    """A kind of fact that accounts for violations for a while."""

    key: tuple[str, ...]
    """The columns that say whose violations they are."""
    span_us: int = CAUSE_SPAN_US

    @property
    def schema(self) -> pa.Schema:
        """The last of each key."""
        kinds = {"queue_id": pa.int32(), "broker_epoch": pa.int64()}
        named = [(name, kinds.get(name, KEY_TEXT)) for name in self.key]
        return pa.schema([*named, ("seq", pa.int64()), ("event_us", pa.int64())])


EXCUSES: Final[Mapping[str, Excuse]] = {
    "replays": Excuse(QUEUE_KEY),
    "losses": Excuse(("emitter", "broker_epoch")),
    "lives": Excuse(("emitter", "topic"), LIFE_SPAN_US),
}


def offset_violations(given: Given) -> Made:
    """One row per accepted offset report and law it broke."""
    facts, state = given.facts, given.state
    reports, lifecycle = facts["consume_offsets"], facts["lifecycle"]
    reports = reports.filter(reports["accepted"])
    is_loss = pc.or_(pc.or_(broker_died(lifecycle), offsets_lost(lifecycle)), log_cut(lifecycle))
    reported = {
        "replays": facts["redeliveries"],
        "losses": lifecycle.filter(is_loss),
        "lives": lifecycle.filter(is_one_of(lifecycle["kind"], MADE_AGAIN)),
    }
    ends = lifecycle.filter(is_one_of(lifecycle["kind"], *GONE)).to_pylist()
    new = {
        name: reported[name].select(excuse.schema.names).cast(excuse.schema)
        for name, excuse in EXCUSES.items()
    }
    known = {name: pa.concat_tables([state[name], new[name]]) for name in EXCUSES}
    broken = reports.filter(_is_broken(reports))
    accounts = _Accounts(
        excuses={name: _Facts(rows, EXCUSES[name], broken, ends) for name, rows in known.items()},
        moves=Moves(state["moves"], facts["rebalance_events"], ends),
        writers=Writers(state["writers"], state["falls"], reports, broken, ends=ends),
    )
    rows: list[dict[str, Any]] = []
    for report in broken.to_pylist():
        cause, other = accounts.cause(report)
        rows.extend(
            _violation(report, law, delta, cause=cause, other=other)
            for law, delta in _broken_laws(report)
        )
    carried = {}
    for name, excuse in EXCUSES.items():
        last = newest_of_each(state[name], new[name], excuse.key)
        if last.num_rows:
            last = recent(last, _moments(reports, last), excuse.span_us)
            carried[name] = without_ended(last, ends) if excuse.key == QUEUE_KEY else last
    if reports.num_rows or ends:
        carried["writers"], carried["falls"] = accounts.writers.carried()
    moves = accounts.moves.carried()
    if moves.num_rows or state["moves"].num_rows:
        carried["moves"] = recent(moves, _moments(reports, moves), MOVE_KEPT_US)
    return Made(rows_as_declared(rows, OFFSET_VIOLATIONS), carried)


def _moments(*tables: pa.Table) -> pa.Table:
    """When which emitter reported something."""
    kinds = pa.schema([("emitter", KEY_TEXT), ("event_us", pa.int64())])
    return pa.concat_tables([rows.select(kinds.names).cast(kinds) for rows in tables])


def _is_broken(reports: pa.Table) -> pa.ChunkedArray:
    offset = reports["offset"]
    breaks = [
        pc.less(offset, reports["previous_offset"]),
        pc.greater(offset, reports["max_offset"]),
        pc.less(offset, reports["min_offset"]),
    ]
    any_law = pc.fill_null(breaks[0], False)
    for law in breaks[1:]:
        any_law = pc.or_(any_law, pc.fill_null(law, False))
    return any_law


def _broken_laws(report: Mapping[str, Any]) -> list[tuple[str, int]]:
    """The laws that a report breaks, and by how many messages."""
    offset = report["offset"]
    bounds = {
        "MONOTONIC": (offset, report["previous_offset"]),
        "AT_MOST_MAX": (report["max_offset"], offset),
        "AT_LEAST_MIN": (offset, report["min_offset"]),
    }
    return [
        (law, high - low)
        for law, (low, high) in bounds.items()
        if low is not None and high is not None and low < high
    ]


class _Facts:
    """Facts of one kind that may account for violations, by key, in the order of reports."""

    def __init__(
        self, facts: pa.Table, excuse: Excuse, broken: pa.Table, ends: Sequence[Mapping[str, Any]]
    ) -> None:
        self._excuse = excuse
        self._ends = ends if excuse.key == QUEUE_KEY else ()
        self._of: defaultdict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
        if not broken.num_rows:
            return
        for fact in facts.filter(are_among(facts, broken, excuse.key)).to_pylist():
            self._of[self._key(fact)].append((fact["seq"], fact["event_us"]))

    def account_for(self, report: Mapping[str, Any]) -> bool:
        """Was the last one before the report recent?"""
        earlier = [one for one in self._of.get(self._key(report), ()) if one[0] < report["seq"]]
        if not earlier or is_of_another_life(earlier[-1][0], report, self._ends):
            return False
        return bool(report["event_us"] - earlier[-1][1] <= self._excuse.span_us)

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self._excuse.key)


@dataclass(frozen=True, slots=True)
class _Accounts:
    """All that may account for a violation."""

    excuses: Mapping[str, _Facts]
    moves: Moves
    writers: Writers

    def cause(self, report: Mapping[str, Any]) -> tuple[str, str | None]:
        """What accounts for the report, and the client whose report stood before it.

        Two writers come before a replay: pulls that go back in turn are what they look like from
        the other side.
        """
        writer = self.writers.before(report)
        other = None if writer is None else writer["client_id"]
        return self._cause(report, writer), other

    def _cause(self, report: Mapping[str, Any], writer: Mapping[str, Any] | None) -> str:
        if report["path"] == "RESET":
            return "RESET"
        if report["path"] == "RESTORE" or self.excuses["losses"].account_for(report):
            return "BROKER_RESTART"
        if _is_beyond(report) and self.excuses["lives"].account_for(report):
            return EARLIER_LIFE
        move = self.moves.before(report)
        is_hand_over = report["trigger"] == "HAND_OVER" or (
            move is not None and move.explains(report, writer=writer)
        )
        previous = report["previous_offset"]
        is_fall = previous is not None and report["offset"] < previous
        if is_fall and not is_hand_over and self.writers.take_turns(report, writer=writer):
            return "TWO_WRITERS"
        if self.excuses["replays"].account_for(report):
            return "REPLAY"
        return "HAND_OVER" if is_hand_over else "UNEXPLAINED"


def _is_beyond(report: Mapping[str, Any]) -> bool:
    """Does the offset, or the one before it, lie beyond the end of the queue?"""
    offsets = [one for one in (report["offset"], report["previous_offset"]) if one is not None]
    return report["max_offset"] is not None and max(offsets) > report["max_offset"]


def _violation(
    report: Mapping[str, Any], law: str, delta: int, *, cause: str, other: str | None
) -> dict[str, Any]:
    return {
        **report,
        "observed_us": report["event_us"],
        "law": law,
        "delta": delta,
        "cause": cause,
        "explained": cause not in UNACCOUNTED,
        "other_client_id": other,
    }


MART: Final = mart(
    OFFSET_VIOLATIONS,
    offset_violations,
    reads=("consume_offsets", "redeliveries", "rebalance_events", "lifecycle"),
    carries={
        **{name: excuse.schema for name, excuse in EXCUSES.items()},
        "moves": MOVES,
        "writers": WRITERS,
        "falls": FALLS,
    },
)
