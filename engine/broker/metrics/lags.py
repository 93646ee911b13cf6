"""Computes each group's lag on each topic for a scrape, summed over the broker's queues.

Invariant: a queue of which the group has no consume offset counts nowhere: its lag is unknown, not
zero. Messages in queues that nobody may read any more are counted apart, and those of a topic that
the group has left are not its lag. Absent on purpose: names of metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from engine.broker.groups.readers import Readers
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.topics.topics import Topics
from engine.foundation.limits import METRIC_SERIES_MAX
from engine.store import MessageStore


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One group in one topic."""

    group: str
    topic: str
    waiting: int
    """Messages not committed."""
    inflight: int
    """Messages pulled and not committed."""
    ready: int
    """Messages not pulled."""
    waiting_since_ms: int | None
    """Store time of the oldest message kept that is not committed; None when none waits."""
    ready_since_ms: int | None
    """Store time of the oldest message kept that is not pulled; None when none waits."""
    unreadable: int
    """Messages in queues that nobody may read any longer."""
    max_offsets: int
    """Ends of the readable queues, summed."""
    consume_offsets: int
    """The group's consume offsets in them, summed."""


@dataclass(slots=True, kw_only=True, eq=False)
class Lags:
    """The lags of one scrape: computed once, one by one, then known."""

    has_left: Callable[[tuple[str, str]], bool]
    offsets: ConsumerOffsets
    readers: Readers
    store: MessageStore
    topics: Topics
    known: list[GroupLag] = field(default_factory=list, init=False)
    """Those computed so far, as many as one family may report."""

    def computed(self) -> Iterator[GroupLag]:
        """Every group with offsets, but for topics that it has left."""
        queues: dict[str, list[int]] = {}
        for topic, queue_id in self.store.queues():
            queues.setdefault(topic, []).append(queue_id)
        for topic, group in self.offsets.pairs():
            if self.has_left((group, topic)):
                continue
            lag = self._of(group, topic, queues.get(topic, []))
            if len(self.known) < METRIC_SERIES_MAX:
                self.known.append(lag)
            yield lag

    def _of(self, group: str, topic: str, queue_ids: Iterable[int]) -> GroupLag:
        store = self.store
        config = self.topics.find(topic)
        readable = 0 if config is None else config.read_queue_nums
        waiting = inflight = ready = unreadable = max_offsets = consume_offsets = 0
        waiting_since: list[int] = []
        ready_since: list[int] = []
        for queue_id in queue_ids:
            committed = self.offsets.committed(group, topic, queue_id)
            if committed is None:
                continue
            maximum = store.max_offset(topic, queue_id)
            behind = max(0, maximum - committed)
            if queue_id >= readable:
                unreadable += behind
                continue
            reading = self.readers.of((group, topic, queue_id))
            pulled = committed if reading is None else reading.pulled_offset or committed
            pulled = min(max(pulled, committed), max(maximum, committed))
            waiting += behind
            inflight += pulled - committed
            ready += max(0, maximum - pulled)
            max_offsets += maximum
            consume_offsets += committed
            minimum = store.min_offset(topic, queue_id)  # Those below it are gone, the rest waits.
            for offset, since in ((committed, waiting_since), (pulled, ready_since)):
                stored_ms = store.store_time_at(topic, queue_id, max(offset, minimum))
                if offset < maximum and stored_ms is not None:
                    since.append(stored_ms)
        return GroupLag(
            group=group,
            topic=topic,
            waiting=waiting,
            inflight=inflight,
            ready=ready,
            waiting_since_ms=min(waiting_since, default=None),
            ready_since_ms=min(ready_since, default=None),
            unreadable=unreadable,
            max_offsets=max_offsets,
            consume_offsets=consume_offsets,
        )
