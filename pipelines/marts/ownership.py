"""Records the intervals during which each client owned a queue.

Place in the walk: rebalance_events and lifecycle → gold ownership, as revisions. Carried: the open
intervals. Invariant: one interval per queue and client at a time; an assignment reported twice
opens one. Two clients may own a queue at the same time: a finding, not a conflict to be repaired
here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import Column, must
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.columns import (
    BOOLEAN,
    LONG,
    QUEUE_INTERVAL,
    STAMP,
    STRING,
    rows_as_declared,
    window_id,
)
from pipelines.marts.keys import QUEUE_FIELDS, QUEUE_KEY, are_among
from pipelines.marts.lifecycle_events import GONE, MASTER, PARTED, ROLE_CHANGE, concerns
from pipelines.marts.mart import Given, GoldTable, Made, mart
from pipelines.staging.facts import is_one_of

OWNERSHIP: Final = GoldTable(
    "ownership",
    "revision of an interval in which one client read one queue for a group",
    (
        *QUEUE_INTERVAL,
        must("client_id", STRING, "the owner"),
        must("inferred", BOOLEAN, "taken from pulls, not reported by the client"),
        Column(
            "ended_by",
            STRING,
            "REVOKED, LEFT, EXPIRED, SHUTDOWN, BROKER_STOP (it booted, its stop unreported), "
            "STEPPED_DOWN (it leads the broker no more), TOPIC_GONE, QUEUES_REMOVED, GROUP_GONE, "
            "TOPIC_LEFT (by the group) or OFFSETS_DELETED; null while OPEN",
        ),
        Column("committed_at_end", LONG, "consume offset when it ended"),
        Column("pulled_at_end", LONG, "pulled mark when it ended"),
        *STAMP,
    ),
    ("window_id", "revision"),
    revised=True,
)

HOLDINGS: Final = pa.schema(
    [
        ("cluster", KEY_TEXT),
        ("broker", KEY_TEXT),
        *QUEUE_FIELDS,
        ("client_id", KEY_TEXT),
        ("inferred", pa.bool_()),
        ("opened_us", pa.int64()),
    ]
)
"""Open intervals."""
_KEY: Final = (*QUEUE_KEY, "client_id")
_LEAVES: Final = ("LEFT", "EXPIRED")
_STOPS: Final = {"SHUTDOWN": "SHUTDOWN", "BOOT": "BROKER_STOP"}
"""Ends of all intervals of a broker, and their names."""
_STEPPED_DOWN: Final = "STEPPED_DOWN"
"""The same of a node that leads its broker no more: it reports no reader."""

Row = Mapping[str, Any]
Holder = tuple[str, int, str]
"""topic, queue_id and client of a holding, inside its emitter and group."""


def ownership(given: Given) -> Made:
    """One row per revision of an interval in which one client read one queue for a group."""
    events, lifecycle = given.facts["rebalance_events"], given.facts["lifecycle"]
    is_step = is_one_of(events["kind"], "ASSIGNED", "REVOKED", *_LEAVES)
    steps = events.filter(pc.and_(is_step, pc.is_valid(events["client_id"])))
    is_end = is_one_of(lifecycle["kind"], *_STOPS, *GONE, *PARTED)
    ends = lifecycle.filter(pc.or_(is_end, _steps_down(lifecycle)))
    if not steps.num_rows and not ends.num_rows:
        return Made(MART.none)
    held = given.state["held"]
    is_concerned = pc.or_(
        are_among(held, steps, ("emitter", "group")), are_among(held, ends, ("emitter",))
    )
    book = _Book()
    for holding in held.filter(is_concerned).to_pylist():
        book.hold(holding)
    for step in sorted([*steps.to_pylist(), *ends.to_pylist()], key=_in_order):
        book.take(step)
    kept = held.filter(pc.invert(is_concerned))
    still = pa.Table.from_pylist(list(book.holdings()), schema=HOLDINGS)
    return Made(
        rows_as_declared(book.revisions, OWNERSHIP), {"held": pa.concat_tables([kept, still])}
    )


def _steps_down(lifecycle: pa.Table) -> pa.ChunkedArray:
    """A node says that it leads its broker no more; an observer that knows no role says nothing."""
    is_other = pc.fill_null(pc.not_equal(lifecycle["role"], MASTER), False)
    return pc.and_(is_one_of(lifecycle["kind"], ROLE_CHANGE), is_other)


def _in_order(step: Row) -> tuple[str, int]:
    return step["emitter"], step["seq"]


@dataclass(slots=True)
class _Book:
    """The holdings of clients, and their reports."""

    held: defaultdict[tuple[str, str], dict[Holder, Row]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Per emitter and group, the holdings."""
    revisions: list[dict[str, Any]] = field(default_factory=list)

    def hold(self, holding: Row) -> None:
        """Note a holding."""
        place = holding["topic"], holding["queue_id"], holding["client_id"]
        self.held[holding["emitter"], holding["group"]][place] = holding

    def holdings(self) -> Iterator[Row]:
        """All of them."""
        for of_group in self.held.values():
            yield from of_group.values()

    def take(self, step: Row) -> None:
        """One event, of members or of the broker."""
        if step["kind"] in _STOPS:
            self._end(step, _STOPS[step["kind"]])
        elif step["kind"] == ROLE_CHANGE:
            self._end(step, _STEPPED_DOWN)
        elif step["kind"] in (*GONE, *PARTED):
            self._end(step, step["kind"])
        elif step["kind"] in _LEAVES:
            self._leave(step)
        else:
            for queue in step["queues"] or ():
                self._move(step, queue)

    def _end(self, step: Row, ended_by: str) -> None:
        """The broker stopped, or booted without having reported its stop; or something was deleted
        or left.
        """
        for (emitter, group), of_group in self.held.items():
            if emitter != step["emitter"]:
                continue
            for place in [place for place in of_group if concerns(step, group, *place[:2])]:
                self._close(of_group.pop(place), step, ended_by, {})

    def _leave(self, step: Row) -> None:
        """A client that left ends everything it held, with the offsets of the queues that the
        broker named.
        """
        of_group = self.held[step["emitter"], step["group"]]
        named = {(queue["topic"], queue["queue_id"]): queue for queue in step["queues"] or ()}
        for place in [place for place in of_group if place[2] == step["client_id"]]:
            self._close(of_group.pop(place), step, step["kind"], named.get(place[:2], {}))

    def _move(self, step: Row, queue: Row) -> None:
        """A client reads a queue, or reads it no more."""
        of_group = self.held[step["emitter"], step["group"]]
        place = queue["topic"], queue["queue_id"], step["client_id"]
        if step["kind"] == "REVOKED":
            if place in of_group:
                self._close(of_group.pop(place), step, "REVOKED", queue)
        elif place not in of_group:
            known = {name: step[name] for name in HOLDINGS.names if name in step}
            holding = {
                **known,
                "topic": queue["topic"],
                "queue_id": queue["queue_id"],
                "opened_us": step["event_us"],
            }
            of_group[place] = holding
            self._emit(holding, step, revision=1, ended_by=None, queue={})

    def _close(self, holding: Row, step: Row, ended_by: str, queue: Row) -> None:
        self._emit(holding, step, revision=2, ended_by=ended_by, queue=queue)

    def _emit(
        self, holding: Row, step: Row, *, revision: int, ended_by: str | None, queue: Row
    ) -> None:
        opened_us = holding["opened_us"]
        self.revisions.append(
            {
                **holding,
                "window_id": window_id("ownership", *(holding[name] for name in _KEY), opened_us),
                "revision": revision,
                "state": "OPEN" if ended_by is None else "CLOSED",
                "observed_us": step["event_us"],
                "opened_at": opened_us,
                "closed_at": None if ended_by is None else step["event_us"],
                "ended_by": ended_by,
                "committed_at_end": queue.get("committed"),
                "pulled_at_end": queue.get("pulled"),
                "seq": step["seq"],
            }
        )


MART: Final = mart(
    OWNERSHIP,
    ownership,
    reads=("rebalance_events", "lifecycle"),
    carries={"held": HOLDINGS},
)
