"""Defines the events that open, confirm and end a queue's risk of double consumption.

Place in the walk: facts → events, which `windows` folds: OPENING (a client departed, the broker
died, an offset fell), ANSWER (a reader was reported to begin below what was pulled), REDELIVERY (a
pull brought messages again), Progress (the group's marks, which end a window), NotReading (a client
left, or does not hold the queue), and End (queue, topic or group is gone). Invariant: an event
carries only what was known when it was reported. Absent on purpose: progress of queues on which
nothing is at risk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pipelines.marts.risks.holdings import Range


class Place(NamedTuple):
    """A queue of a group, on one broker."""

    cluster: str
    broker: str
    emitter: str
    group: str
    topic: str
    queue_id: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Place:
        """The place that a row names."""
        return cls(*(row[name] for name in cls._fields))


class Awaited(NamedTuple):
    """A reader that was answered where to begin and has not been seen to pull."""

    client_id: str | None
    from_offset: int
    told_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that puts messages at risk, or shows them again."""

    place: Place
    seq: int
    event_us: int
    type: Literal["OPENING", "ANSWER", "REDELIVERY"]
    basis: str
    cause: str
    from_offset: int
    """Of an ANSWER: the offset it reported, which may lie beyond `to_offset`: then nothing comes
    again.
    """
    to_offset: int
    kept_offset: int | None = None
    """Of a RESTART: where whoever asks begins; below `from_offset` when readers live on."""
    client_id: str | None = None
    next_client_id: str | None = None
    messages: int = 0
    """Delivered again."""
    certain: int | None = None
    uncertain: int | None = None
    finished: tuple[Range, ...] | None = None
    """Offsets that were finished at that instant, in the range or below it; None: not reported."""
    reader_is_gone: bool = False
    """`client_id` does not read the queue any more: whoever comes next asks where to begin."""
    all_from_offset: int | None = None
    """Two members read the queue: what either pulls from here on comes again as well."""
    awaited: tuple[Awaited, ...] = ()
    """Of an opening that takes a window over: whom that one was still waiting for."""
    others: tuple[str | None, ...] | None = None
    """Of one that two read: who may pull in turn with the reader; None: whoever read before."""
    has_left: bool = False
    """`client_id` has left, whoever else may read the queue."""
    known_seq: int | None = None
    """The row that showed it, when that is a later one than `seq`."""

    @property
    def order(self) -> tuple[int, int]:
        """Place among the events of its queue."""
        return (self.seq, 1) if self.known_seq is None else (self.known_seq, 0)


class Progress(NamedTuple):
    """The group's marks on a queue."""

    seq: int
    event_us: int
    committed: int | None
    pulled: int | None
    last_puller: str | None = None

    @property
    def order(self) -> tuple[int, int]:
        """Place among the events of its queue."""
        return self.seq, 1


class NotReading(NamedTuple):
    """A client does not read the queue: it left, or says that it does not hold it."""

    seq: int
    event_us: int
    client_id: str
    has_left: bool

    @property
    def order(self) -> tuple[int, int]:
        """Place among the events of its queue."""
        return self.seq, 1


class End(NamedTuple):
    """The queue is gone, for this group; what comes after it is another life."""

    seq: int
    event_us: int
    kind: str
    """TOPIC_GONE, QUEUES_REMOVED, GROUP_GONE, or SNAPSHOT: one that does not name the queue."""

    @property
    def order(self) -> tuple[int, int]:
        """Place among the events of its queue."""
        return self.seq, 1
