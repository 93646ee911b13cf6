"""Detects readers that leave a queue, do not hold it or start below the pulled offset.

Place in the walk: rebalance_events, client_windows and offset_answers → events. Carried: who last
lost each queue, as long as a change back means two owners. A reader that begins anew asks the
broker where; what the group has pulled from there on comes again. A second later the broker asks
such a client what it holds; a queue that it does not hold is a row of its own.

Invariant: what a client held is known from its last sample before the departure, or unknown. Only
queues whose windows or events name a client are concerned. Absent on purpose: what comes of the
risk; clients that are silent; readers that got no offset as answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.keys import QUEUE_FIELDS, QUEUE_KEY, are_among
from pipelines.marts.risks.events import Event, NotReading, Place
from pipelines.marts.risks.holdings import finished_ranges, finished_within
from pipelines.marts.risks.samples import Held, Holding
from pipelines.marts.violation_facts import LOSSES, MOVE_SPAN_US, OVERLAP_US
from pipelines.staging.facts import is_one_of

LOSERS: Final = pa.schema(
    [
        *QUEUE_FIELDS,
        ("client_id", KEY_TEXT),
        ("broker_epoch", pa.int64()),
        ("generation", pa.int64()),
        ("event_us", pa.int64()),
        ("in_turn_since_us", pa.int64()),
    ]
)
"""Who lost a queue to another reader, per queue the last one; and since when it changes hands in a
group that is as it is.
"""

Row = Mapping[str, Any]
LEAVING: Final = ("LEFT", "EXPIRED")
_NAMED: Final = ("client_id", "next_client_id")
_ClientKey = tuple[str, str, str]
"""(emitter, group, client id)"""
_KEYS: Final = pa.schema(QUEUE_FIELDS)


@dataclass(frozen=True, slots=True)
class Departures:
    """The messages that departures put at risk, and the carried state."""

    openings: list[Event]
    losers: pa.Table


@dataclass(frozen=True, slots=True)
class _Departure:
    """One queue of a departure."""

    event: Row
    queue: Row
    in_turn_since_us: int | None
    """Since when two clients pull in turn; None: they do not."""

    @property
    def cause(self) -> str:
        """Members hear of a division one after the other, and pull in turn until both have."""
        event = self.event
        if event["kind"] == "EXPIRED" or event["reason"] == "CONNECTION_LOST":
            return "CONSUMER_CRASH"
        if self.in_turn_since_us is None:
            return "HAND_OVER"
        lasts_us = event["event_us"] - self.in_turn_since_us
        return "DOUBLE_OWNER" if lasts_us > MOVE_SPAN_US else "HAND_OVER"

    @property
    def holding(self) -> Holding:
        """The holding that departed."""
        event, queue = self.event, self.queue
        place = event["emitter"], event["group"], queue["topic"], queue["queue_id"]
        return Holding(*place, event["client_id"])


def departures(
    events: pa.Table,
    samples: pa.Table,
    losers: pa.Table,
    *,
    ends: Sequence[Row] = (),
    falls: Sequence[Event] = (),
) -> Departures:
    """`samples` are those carried and the new ones, in order; `losers` are those carried; `ends`
    are new rows of lifecycle by which something is gone, `falls` new ones of consume offsets.
    """
    gone = events.filter(is_one_of(events["kind"], *LOSSES))
    if not gone.num_rows:
        return Departures([], losers)
    last: dict[tuple[Any, ...], Row] = {
        (row["emitter"], row["group"], row["topic"], row["queue_id"]): row
        for row in losers.to_pylist()
    }
    at_risk: list[_Departure] = []
    for event in gone.to_pylist():
        for queue in event["queues"] or ():
            key = (event["emitter"], event["group"], queue["topic"], queue["queue_id"])
            since_us = None
            if event["kind"] == "REVOKED":
                since_us = _in_turn_since_us(event, last.get(key))
                begun_us = event["event_us"] if since_us is None else since_us
                place = {"topic": queue["topic"], "queue_id": queue["queue_id"]}
                last[key] = {**event, **place, "in_turn_since_us": begun_us}
            begin, end = queue["committed"], queue["pulled"]
            # With two owners what one of them pulls next is pulled by the other as well.
            if begin is not None and end is not None and (begin < end or since_us is not None):
                at_risk.append(_Departure(event, queue, since_us))
    held = Held(samples, (one.holding for one in at_risk), ends, falls)
    return Departures([_opening(one, held) for one in at_risk], _still_recent(last, events))


def _in_turn_since_us(event: Row, before: Row | None) -> int | None:
    """When did the queue begin to change hands, if it changes back while the group stays as it is?

    The first change may be a rebalance; one back within it means that two clients pulled in turn.
    """
    if before is None or event["client_id"] is None or before["client_id"] is None:
        return None
    is_back = (
        before["client_id"] != event["client_id"]
        and all(before[name] == event[name] for name in ("broker_epoch", "generation"))
        and event["event_us"] - before["event_us"] <= OVERLAP_US
    )
    if not is_back:
        return None
    since_us: int | None = before["in_turn_since_us"]
    return before["event_us"] if since_us is None else since_us


def _opening(departure: _Departure, held: Held) -> Event:
    event, queue = departure.event, departure.queue
    begin, end = min(queue["committed"], queue["pulled"]), queue["pulled"]
    sample = held.before(departure.holding, event["seq"], event["event_us"])
    if departure.in_turn_since_us is not None:  # Who of the two has pulled what is not known.
        sample = None
    certain = None if sample is None else finished_within(sample, begin, end)
    return Event(
        place=Place.of({**event, "topic": queue["topic"], "queue_id": queue["queue_id"]}),
        seq=event["seq"],
        event_us=event["event_us"],
        type="OPENING",
        basis="DEPARTURE",
        cause=departure.cause,
        client_id=event["client_id"],
        from_offset=begin,
        to_offset=end,
        certain=certain,
        finished=None if sample is None else finished_ranges(sample, begin, end),
        reader_is_gone=event["kind"] != "REVOKED",
        # Who lost it to another reader may not know it yet.
        all_from_offset=end if event["kind"] == "REVOKED" else None,
    )


def _still_recent(last: Mapping[tuple[Any, ...], Row], events: pa.Table) -> pa.Table:
    newest_us: defaultdict[str, int] = defaultdict(int)
    for event in events.select(["emitter", "event_us"]).to_pylist():
        newest_us[event["emitter"]] = max(newest_us[event["emitter"]], event["event_us"])
    recent = [
        {name: row[name] for name in LOSERS.names}
        for row in last.values()
        if newest_us[row["emitter"]] - row["event_us"] <= OVERLAP_US
    ]
    return pa.Table.from_pylist(recent, schema=LOSERS)


def absences(
    members: pa.Table, samples: pa.Table, windows: pa.Table, events: Iterable[Event]
) -> Iterator[tuple[Place, NotReading]]:
    """Who does not read which queue: `members` are new rows of rebalance_events, `samples` new ones
    of what clients hold, `windows` those open before, `events` the others of this cycle.
    """
    left = members.filter(
        pc.and_(is_one_of(members["kind"], *LEAVING), pc.is_valid(members["client_id"]))
    )
    given_back = samples.filter(pc.fill_null(samples["dropped"], False))
    if not left.num_rows and not given_back.num_rows:
        return
    named = _places_by_client(windows, events)
    columns = ["emitter", "group", "client_id", "seq", "event_us"]
    for row in left.select(columns).to_pylist():
        for place in named.get(_key(row), ()):
            yield place, NotReading(row["seq"], row["event_us"], row["client_id"], has_left=True)
    for row in given_back.select([*columns, "topic", "queue_id"]).to_pylist():
        for place in named.get(_key(row), ()):
            if (place.topic, place.queue_id) == (row["topic"], row["queue_id"]):
                yield place, NotReading(row["seq"], row["event_us"], row["client_id"], False)


def _places_by_client(
    windows: pa.Table, events: Iterable[Event]
) -> Mapping[_ClientKey, Mapping[Place, None]]:
    """The queues at risk whose windows or events name each client."""
    named: defaultdict[_ClientKey, dict[Place, None]] = defaultdict(dict)
    wanted = [*Place._fields, *_NAMED, "awaited", "others"]
    for row in windows.select(wanted).to_pylist():
        place = Place.of(row)
        clients = {*(row[name] for name in _NAMED), *(row["others"] or ())}
        clients.update(one["client_id"] for one in row["awaited"] or ())
        for client in clients - {None}:
            named[place.emitter, place.group, client][place] = None
    for event in events:
        for client in {event.client_id, event.next_client_id} - {None}:
            named[event.place.emitter, event.place.group, str(client)][event.place] = None
    return named


def _key(row: Mapping[str, Any]) -> _ClientKey:
    return row["emitter"], row["group"], row["client_id"]


def answered(answers: pa.Table, windows: pa.Table, others: Iterable[Event]) -> Iterator[Event]:
    """Where readers were reported to begin. An answer at or beyond what was pulled puts nothing at
    risk; it counts where something is, by `windows` that are open, `others` or another answer, and
    may take back what an earlier one did. At a rebalance almost all answers are such.
    """
    is_known = pc.and_(pc.is_valid(answers["told_offset"]), pc.is_valid(answers["pulled"]))
    known = answers.filter(is_known)
    if not known.num_rows:
        return
    goes_back = pc.less(known["told_offset"], known["pulled"])
    places = [{name: getattr(event.place, name) for name in QUEUE_KEY} for event in others]
    at_risk = pa.concat_tables(
        [
            windows.select(QUEUE_KEY),
            known.filter(goes_back).select(QUEUE_KEY).cast(_KEYS),
            pa.Table.from_pylist(places, _KEYS),
        ]
    )
    counts = pc.or_(goes_back, are_among(known, at_risk.unify_dictionaries(), QUEUE_KEY))
    for row in known.filter(counts).to_pylist():
        is_same = row["client_id"] is not None and row["client_id"] == row["last_puller"]
        yield Event(
            place=Place.of(row),
            seq=row["seq"],
            event_us=row["event_us"],
            type="ANSWER",
            basis="OFFSET_ANSWER",
            cause="CONSUMER_CRASH" if is_same else "HAND_OVER",
            client_id=row["last_puller"],
            next_client_id=row["client_id"],
            from_offset=row["told_offset"],
            to_offset=row["pulled"],
        )
