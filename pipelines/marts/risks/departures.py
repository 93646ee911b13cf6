"""A reader left, expired or lost a queue while more was pulled than committed.

Place in the walk: rebalance_events and client_windows → openings. Carried: the last sample of what
each client holds of each queue, as long as it tells something, and who last lost each queue, as
long as a change back means two owners.

Invariant: what a client held is told by its last sample before the departure; without one it is
unknown. Absent on purpose: what comes of the risk.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.forgetting import recent
from pipelines.marts.keys import QUEUE_KEY, are_among, is_one_of, newest_of_each
from pipelines.marts.life_cycles import concerns, ended
from pipelines.marts.mart import KEY_TEXT
from pipelines.marts.risks.events import Event, Place
from pipelines.marts.risks.holdings import finished_within
from pipelines.settings import SECOND_US
from pipelines.staging.facts import fact_schema

OVERLAP_US: Final = 30 * SECOND_US
"""A queue that changed hands back within this long, in an unchanged group, had two owners: one
division of the queues gives it to one member, and members divide anew each 20 s.
"""
_QUEUE: Final = [
    ("emitter", KEY_TEXT),
    ("group", KEY_TEXT),
    ("topic", KEY_TEXT),
    ("queue_id", pa.int32()),
    ("client_id", KEY_TEXT),
]
SAMPLES: Final = pa.schema(
    [
        *_QUEUE,
        ("seq", pa.int64()),
        ("event_us", pa.int64()),
        ("finished_count", pa.int64()),
        ("held_count", pa.int64()),
        ("client_committed", pa.int64()),
        ("held_ranges", fact_schema("client_windows").field("held_ranges").type),
        ("dropped", pa.bool_()),
    ]
)
"""The last sample of each queue and client."""
LOSERS: Final = pa.schema(
    [*_QUEUE, ("broker_epoch", pa.int64()), ("generation", pa.int64()), ("event_us", pa.int64())]
)
"""Who lost a queue to another reader, per queue the last one."""

GONE: Final = ("LEFT", "EXPIRED", "REVOKED")
SAMPLE_SPAN_US: Final = 635 * SECOND_US
"""A sample tells of what is, until the next one: those that do not change come again in each
snapshot (10 min), which may be late.
"""
_HOLDING: Final = (*QUEUE_KEY, "client_id")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Departures:
    """What departures put at risk, and what is carried on."""

    openings: list[Event]
    losers: pa.Table


def departures(
    events: pa.Table, samples: pa.Table, losers: pa.Table, ends: Sequence[Row] = ()
) -> Departures:
    """`samples` are those carried and the new ones, in order; `losers` are those carried; `ends`
    are new rows of lifecycle by which something is gone.
    """
    gone = events.filter(is_one_of(events["kind"], *GONE))
    if not gone.num_rows:
        return Departures([], losers)
    last: dict[tuple[Any, ...], Row] = {
        tuple(row[name] for name in QUEUE_KEY): row for row in losers.to_pylist()
    }
    at_risk: list[tuple[Row, Row, bool]] = []
    for event in gone.to_pylist():
        for queue in event["queues"] or ():
            key = (event["emitter"], event["group"], queue["topic"], queue["queue_id"])
            is_double = event["kind"] == "REVOKED" and _is_double_owner(event, last.get(key))
            if event["kind"] == "REVOKED":
                last[key] = dict(event, topic=queue["topic"], queue_id=queue["queue_id"])
            begin, end = queue["committed"], queue["pulled"]
            if begin is not None and end is not None and begin < end:
                at_risk.append((event, queue, is_double))
    held = _Held(samples, at_risk, ends)
    openings = [
        _opening(event, queue, is_double, held.by(event, queue))
        for event, queue, is_double in at_risk
    ]
    return Departures(openings, _still_recent(last, events))


def newest_samples(known: pa.Table, new: pa.Table, ends: Sequence[Row] = ()) -> pa.Table:
    """The last one of each queue and client, unless its queue is gone, or its emitter has told so
    much later that it tells nothing any more.
    """
    samples = newest_of_each(known, new, _HOLDING)
    for end in ends:
        is_before = pc.less(samples["seq"], end["seq"])
        samples = samples.filter(pc.invert(pc.and_(is_before, ended(samples, end))))
    held = samples.filter(pc.invert(pc.fill_null(samples["dropped"], False)))
    return recent(held, samples, SAMPLE_SPAN_US)


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


class _Held:
    """What clients held of the queues at risk, by their samples."""

    def __init__(
        self, samples: pa.Table, at_risk: list[tuple[Row, Row, bool]], ends: Sequence[Row]
    ) -> None:
        self._ends = ends
        self._told: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        if not at_risk:
            return
        asked = pa.Table.from_pylist(
            [
                {**{name: event[name] for name in ("emitter", "group", "client_id")}, **queue}
                for event, queue, _ in at_risk
            ],
            pa.schema(_QUEUE),
        )
        known = asked.filter(pc.is_valid(asked["client_id"]))
        for sample in samples.filter(are_among(samples, known, _HOLDING)).to_pylist():
            self._told[tuple(sample[name] for name in _HOLDING)].append(sample)

    def by(self, event: Row, queue: Row) -> Row | None:
        """The last sample of the client before the event, unless it is too old."""
        holding = (
            event["emitter"],
            event["group"],
            queue["topic"],
            queue["queue_id"],
            event["client_id"],
        )
        earlier = [one for one in self._told.get(holding, ()) if one["seq"] < event["seq"]]
        if not earlier or earlier[-1]["dropped"]:
            return None
        sample = earlier[-1]
        if event["event_us"] - sample["event_us"] > SAMPLE_SPAN_US:
            return None
        place = event["group"], queue["topic"], queue["queue_id"]
        is_of_earlier_life = any(
            end["emitter"] == event["emitter"]
            and sample["seq"] < end["seq"] < event["seq"]
            and concerns(end, *place)
            for end in self._ends
        )
        return None if is_of_earlier_life else sample


def _opening(event: Row, queue: Row, is_double: bool, sample: Row | None) -> Event:
    span = queue["pulled"] - queue["committed"]
    certain = None
    if sample is not None:
        certain = finished_within(sample, queue["committed"], queue["pulled"])
    is_crash = event["kind"] == "EXPIRED" or event["reason"] == "CONNECTION_LOST"
    return Event(
        place=Place.of({**event, "topic": queue["topic"], "queue_id": queue["queue_id"]}),
        seq=event["seq"],
        event_us=event["event_us"],
        type="OPENING",
        basis="DEPARTURE",
        cause="CONSUMER_CRASH" if is_crash else "DOUBLE_OWNER" if is_double else "HAND_OVER",
        client_id=event["client_id"],
        from_offset=queue["committed"],
        to_offset=queue["pulled"],
        certain=certain,
        uncertain=None if certain is None else span - certain,
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
