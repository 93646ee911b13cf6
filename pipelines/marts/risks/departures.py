"""A reader left, expired or lost a queue while more was pulled than committed.

Place in the walk: rebalance_events and client_windows → openings. Carried: who last lost each
queue, as long as a change back means two owners.

Invariant: what a client held is told by its last sample before the departure; without one it is
unknown. Absent on purpose: what comes of the risk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pipelines.marts.keys import QUEUE_FIELDS, is_one_of
from pipelines.marts.mart import KEY_TEXT
from pipelines.marts.risks.events import Event, Place
from pipelines.marts.risks.holdings import finished_ranges, finished_within
from pipelines.marts.risks.samples import Held, Holding
from pipelines.marts.violations.moves import LOSSES, OVERLAP_US

LOSERS: Final = pa.schema(
    [
        *QUEUE_FIELDS,
        ("client_id", KEY_TEXT),
        ("broker_epoch", pa.int64()),
        ("generation", pa.int64()),
        ("event_us", pa.int64()),
    ]
)
"""Who lost a queue to another reader, per queue the last one."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Departures:
    """What departures put at risk, and what is carried on."""

    openings: list[Event]
    losers: pa.Table


@dataclass(frozen=True, slots=True)
class _Departure:
    """One queue of a departure."""

    event: Row
    queue: Row
    is_double: bool

    @property
    def holding(self) -> Holding:
        """Who read what."""
        event, queue = self.event, self.queue
        place = event["emitter"], event["group"], queue["topic"], queue["queue_id"]
        return Holding(*place, event["client_id"])


def departures(
    events: pa.Table, samples: pa.Table, losers: pa.Table, ends: Sequence[Row] = ()
) -> Departures:
    """`samples` are those carried and the new ones, in order; `losers` are those carried; `ends`
    are new rows of lifecycle by which something is gone.
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
            is_double = event["kind"] == "REVOKED" and _is_double_owner(event, last.get(key))
            if event["kind"] == "REVOKED":
                last[key] = dict(event, topic=queue["topic"], queue_id=queue["queue_id"])
            begin, end = queue["committed"], queue["pulled"]
            # With two owners what one of them pulls next is pulled by the other as well.
            if begin is not None and end is not None and (begin < end or is_double):
                at_risk.append(_Departure(event, queue, is_double))
    held = Held(samples, (one.holding for one in at_risk), ends)
    return Departures([_opening(one, held) for one in at_risk], _still_recent(last, events))


def _is_double_owner(event: Row, before: Row | None) -> bool:
    """Did the queue change hands before, a moment ago, while the group stayed as it is?

    The first change may be a rebalance; one back within it means that two clients pulled in turn.
    """
    if before is None or event["client_id"] is None or before["client_id"] is None:
        return False
    return (
        before["client_id"] != event["client_id"]
        and all(before[name] == event[name] for name in ("broker_epoch", "generation"))
        and event["event_us"] - before["event_us"] <= OVERLAP_US
    )


def _opening(departure: _Departure, held: Held) -> Event:
    event, queue = departure.event, departure.queue
    begin, end = min(queue["committed"], queue["pulled"]), queue["pulled"]
    sample = held.before(departure.holding, event["seq"], event["event_us"])
    if departure.is_double:  # Who of the two has pulled what is not known.
        sample = None
    certain = None if sample is None else finished_within(sample, begin, end)
    is_crash = event["kind"] == "EXPIRED" or event["reason"] == "CONNECTION_LOST"
    is_double = departure.is_double
    return Event(
        place=Place.of({**event, "topic": queue["topic"], "queue_id": queue["queue_id"]}),
        seq=event["seq"],
        event_us=event["event_us"],
        type="OPENING",
        basis="DEPARTURE",
        cause="CONSUMER_CRASH" if is_crash else "DOUBLE_OWNER" if is_double else "HAND_OVER",
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
