"""Watermarks: the state of every queue, and of every group on it, on each second of the clock.

Place in the walk: beside it; the tables that handlers and dispatch move are read here once a second
and told to the observer when they changed, each once in 30 s, and at once for the queues of a
client that left, expired, was revoked or reset. Those that stand still take turns: all of 40,000 at
once would hold up the loop for a second.

Invariant: a row tells one instant: all of its columns are read in the same turn of the loop.
Absent on purpose: timers (broker), what follows from the rows (pipelines).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import chain, islice
from typing import Generic, TypeVar

from engine.broker.parts import BrokerParts
from engine.broker.state.readers import QueueKey
from engine.foundation.limits import WATERMARKS_PER_SAMPLE_MAX
from engine.foundation.observing import GroupWatermark, QueueWatermark
from engine.protocol.message import MessageQueue
from engine.protocol.names import PERM_READ
from engine.store.queries import QueueMarks

Key = TypeVar("Key")
Mark = TypeVar("Mark")


class Told(Generic[Key, Mark]):
    """What was told last of each key, the longest ago first."""

    def __init__(self, round_samples: int) -> None:
        self._round_samples = round_samples
        self._marks: OrderedDict[Key, Mark] = OrderedDict()
        self._owed = 0

    def get(self, key: Key) -> Mark | None:
        """The mark told last; None for one that never was."""
        return self._marks.get(key)

    def note(self, key: Key, mark: Mark) -> None:
        """This was told just now."""
        self._marks[key] = mark
        self._marks.move_to_end(key)

    def forget_all_but(self, keys: Collection[Key]) -> None:
        """Forget keys that are there no more."""
        for key in [key for key in self._marks if key not in keys]:
            del self._marks[key]

    def forget(self, key: Key) -> None:
        """Forget one that is there no more."""
        self._marks.pop(key, None)

    def next_in_round(self) -> dict[Key, None]:
        """Those told longest ago: so many that each comes up once in a round of samples."""
        count, self._owed = divmod(self._owed + len(self._marks), self._round_samples)
        return dict.fromkeys(islice(self._marks, count))


class Watermarks:
    """Reads the marks, and remembers what was told last."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        config = parts.config
        round_samples = max(1, config.full_sample_interval_ms // config.sample_interval_ms)
        self._told_queues: Told[tuple[str, int], tuple[QueueMarks, bool]] = Told(round_samples)
        self._moved: dict[tuple[str, int], None] = {}
        """Queues that may have moved since they were looked at, the longest ago first."""
        self._told_of_topics = -1
        """Version of the topics at the last sample."""
        self._told_groups: Told[QueueKey, GroupWatermark] = Told(round_samples)
        self._groups_looked_at = 0
        """Where the next sample goes on, when there are more of them than it has time for."""

    def sample(self, now_ms: int, *, everything: bool = False) -> None:
        """Tell the marks that changed since they were told last, and of the others those whose turn
        it is in this round; or all. `now_ms` is steady time, as leases go by it.
        """
        self._sample_queues(everything=everything)
        keys = dict.fromkeys([*self._parts.offsets.keys(), *self._parts.readers.all_keys()])
        self._told_groups.forget_all_but(keys)
        always = keys if everything else self._told_groups.next_in_round()
        for key in always | self._groups_to_look_at(keys):
            self._tell_group(key, now_ms, always=key in always)

    def _groups_to_look_at(self, keys: dict[QueueKey, None]) -> dict[QueueKey, None]:
        """All, or of very many as many as a sample has time for, going round."""
        if len(keys) <= WATERMARKS_PER_SAMPLE_MAX:
            return keys
        begin = self._groups_looked_at % len(keys)
        self._groups_looked_at = begin + WATERMARKS_PER_SAMPLE_MAX
        twice = chain(keys, keys)
        return dict.fromkeys(islice(twice, begin, begin + WATERMARKS_PER_SAMPLE_MAX))

    def _sample_queues(self, *, everything: bool) -> None:
        """Hot with many queues: one that stands still costs nothing, and of those that move so many
        are told that the loop is not held up; the others come first in the next sample.
        """
        store, told, waiting = self._parts.store, self._told_queues, self._moved
        version = self._parts.topics.counter
        same_topics, self._told_of_topics = version == self._told_of_topics, version
        waiting.update(dict.fromkeys(store.moved_queues()))
        if everything or not same_topics:
            waiting.update(dict.fromkeys(store.queues()))
        always = dict(waiting) if everything else told.next_in_round()
        count = max(0, WATERMARKS_PER_SAMPLE_MAX - len(always))
        for key in always | dict.fromkeys(islice(waiting, count)):
            waiting.pop(key, None)
            marks = store.marks_of(*key)
            if marks is None:
                told.forget(key)
                continue
            found = (marks, self._is_readable(*key))
            if key in always or found != told.get(key):
                self._parts.observer.observe(_queue_watermark(key, *found))
                told.note(key, found)
            if marks.flushed_offset != marks.max_offset:
                waiting[key] = None  # It moves once more, when that is flushed.

    def tell(self, keys: Iterable[QueueKey], now_ms: int) -> None:
        """Tell the marks of these queues of groups now, changed or not."""
        for key in keys:
            self._tell_group(key, now_ms, always=True)

    def _is_readable(self, topic: str, queue_id: int) -> bool:
        """May anybody pull from it? Not beyond readQueueNums, nor without read permission."""
        config = self._parts.topics.find(topic)
        return (
            config is not None
            and queue_id < config.read_queue_nums
            and bool(config.perm & PERM_READ)
        )

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
        self._told_groups.note(key, replace(mark, reports=0))


def _queue_watermark(key: tuple[str, int], marks: QueueMarks, is_readable: bool) -> QueueWatermark:
    """The row of a queue."""
    return QueueWatermark(
        *key,
        min_offset=marks.min_offset,
        max_offset=marks.max_offset,
        flushed_offset=marks.flushed_offset,
        replicated_offset=None,
        last_store_time_ms=marks.last_store_time_ms,
        readable=is_readable,
    )


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
