"""Collects possible explanations for offset violations: queue moves and offset writers.

Place in the walk: rebalance_events and consume_offsets → what accounts for falls of offsets.
Carried: the last move of each queue for MOVE_KEPT_US, its last writer and fall for TURN_SPAN_US.
Two writers show when a report falls below that of another client a moment ago without a move, or
when the offsets of one client id are two rising sequences: two processes bear its name.

Invariant: a move is the queue's own; other queues of the group account for nothing here. No Python
loop goes over reports that broke no law, unless their queue has a fall in the same cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import pyarrow as pa

from pipelines.base.settings import MINUTE_US, SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.keys import QUEUE_FIELDS, QUEUE_KEY, are_among, newest_of_each, recent
from pipelines.marts.lifecycle_events import is_of_another_life, without_ended
from pipelines.staging.facts import is_one_of

MOVE_SPAN_US: Final = 20 * SECOND_US
"""Both readers have reported by then: members divide the queues anew each 20 s."""
MOVE_KEPT_US: Final = 80 * SECOND_US
"""The first report of a reader that gained a queue may come this much later."""
OVERLAP_US: Final = 30 * SECOND_US
"""A queue that changed hands back within this long, in an unchanged group, is pulled by two in
turn: one division of the queues gives it to one member. Both have heard of it by MOVE_SPAN_US; if
they go on after that, the queue has two owners.
"""
LOSSES: Final = ("REVOKED", "LEFT", "EXPIRED")
"""Kinds of changes by which a reader loses queues."""
MOVES: Final = pa.schema(
    [
        *QUEUE_FIELDS,
        ("loser", KEY_TEXT),
        ("gainer", KEY_TEXT),
        ("seq", pa.int64()),
        ("event_us", pa.int64()),
        ("lost_us", pa.int64()),
        ("broker_epoch", pa.int64()),
        ("generation", pa.int64()),
        ("in_turn_since_us", pa.int64()),
    ]
)
"""The last move of each queue."""

Row = Mapping[str, Any]
Key = tuple[Any, ...]
TURN_SPAN_US: Final = MINUTE_US
"""Clients report each 5 s; one that has not for so long takes no turn any more."""
_QUEUE: Final = [
    *QUEUE_FIELDS,
    ("client_id", KEY_TEXT),
    ("seq", pa.int64()),
    ("event_us", pa.int64()),
]
WRITERS: Final = pa.schema(_QUEUE)
"""The last accepted report of each queue."""
FALLS: Final = pa.schema([*_QUEUE, ("offset", pa.int64()), ("previous_offset", pa.int64())])
"""The last fall of each queue."""


@dataclass(frozen=True, slots=True)
class Move:
    """A change of a queue's reader."""

    loser: str | None
    gainer: str | None
    """Null until it is reported."""
    seq: int
    event_us: int
    lost_us: int | None
    broker_epoch: int
    generation: int
    in_turn_since_us: int | None
    """Since when the queue changes hands to and fro while the group stays as it is; None: it does
    not. No division of the queues accounts for it when that is longer than MOVE_SPAN_US ago.
    """

    def explains(self, report: Row, *, writer: Row | None) -> bool:
        """Is a report that is lower than that of `writer` one of the two readers' own?

        Both may report for a while. Later on the new reader may, if the other one has ended by
        then.
        """
        since_us = report["event_us"] - self.event_us
        if self._has_two_owners or since_us > MOVE_KEPT_US:
            return False
        client = report["client_id"]
        is_party = client is None or self.gainer is None or client in (self.gainer, self.loser)
        if since_us <= MOVE_SPAN_US and is_party:
            return True
        has_ended = writer is None or writer["event_us"] <= self.event_us + MOVE_SPAN_US
        return client is not None and client == self.gainer and has_ended

    @property
    def _has_two_owners(self) -> bool:
        since_us = self.in_turn_since_us
        return since_us is not None and self.event_us - since_us > MOVE_SPAN_US


class Moves:
    """The moves of queues, in the order of reports."""

    def __init__(self, carried: pa.Table, events: pa.Table, ends: Sequence[Row] = ()) -> None:
        """`ends`: rows of lifecycle by which something is gone."""
        self._ends = ends
        self._of: defaultdict[Key, list[Move]] = defaultdict(list)
        names = [one.name for one in fields(Move)]
        for row in carried.to_pylist():
            self._of[_key(row)].append(Move(**{name: row[name] for name in names}))
        changes = events.filter(is_one_of(events["kind"], "ASSIGNED", *LOSSES))
        for event in changes.to_pylist():
            for queue in event["queues"] or ():
                place = {**event, **queue}
                moves = self._of[_key(place)]
                is_recent = (
                    moves
                    and event["event_us"] - moves[-1].event_us <= MOVE_KEPT_US
                    and not is_of_another_life(moves[-1].seq, place, ends)
                )
                moves.append(_moved(moves[-1] if is_recent else None, event))

    def before(self, report: Row) -> Move | None:
        """The last move of the report's queue."""
        earlier = [move for move in self._of.get(_key(report), ()) if move.seq < report["seq"]]
        if not earlier or is_of_another_life(earlier[-1].seq, report, self._ends):
            return None
        return earlier[-1]

    def carried(self) -> pa.Table:
        """The last move of each queue."""
        rows: Iterable[dict[str, Any]] = (
            dict(zip(QUEUE_KEY, key, strict=True))
            | {one.name: getattr(moves[-1], one.name) for one in fields(Move)}
            for key, moves in self._of.items()
        )
        return without_ended(pa.Table.from_pylist(list(rows), schema=MOVES), self._ends)


def _key(row: Row) -> Key:
    return tuple(row[name] for name in QUEUE_KEY)


def _moved(before: Move | None, event: Row) -> Move:
    """The move that an event begins or completes: loss and gain may be reported in either order."""
    client, now_us = event["client_id"], event["event_us"]
    moment = {"seq": event["seq"], "event_us": now_us}
    is_recent = before is not None and now_us - before.event_us <= MOVE_SPAN_US
    if event["kind"] == "ASSIGNED":
        if before is not None and is_recent and before.gainer is None:
            return replace(before, gainer=client, **moment)
        loser = None if before is None else before.gainer
        return _begun(event, loser=loser, gainer=client, lost_us=None)
    if before is not None and is_recent and before.lost_us is None and before.gainer != client:
        return replace(before, loser=client, lost_us=now_us, **moment)
    since_us = _in_turn_since_us(before, event) if event["kind"] == "REVOKED" else None
    return _begun(event, loser=client, gainer=None, lost_us=now_us, in_turn_since_us=since_us)


def _in_turn_since_us(before: Move | None, event: Row) -> int | None:
    if before is None or before.lost_us is None or None in (before.loser, event["client_id"]):
        return None
    is_back = (
        before.loser != event["client_id"]
        and (before.broker_epoch, before.generation) == (event["broker_epoch"], event["generation"])
        and event["event_us"] - before.lost_us <= OVERLAP_US
    )
    if not is_back:
        return None
    return before.lost_us if before.in_turn_since_us is None else before.in_turn_since_us


def _begun(
    event: Row,
    *,
    loser: str | None,
    gainer: str | None,
    lost_us: int | None,
    in_turn_since_us: int | None = None,
) -> Move:
    return Move(
        loser=loser,
        gainer=gainer,
        seq=event["seq"],
        event_us=event["event_us"],
        lost_us=lost_us,
        broker_epoch=event["broker_epoch"],
        generation=event["generation"],
        in_turn_since_us=in_turn_since_us,
    )


class Writers:
    """Clients that wrote to the queues whose reports broke a law."""

    def __init__(
        self,
        writers: pa.Table,
        falls: pa.Table,
        reports: pa.Table,
        broken: pa.Table,
        *,
        ends: Sequence[Row] = (),
    ) -> None:
        """reports: accepted ones of the cycle; broken: those of them that broke a law; ends: rows
        of lifecycle by which something is gone.
        """
        self._ends = ends
        self._carried, self._reports = writers, reports.select(WRITERS.names).cast(WRITERS)
        self._of: defaultdict[Key, list[Row]] = defaultdict(list)
        self._falls: dict[Key, Row] = {_key(fall): fall for fall in falls.to_pylist()}
        if broken.num_rows:
            both = pa.concat_tables([writers, self._reports])
            for row in both.filter(are_among(both, broken, QUEUE_KEY)).to_pylist():
                self._of[_key(row)].append(row)

    def before(self, report: Row) -> Row | None:
        """The report that stood before this one; null when it is long ago."""
        earlier = [row for row in self._of.get(_key(report), ()) if row["seq"] < report["seq"]]
        if not earlier or report["event_us"] - earlier[-1]["event_us"] > TURN_SPAN_US:
            return None
        if is_of_another_life(earlier[-1]["seq"], report, self._ends):
            return None
        return earlier[-1]

    def take_turns(self, fall: Row, *, writer: Row | None) -> bool:
        """Do two writers take turns on the queue of this fall? Notes it."""
        before = self._falls.get(_key(fall))
        if before is not None and is_of_another_life(before["seq"], fall, self._ends):
            before = None
        self._falls[_key(fall)] = fall
        if writer is None or writer["client_id"] is None or fall["client_id"] is None:
            return False
        if writer["client_id"] != fall["client_id"]:
            return True
        return (
            before is not None
            and before["client_id"] == fall["client_id"]
            and fall["event_us"] - before["event_us"] <= TURN_SPAN_US
            and before["offset"] < fall["offset"]
            and before["previous_offset"] < fall["previous_offset"]
        )

    def carried(self) -> tuple[pa.Table, pa.Table]:
        """Last writers and last falls."""
        newest = newest_of_each(self._carried, self._reports, QUEUE_KEY)
        rows = [{name: fall[name] for name in FALLS.names} for fall in self._falls.values()]
        falls = pa.Table.from_pylist(rows, schema=FALLS)
        return (
            without_ended(recent(newest, newest, TURN_SPAN_US), self._ends),
            without_ended(recent(falls, newest, TURN_SPAN_US), self._ends),
        )
