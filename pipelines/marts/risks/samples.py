"""Keeps the latest sample of the messages that each client holds from each queue.

Place in the walk: client_windows → what departures and deaths of the broker ask: what had the
reader finished at that instant? Carried: samples, as long as they say something.

Invariant: a sample answers for moments after it, in the same life of its queue, until it is too
old, its client has given the queue up, or rows were lost that may say so. Absent on purpose: what
a sample means (`holdings`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.base.settings import SECOND_US
from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.keys import QUEUE_FIELDS, QUEUE_KEY, are_among, newest_of_each, recent
from pipelines.marts.lifecycle_events import concerns, ended
from pipelines.marts.risks.events import Event
from pipelines.staging.facts import fact_schema

HOLDING: Final = (*QUEUE_KEY, "client_id")
SAMPLES: Final = pa.schema(
    [
        *QUEUE_FIELDS,
        ("client_id", KEY_TEXT),
        ("seq", pa.int64()),
        ("event_us", pa.int64()),
        ("finished_count", pa.int64()),
        ("held_count", pa.int64()),
        ("client_committed", pa.int64()),
        ("held_ranges", fact_schema("client_windows").field("held_ranges").type),
        ("dropped", pa.bool_()),
        ("takes_all", pa.bool_()),
        ("fell_from", pa.int64()),
    ]
)
"""The last sample of each queue and client. `fell_from`: since then the queue's consume offset fell
from there, so nobody says of what lies below whether the client had finished it.
"""
_HOLDINGS: Final = pa.schema([SAMPLES.field(name) for name in HOLDING])
_QUEUES: Final = pa.schema(QUEUE_FIELDS)

SAMPLE_SPAN_US: Final = 635 * SECOND_US
"""A sample reports on what is, until the next one: those that do not change come again in each
snapshot (10 min), which may be late.
"""
Row = Mapping[str, Any]


class Holding(NamedTuple):
    """A client that reads a queue for a group."""

    emitter: str
    group: str
    topic: str
    queue_id: int
    client_id: str | None


def samples_of(windows: pa.Table) -> pa.Table:
    """The samples that new rows of client_windows are."""
    unfallen = pa.nulls(windows.num_rows, pa.int64())
    return windows.append_column("fell_from", unfallen).select(SAMPLES.names).cast(SAMPLES)


def newest_samples(
    known: pa.Table, new: pa.Table, ends: Sequence[Row] = (), falls: Sequence[Event] = ()
) -> pa.Table:
    """The last one of each queue and client, unless its queue is gone, rows were lost behind it, or
    its emitter reported so much later that it says nothing any more; `falls` are new ones of
    consume offsets.
    """
    samples = newest_of_each(known, new, HOLDING)
    if falls and samples.num_rows:
        samples = _fallen(samples, falls)
    for end in ends:
        is_before = pc.less(samples["seq"], end["seq"])
        samples = samples.filter(pc.invert(pc.and_(is_before, ended(samples, end))))
    held = samples.filter(pc.invert(pc.fill_null(samples["dropped"], False)))
    return recent(held, samples, SAMPLE_SPAN_US)


def _fallen(samples: pa.Table, falls: Sequence[Event]) -> pa.Table:
    """The samples, with how far the offsets of their queues have fallen since."""
    of_queue = _by_queue(falls)
    queues = [dict(zip(QUEUE_KEY, key, strict=True)) for key in of_queue]
    is_concerned = are_among(samples, pa.Table.from_pylist(queues, _QUEUES), QUEUE_KEY)
    rows = samples.filter(is_concerned).to_pylist()
    for row in rows:
        row["fell_from"] = _fell_from(row, of_queue[tuple(row[name] for name in QUEUE_KEY)])
    others = samples.filter(pc.invert(is_concerned))
    return pa.concat_tables([others, pa.Table.from_pylist(rows, SAMPLES)])


def _by_queue(falls: Iterable[Event]) -> dict[tuple[Any, ...], list[Event]]:
    of_queue: defaultdict[tuple[Any, ...], list[Event]] = defaultdict(list)
    for fall in falls:
        of_queue[tuple(getattr(fall.place, name) for name in QUEUE_KEY)].append(fall)
    return of_queue


def _fell_from(sample: Row, falls: Iterable[Event]) -> int | None:
    """The highest offset from which its queue's consume offset has fallen since the sample."""
    since = (fall.to_offset for fall in falls if fall.seq > sample["seq"])
    known = () if sample["fell_from"] is None else (sample["fell_from"],)
    return max([*known, *since], default=None)


class Held:
    """What clients held of the queues that are asked for, by their samples."""

    def __init__(
        self,
        samples: pa.Table,
        asked: Iterable[Holding],
        ends: Sequence[Row] = (),
        falls: Sequence[Event] = (),
    ) -> None:
        """`samples` lie in order; `ends` are rows of lifecycle by which something is gone, or by
        which what was reported before may not hold any more; `falls` are those of consume offsets.
        """
        self._ends = ends
        self._falls = _by_queue(falls)
        self._by_holding: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
        known = [one._asdict() for one in asked if one.client_id is not None]
        if not known or not samples.num_rows:
            return
        wanted = are_among(samples, pa.Table.from_pylist(known, _HOLDINGS), HOLDING)
        for sample in samples.filter(wanted).to_pylist():
            self._by_holding[tuple(sample[name] for name in HOLDING)].append(sample)

    def before(self, holding: Holding, seq: int, event_us: int) -> Row | None:
        """The last sample of the client before the event, unless it is too old."""
        earlier = [one for one in self._by_holding.get(holding, ()) if one["seq"] < seq]
        if not earlier or earlier[-1]["dropped"]:
            return None
        sample = earlier[-1]
        if event_us - sample["event_us"] > SAMPLE_SPAN_US:
            return None
        is_of_earlier_life = any(
            end["emitter"] == holding.emitter
            and sample["seq"] < end["seq"] < seq
            and concerns(end, holding.group, holding.topic, holding.queue_id)
            for end in self._ends
        )
        if is_of_earlier_life:
            return None
        falls = self._falls.get(holding[: len(QUEUE_KEY)], ())
        until_then = (fall for fall in falls if fall.seq < seq)
        return {**sample, "fell_from": _fell_from(sample, until_then)}
