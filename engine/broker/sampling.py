"""Watermarks: the state of every queue, and of every group on it, on each second of the clock.

Place in the walk: beside it; whatever moves a mark notes the queue or the group it moved, and once
a second those are read and told to the observer when they changed, each once in 30 s besides, and
at once for the queues of a client that left, expired, was revoked or reset. What stands still is
not looked at but for its turn: to look at 100,000 queues of groups holds the loop for 0.2 s.

Invariant: a row tells one instant: all of its columns are read in the same turn of the loop. No
step reads more than LOOP_STEP_ENTRIES_MAX marks. Absent on purpose: timers (broker), what follows
from the rows (pipelines).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Generic, TypeVar

from engine.broker.parts import BrokerParts
from engine.broker.state.readers import QueueKey
from engine.broker.work_in_steps import stepped
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX, WATERMARKS_PER_SAMPLE_MAX
from engine.foundation.observing import GroupWatermark, QueueWatermark
from engine.protocol.message import MessageQueue
from engine.protocol.names import PERM_READ
from engine.store.queue_table import QueueMarks

NOTED_PER_STEP = 10 * LOOP_STEP_ENTRIES_MAX
"""Marks that one step notes as moved: to note one costs less than a tenth of reading it."""

Key = TypeVar("Key")
Mark = TypeVar("Mark")


class Told(Generic[Key, Mark]):
    """What was told last of each key, the longest ago first."""

    def __init__(self, round_samples: int) -> None:
        self._round_samples = round_samples
        self._marks: OrderedDict[Key, Mark] = OrderedDict()
        self._owed = 0

    def __contains__(self, key: Key) -> bool:
        """Was it told, and is it still there?"""
        return key in self._marks

    def get(self, key: Key) -> Mark | None:
        """The mark told last; None for one that never was."""
        return self._marks.get(key)

    def note(self, key: Key, mark: Mark) -> None:
        """This was told just now."""
        self._marks[key] = mark
        self._marks.move_to_end(key)

    def forget(self, key: Key) -> bool:
        """Forget one that is there no more; was it there?"""
        return self._marks.pop(key, None) is not None

    def keys(self) -> Collection[Key]:
        """All that were told, the longest ago first."""
        return self._marks.keys()

    def next_in_round(self) -> dict[Key, None]:
        """Those told longest ago: so many that each comes up once in a round of samples."""
        count, self._owed = divmod(self._owed + len(self._marks), self._round_samples)
        return dict.fromkeys(islice(self._marks, count))


class ToldPairs:
    """The queues of groups that were told, by topic and by group: who is concerned when a queue, a
    topic or a group moves.
    """

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[str, list[int]]] = {}
        self._by_group: dict[str, dict[str, list[int]]] = {}

    def add(self, key: QueueKey) -> None:
        """The key is told for the first time."""
        group, topic, queue_id = key
        queue_ids = self._by_topic.setdefault(topic, {}).setdefault(group, [])
        self._by_group.setdefault(group, {})[topic] = queue_ids
        queue_ids.append(queue_id)

    def drop(self, key: QueueKey) -> None:
        """The key, which was added, is gone."""
        group, topic, queue_id = key
        queue_ids = self._by_topic[topic][group]
        queue_ids.remove(queue_id)
        if not queue_ids:
            for table, name, other in (
                (self._by_topic, topic, group),
                (self._by_group, group, topic),
            ):
                del table[name][other]
                if not table[name]:
                    del table[name]

    def groups_on(self, topic: str) -> list[str]:
        """Groups of which a queue of the topic was told."""
        return list(self._by_topic.get(topic, ()))

    def of_topic(self, topic: str) -> list[QueueKey]:
        """Every key of the topic."""
        found = self._by_topic.get(topic, {})
        return [(group, topic, one) for group, queue_ids in found.items() for one in queue_ids]

    def of_group(self, group: str) -> list[QueueKey]:
        """Every key of the group."""
        found = self._by_group.get(group, {})
        return [(group, topic, one) for topic, queue_ids in found.items() for one in queue_ids]


class Watermarks:
    """Reads the marks, and remembers what was told last."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        config = parts.config
        round_samples = max(1, config.full_sample_interval_ms // config.sample_interval_ms)
        self._told_queues: Told[tuple[str, int], tuple[QueueMarks, bool]] = Told(round_samples)
        self._moved_queues: dict[tuple[str, int], None] = dict.fromkeys(parts.store.queues())
        """Queues that may have moved since they were looked at, the longest ago first."""
        self._queue_ids: dict[str, list[int]] = {}
        """Queues that were told, by topic."""
        self._told_groups: Told[QueueKey, GroupWatermark] = Told(round_samples)
        self._told_pairs = ToldPairs()
        self._moved_groups: dict[QueueKey, None] = {}
        """As `_moved_queues`, of queues of groups."""

    def sample(self, now_ms: int, *, everything: bool = False) -> Iterator[None]:
        """Tell the marks that changed since they were told last, and of the others those whose turn
        it is in this round; or all. Done in steps, of LOOP_STEP_ENTRIES_MAX marks each. `now_ms` is
        steady time, as leases go by it.
        """
        yield from stepped(self._parts.locks.drop_expired(now_ms))
        yield from stepped(self._note_moved(), NOTED_PER_STEP)
        yield from stepped(self._sample_queues(everything=everything))
        yield from stepped(self._sample_groups(now_ms, everything=everything))

    def _note_moved(self) -> Iterator[None]:
        """Ask the tables what moved since the last sample, and whom it concerns, one by one."""
        parts, pairs = self._parts, self._told_pairs
        queues = parts.store.moved_queues()
        for queue in queues:
            self._moved_queues[queue] = None
            yield
        for source in (parts.offsets, parts.readers, parts.locks):
            yield from self._note(source.take_moved())
        for topic in parts.topics.take_moved():  # Who may read its queues has changed.
            for queue_id in self._queue_ids.get(topic, ()):
                self._moved_queues[topic, queue_id] = None
            yield from self._note(pairs.of_topic(topic))
        for group in parts.groups.take_moved():
            yield from self._note(pairs.of_group(group))
        yield from self._note_readers_of(queues)

    def _note(self, keys: Iterable[QueueKey]) -> Iterator[None]:
        for key in keys:
            self._moved_groups[key] = None
            yield
        yield

    def _note_readers_of(self, queues: Iterable[tuple[str, int]]) -> Iterator[None]:
        """Their ends moved, and so did how far every group on them is behind."""
        for topic, queue_id in queues:
            for group in self._told_pairs.groups_on(topic):
                key = (group, topic, queue_id)
                if key in self._told_groups:
                    self._moved_groups[key] = None
                yield
            yield

    def _sample_queues(self, *, everything: bool) -> Iterator[None]:
        """One that stands still costs nothing, and of those that move WATERMARKS_PER_SAMPLE_MAX are
        told; the others come first in the next sample.
        """
        told, waiting = self._told_queues, self._moved_queues
        if everything:
            due = dict.fromkeys([*waiting, *told.keys()])
            always: Collection[tuple[str, int]] = due
        else:
            always = told.next_in_round()
            count = max(0, WATERMARKS_PER_SAMPLE_MAX - len(always))
            due = always | dict.fromkeys(islice(waiting, count))
        for key in due:
            waiting.pop(key, None)
            self._look_at_queue(key, always=key in always)
            yield

    def _look_at_queue(self, key: tuple[str, int], *, always: bool) -> None:
        told, marks = self._told_queues, self._parts.store.marks_of(*key)
        topic, queue_id = key
        if marks is None:
            if told.forget(key):
                self._queue_ids[topic].remove(queue_id)
                if not self._queue_ids[topic]:
                    del self._queue_ids[topic]
            return
        found, last = (marks, self._is_readable(*key)), told.get(key)
        if last is None:
            self._queue_ids.setdefault(topic, []).append(queue_id)
        if always or found != last:
            self._parts.observer.observe(_queue_watermark(key, *found))
            told.note(key, found)
        if marks.flushed_offset != marks.max_offset:
            self._moved_queues[key] = None  # It moves once more, when that is flushed.

    def _sample_groups(self, now_ms: int, *, everything: bool) -> Iterator[None]:
        told, waiting = self._told_groups, self._moved_groups
        if everything:
            due = dict.fromkeys([*waiting, *told.keys()])
            always: Collection[QueueKey] = due
        else:
            always = told.next_in_round()
            due = always | dict.fromkeys(islice(waiting, WATERMARKS_PER_SAMPLE_MAX))
        for key in due:
            waiting.pop(key, None)
            self._tell_group(key, now_ms, always=key in always)
            yield

    def tell(self, keys: Iterable[QueueKey], now_ms: int) -> None:
        """Tell the marks of these queues of groups now, changed or not; of very many the first ones
        now, the rest in the next steps.
        """
        self._parts.work.add(stepped(self._tell_each(list(keys), now_ms)))

    def _tell_each(self, keys: Iterable[QueueKey], now_ms: int) -> Iterator[None]:
        for key in keys:
            self._tell_group(key, now_ms, always=True)
            yield

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
            processed=None if reading is None else reading.processed_offset,
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
        offsets, told = self._parts.offsets, self._told_groups.get(key)
        if offsets.committed(*key) is None and key not in self._parts.readers:
            if self._told_groups.forget(key):
                self._told_pairs.drop(key)
            return
        reported = offsets.reported(key)
        mark = self.of_group(key, now_ms, reports=0 if reported is None else reported.count)
        if not always and told is not None and mark.reports == 0 and told == mark:
            return
        offsets.take_reports(key)
        self._parts.observer.observe(mark)
        if told is None:
            self._told_pairs.add(key)
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
