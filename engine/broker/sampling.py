"""Watermarks: the state of every queue, and of every group on it, on each second of the clock.

Place in the walk: beside it; the tables that handlers and dispatch move are read here once a second
and told to the observer when they changed, all of them each 30 s, and at once for the queues of a
client that left, expired, was revoked or reset.

Invariant: a row tells one instant: all of its columns are read in the same turn of the loop.
Absent on purpose: timers (broker), what follows from the rows (pipelines).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.broker.parts import BrokerParts
from engine.broker.state.readers import QueueKey
from engine.foundation.observing import GroupWatermark, QueueWatermark
from engine.protocol.message import MessageQueue
from engine.protocol.names import Perm

READ = int(Perm.READ)  # A plain number: the flag's own `&` costs a microsecond a queue.


class Watermarks:
    """Reads the marks, and remembers what was told last."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._told_queues: dict[tuple[str, int], QueueWatermark] = {}
        self._unflushed: dict[tuple[str, int], None] = {}
        """Queues whose end was not flushed when they were told: they move once more."""
        self._told_of_topics = -1
        """Version of the topics at the last sample."""
        self._told_groups: dict[QueueKey, GroupWatermark] = {}

    def sample(self, now_ms: int, *, everything: bool) -> None:
        """Tell the marks that changed since they were told last, or all."""
        self._sample_queues(everything=everything)
        keys = dict.fromkeys([*self._parts.offsets.keys(), *self._parts.readers.all_keys()])
        for key in keys:
            self._tell_group(key, now_ms, always=everything)
        for key in [key for key in self._told_groups if key not in keys]:
            del self._told_groups[key]

    def _sample_queues(self, *, everything: bool) -> None:
        """Hot with many queues: one that stands still costs nothing."""
        store, observer, told = self._parts.store, self._parts.observer, self._told_queues
        version = self._parts.topics.counter
        same_topics, self._told_of_topics = version == self._told_of_topics, version
        due, self._unflushed = dict.fromkeys(store.moved_queues()) | self._unflushed, {}
        if everything or not same_topics:
            due = dict.fromkeys(store.queues())
            self._told_queues = told = {key: told[key] for key in due if key in told}
        for key in due:
            mark = self.of_queue(*key)
            if mark is None:
                told.pop(key, None)
                continue
            if everything or mark != told.get(key):
                observer.observe(mark)
                told[key] = mark
            if mark.flushed_offset != mark.max_offset:
                self._unflushed[key] = None

    def tell(self, keys: Iterable[QueueKey], now_ms: int) -> None:
        """Tell the marks of these queues of groups now, changed or not."""
        for key in keys:
            self._tell_group(key, now_ms, always=True)

    def of_queue(self, topic: str, queue_id: int) -> QueueWatermark | None:
        """The marks of one queue; None when it is not there."""
        marks = self._parts.store.marks_of(topic, queue_id)
        if marks is None:
            return None
        return QueueWatermark(
            topic=topic,
            queue_id=queue_id,
            min_offset=marks.min_offset,
            max_offset=marks.max_offset,
            flushed_offset=marks.flushed_offset,
            replicated_offset=None,
            last_store_time_ms=marks.last_store_time_ms,
            readable=self._is_readable(topic, queue_id),
        )

    def _is_readable(self, topic: str, queue_id: int) -> bool:
        """May anybody pull from it? Not beyond readQueueNums, nor without read permission."""
        config = self._parts.topics.find(topic)
        return config is not None and queue_id < config.read_queue_nums and bool(config.perm & READ)

    def of_group(self, key: QueueKey, now_ms: int, *, reports: int) -> GroupWatermark:
        """The marks of one group on one queue; `reports` is handed through."""
        parts = self._parts
        group, topic, queue_id = key
        store, reading = parts.store, parts.readers.of(key)
        minimum, maximum = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        committed = parts.offsets.committed(group, topic, queue_id)
        state = committed_state(
            committed, minimum, maximum, readable=self._is_readable(topic, queue_id)
        )
        store_time_ms = None
        if state in {"EXACT", "UNREADABLE"} and committed is not None:
            store_time_ms = store.store_time_at(topic, queue_id, committed)
            if store_time_ms is None:  # Its bytes went between the two looks: retention was faster.
                state = "PURGED"
        reported = parts.offsets.reported(key)
        members = parts.groups.of(group)
        queue = MessageQueue(topic, parts.config.broker_name, queue_id)
        return GroupWatermark(
            group=group,
            topic=topic,
            queue_id=queue_id,
            pulled=None if reading is None else reading.pulled_offset,
            processed=parts.processed.get(key),
            committed=committed,
            persisted=parts.offsets.persisted(group, topic, queue_id),
            committed_state=state,
            store_time_at_committed_ms=store_time_ms,
            min_offset=minimum,
            max_offset=maximum,
            last_store_time_ms=store.last_store_time(topic, queue_id),
            last_puller=None if reading is None else reading.last_puller,
            lock_holder=parts.locks.holder(group, queue, now_ms=now_ms),
            last_pull_time_ms=None if reading is None else reading.last_pull_ms,
            last_commit_time_ms=None if reported is None else reported.last_commit_ms,
            reports=reports,
            message_model=None if members is None else members.message_model,
            members=0 if members is None else len(members.members),
        )

    def _tell_group(self, key: QueueKey, now_ms: int, *, always: bool) -> None:
        reported = self._parts.offsets.reported(key)
        mark = self.of_group(key, now_ms, reports=0 if reported is None else reported.count)
        told = self._told_groups.get(key)
        if not always and told is not None and mark.reports == 0 and told == mark:
            return
        self._parts.offsets.take_reports(key)
        self._parts.observer.observe(mark)
        self._told_groups[key] = replace(mark, reports=0)


def committed_state(
    committed: int | None, minimum: int, maximum: int, *, readable: bool = True
) -> str:
    """What the message AT the consume offset is: EXACT (kept), AT_END (not there yet), PURGED (no
    longer there), NONE (no offset), UNREADABLE (kept where nobody may read). An offset beyond the
    end waits for messages as one at the end.
    """
    if committed is None:
        return "NONE"
    if committed >= maximum:
        return "AT_END"
    if committed < minimum:
        return "PURGED"
    return "EXACT" if readable else "UNREADABLE"
