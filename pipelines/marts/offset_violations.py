"""Accepted offset reports that broke a law of offsets, each with the fact that accounts for it, if
one does.

Place in the walk: consume_offsets, redeliveries, rebalance_events and lifecycle → gold
offset_violations, which expectations assert on and the stall rules take their falls from. Carried:
when each queue was last replayed, each group last moved queues, each life of a broker last lost
something, as long as it may account for anything.

Laws: MONOTONIC (an offset never falls), AT_MOST_MAX (never beyond the queue's end), AT_LEAST_MIN
(never before its first kept message). Invariant: a cause is only ever a fact reported before the
violation. Absent on purpose: forgiveness. An explained violation is a row like any other, with
`explained` true.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.marts.columns import (
    BOOLEAN,
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
    TOPIC,
)
from pipelines.marts.declaring import rows_as_declared
from pipelines.marts.keys import (
    QUEUE_KEY,
    are_among,
    is_one_of,
    last_of_each,
    numbered,
)
from pipelines.marts.loss_events import broker_died, log_cut, offsets_lost
from pipelines.marts.mart import KEY_TEXT, Given, GoldTable, Made, mart
from pipelines.settings import SECOND_US

OFFSET_VIOLATIONS: Final = GoldTable(
    "offset_violations",
    "accepted offset report that broke an offset law",
    (
        OBSERVED_AT,
        CLUSTER,
        BROKER,
        GROUP,
        TOPIC,
        QUEUE,
        must("law", STRING, "MONOTONIC, AT_MOST_MAX or AT_LEAST_MIN"),
        must("offset", LONG, "offset reported"),
        Column("previous_offset", LONG, "offset stored before"),
        Column("min_offset", LONG, "first message kept"),
        Column("max_offset", LONG, "next offset to be written"),
        must("delta", LONG, "by how many messages the law is broken"),
        must("cause", STRING, "RESET, BROKER_RESTART, REPLAY, HAND_OVER or UNEXPLAINED"),
        must("explained", BOOLEAN, "does another fact account for it?"),
        Column("path", STRING, "commit path"),
        Column("client_id", STRING, "who reported"),
        EMITTER,
        SEQ,
        OBSERVED_DATE,
    ),
    ("emitter", "seq", "law"),
)

CAUSE_SPAN_US: Final = 60 * SECOND_US
"""A restart that cost the broker something, or a replay, accounts for violations this long."""
MOVE_SPAN_US: Final = 20 * SECOND_US
"""A queue that changed hands does for this long: both readers have reported by then."""
MOVES: Final = ("ASSIGNED", "REVOKED", "LEFT", "EXPIRED")


@dataclass(frozen=True, slots=True)
class Excuse:
    """A kind of fact that accounts for violations."""

    key: tuple[str, ...]
    """Whose violations."""
    span_us: int
    """For how long."""

    @property
    def schema(self) -> pa.Schema:
        """The last of each key."""
        kinds = {"queue_id": pa.int32(), "broker_epoch": pa.int64()}
        named = [(name, kinds.get(name, KEY_TEXT)) for name in self.key]
        return pa.schema([*named, ("seq", pa.int64()), ("event_us", pa.int64())])


EXCUSES: Final[Mapping[str, Excuse]] = {
    "replays": Excuse(QUEUE_KEY, CAUSE_SPAN_US),
    "moves": Excuse(("emitter", "group"), MOVE_SPAN_US),
    "losses": Excuse(("emitter", "broker_epoch"), CAUSE_SPAN_US),
}


def offset_violations(given: Given) -> Made:
    """One row per accepted offset report and law it broke."""
    reports, lifecycle = given.facts["consume_offsets"], given.facts["lifecycle"]
    events = given.facts["rebalance_events"]
    is_loss = pc.or_(pc.or_(broker_died(lifecycle), offsets_lost(lifecycle)), log_cut(lifecycle))
    told = {
        "replays": given.facts["redeliveries"],
        "moves": events.filter(is_one_of(events["kind"], *MOVES)),
        "losses": lifecycle.filter(is_loss),
    }
    known = {
        name: pa.concat_tables(
            [given.state[name], told[name].select(excuse.schema.names).cast(excuse.schema)]
        )
        for name, excuse in EXCUSES.items()
    }
    broken = reports.filter(_is_broken(reports))
    causes = {name: _Facts(facts, EXCUSES[name], broken) for name, facts in known.items()}
    rows = [
        _violation(report, law, delta, _cause(report, causes))
        for report in broken.to_pylist()
        for law, delta in _broken_laws(report)
    ]
    carried = {
        name: _still_of_use(facts, EXCUSES[name], reports)
        for name, facts in known.items()
        if facts.num_rows
    }
    return Made(rows_as_declared(rows, OFFSET_VIOLATIONS), carried)


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
    return pc.and_(any_law, reports["accepted"])


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

    def __init__(self, facts: pa.Table, excuse: Excuse, broken: pa.Table) -> None:
        self._excuse = excuse
        self._of: defaultdict[tuple[Any, ...], list[tuple[int, int]]] = defaultdict(list)
        if not broken.num_rows:
            return
        for fact in facts.filter(are_among(facts, broken, excuse.key)).to_pylist():
            self._of[self._key(fact)].append((fact["seq"], fact["event_us"]))

    def account_for(self, report: Mapping[str, Any]) -> bool:
        """Was the last one before the report recent?"""
        earlier = [us for seq, us in self._of.get(self._key(report), ()) if seq < report["seq"]]
        return bool(earlier) and report["event_us"] - earlier[-1] <= self._excuse.span_us

    def _key(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self._excuse.key)


def _cause(report: Mapping[str, Any], facts: Mapping[str, _Facts]) -> str:
    if report["path"] == "RESET":
        return "RESET"
    if report["path"] == "RESTORE" or facts["losses"].account_for(report):
        return "BROKER_RESTART"
    if facts["replays"].account_for(report):
        return "REPLAY"
    if report["trigger"] == "HAND_OVER" or facts["moves"].account_for(report):
        return "HAND_OVER"
    return "UNEXPLAINED"


def _violation(report: Mapping[str, Any], law: str, delta: int, cause: str) -> dict[str, Any]:
    return {
        **report,
        "observed_us": report["event_us"],
        "law": law,
        "delta": delta,
        "cause": cause,
        "explained": cause != "UNEXPLAINED",
    }


def _still_of_use(facts: pa.Table, excuse: Excuse, reports: pa.Table) -> pa.Table:
    """The last fact of each key, unless later reports of the emitter lie beyond its span."""
    numbers, first = numbered(facts, excuse.key)
    last = facts.take(pa.array(last_of_each(numbers, len(first))))
    newest: dict[str, int] = {}
    for emitter in pc.unique(last["emitter"]).to_pylist():
        told_us = pc.max(reports.filter(is_one_of(reports["emitter"], emitter))["event_us"])
        newest[emitter] = told_us.as_py() or 0
    newest_us = pa.array([newest[emitter] for emitter in last["emitter"].to_pylist()], pa.int64())
    return last.filter(pc.less_equal(pc.subtract(newest_us, last["event_us"]), excuse.span_us))


MART: Final = mart(
    OFFSET_VIOLATIONS,
    offset_violations,
    reads=("consume_offsets", "redeliveries", "rebalance_events", "lifecycle"),
    carries={name: excuse.schema for name, excuse in EXCUSES.items()},
)
