"""Watermarks: the state of every queue, and of every group on it, on each second of the clock.

Place in the walk: beside it; whatever moves a mark notes the queue or the group it moved, and once
a second those are read and told to the observer when they changed, all of them in each snapshot
besides, and at once for the queues of a client that left, expired, was revoked or reset. What
stands still is not looked at but for its turn in a snapshot: to look at 100,000 queues of groups
holds the loop for a second.

A snapshot begins at boot, each `full_sample_interval_ms`, and at once when facts were lost; it is
told in the course of some samples, and its end by a SNAPSHOT (`engine.telemetry.tables` says what a
reader may conclude from it). When facts are lost before its end none is told, and the next begins.

Invariant: a row tells one instant: all of its columns are read in the same turn of the loop. No
step reads more than LOOP_STEP_ENTRIES_MAX marks. Nothing of a topic or a group is told while it is
being deleted. Absent on purpose: timers (broker), what follows from the rows (pipelines).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from engine.broker.parts import BrokerParts
from engine.broker.state.readers import QueueKey
from engine.broker.told_marks import ToldMarks, ToldPairs
from engine.broker.work_in_steps import stepped
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX, WATERMARKS_PER_SAMPLE_MAX
from engine.foundation.observing import (
    GroupWatermark,
    LifecycleEvent,
    QueueWatermark,
    ToldUpTo,
)
from engine.protocol.names import PERM_READ
from engine.store.queue_table import QueueMarks

NOTED_PER_STEP = 10 * LOOP_STEP_ENTRIES_MAX
"""Marks that one step notes as moved: to note one costs less than a tenth of reading it."""

SNAPSHOT_TURNS_MIN = WATERMARKS_PER_SAMPLE_MAX // 2
"""Marks of each kind that a sample tells of a snapshot, if there are so many; more when it would
not end within its interval else."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One that has begun."""

    at: ToldUpTo
    began_ms: int
    """Wall-clock time."""


@dataclass(slots=True)
class QueueRead:
    """What one step of the loop has read of a queue, for all groups on it."""

    marks: QueueMarks
    is_readable: bool
    store_times_ms: dict[int, int | None]
    """Of the messages at offsets that were asked for."""


NO_MESSAGES: Final = QueueMarks(0, 0, 0, None)

Reads = dict[tuple[str, int], QueueRead]
"""What one step of the loop has read, by (topic, queue_id)."""


class Watermarks:
    """Reads the marks, and remembers what was told last."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        config = parts.config
        self._round_ms = config.full_sample_interval_ms
        self._round_samples = max(1, config.full_sample_interval_ms // config.sample_interval_ms)
        self._queues: ToldMarks[tuple[str, int], tuple[QueueMarks, bool]] = ToldMarks()
        for queue in parts.store.queues():
            self._queues.moved(queue)
        self._queue_ids: dict[str, list[int]] = {}
        """Queues that were told, by topic."""
        self._groups: ToldMarks[QueueKey, GroupWatermark] = ToldMarks()
        self._pairs = ToldPairs()
        self._snapshot: Snapshot | None = None
        """The one under way."""
        self._next_snapshot_ms: int | None = None
        """Steady time; None: as soon as may be."""
        self._losses = 0
        """Of the observer, when the last snapshot began."""

    @property
    def waiting_count(self) -> int:
        """Queues of groups that may have moved and were not looked at since."""
        return self._groups.waiting_count

    def sample(self, now_ms: int, *, everything: bool = False) -> Iterator[None]:
        """Tell the marks that changed since they were told last, and those whose turn it is in a
        snapshot; or a snapshot of all from its begin to its end. Done in steps, of
        LOOP_STEP_ENTRIES_MAX marks each. `now_ms` is steady time, as leases go by it.
        """
        yield from stepped(self._parts.locks.drop_expired(now_ms))
        yield from stepped(self._note_moved(), NOTED_PER_STEP)
        if everything:
            yield from stepped(self._note_all(), NOTED_PER_STEP)
        self._begin_snapshot_if_due(now_ms, at_once=everything)
        yield from stepped(self._sample_queues(everything=everything))
        yield from self._sample_groups(now_ms, everything=everything)
        self._end_snapshot_if_complete()

    def _begin_snapshot_if_due(self, now_ms: int, *, at_once: bool) -> None:
        at = self._parts.observer.told_up_to()
        if at is None or not (self._queues.round_is_over and self._groups.round_is_over):
            return
        due_ms = self._next_snapshot_ms
        if at_once or due_ms is None or now_ms >= due_ms or at.losses != self._losses:
            self._snapshot = Snapshot(at, self._parts.now_ms())
            self._losses = at.losses
            self._next_snapshot_ms = now_ms + self._round_ms
            self._queues.begin_round()
            self._groups.begin_round()

    def _end_snapshot_if_complete(self) -> None:
        snapshot, observer = self._snapshot, self._parts.observer
        if snapshot is None or not (self._queues.round_is_over and self._groups.round_is_over):
            return
        self._snapshot = None
        at = observer.told_up_to()
        if at is None or at.losses != snapshot.at.losses:
            self._next_snapshot_ms = None
            return
        detail = f"{len(self._queues)} queues, {len(self._groups)} queues of groups"
        observer.observe(
            LifecycleEvent(
                "SNAPSHOT", detail, seq_from=snapshot.at.seq, time_from_ms=snapshot.began_ms
            )
        )

    def _turns(self, told_count: int) -> int:
        """Marks that one sample tells of a snapshot."""
        return max(SNAPSHOT_TURNS_MIN, told_count // self._round_samples + 1)

    def _note_moved(self) -> Iterator[None]:
        """Ask the tables what moved since the last sample, and whom it concerns, one by one."""
        parts, pairs = self._parts, self._pairs
        queues = parts.store.moved_queues()
        for queue in queues:
            self._queues.moved(queue)
            yield
        for source in (parts.offsets, parts.readers, parts.locks):
            yield from self._note(source.take_moved())
        for heard in (parts.offsets.take_heard(), parts.readers.take_heard()):
            yield from self._note_waited_for(heard)
        for topic in parts.topics.take_moved():  # Who may read its queues has changed.
            for queue_id in self._queue_ids.get(topic, ()):
                self._queues.moved((topic, queue_id))
            yield from self._note(pairs.of_topic(topic))
        for group in parts.groups.take_moved():
            yield from self._note(pairs.of_group(group))
        yield from self._note_readers_of(queues)

    def _note_all(self) -> Iterator[None]:
        """All that is there, once nobody is served: the sample before may have been given up after
        it had asked what moved.
        """
        for queue in self._parts.store.queues():
            self._queues.moved(queue)
            yield
        yield from self._note(self._parts.offsets.keys())
        yield from self._note(self._parts.readers.keys())

    def _note(self, keys: Iterable[QueueKey]) -> Iterator[None]:
        for key in keys:
            self._groups.moved(key)
            yield
        yield

    def _note_waited_for(self, keys: Iterable[QueueKey]) -> Iterator[None]:
        """Their groups pulled or reported, and nothing moved: that says something only while
        messages wait for the group, or when it was never told of.
        """
        for key in keys:
            told = self._groups.get(key)
            if told is None or are_waiting(
                self._parts.offsets.committed(*key),
                told.pulled,
                self._parts.store.max_offset(*key[1:]),
            ):
                self._groups.moved(key)
            yield

    def _note_readers_of(self, queues: Iterable[tuple[str, int]]) -> Iterator[None]:
        """Their ends moved, and so did how far every group on them is behind."""
        for topic, queue_id in queues:
            for group in self._pairs.groups_on(topic):
                key = (group, topic, queue_id)
                if key in self._groups:
                    self._groups.moved(key)
                yield
            yield

    def _sample_queues(self, *, everything: bool) -> Iterator[None]:
        """One that stands still costs nothing, and of those that move WATERMARKS_PER_SAMPLE_MAX are
        told; the others come first in the next sample.
        """
        turns = None if everything else self._turns(len(self._queues))
        count = None if everything else WATERMARKS_PER_SAMPLE_MAX
        for key, always in self._queues.due(turns=turns, moved=count).items():
            self._queues.looked_at(key)
            self._look_at_queue(key, always=always)
            yield

    def _look_at_queue(self, key: tuple[str, int], *, always: bool) -> None:
        topic, queue_id = key
        if topic in self._parts.topics.being_deleted:
            self._queues.moved(key)
            return
        told, marks = self._queues, self._parts.store.marks_of(topic, queue_id)
        if marks is None:
            if told.forget(key):
                self._queue_ids[topic].remove(queue_id)
                if not self._queue_ids[topic]:
                    del self._queue_ids[topic]
            return
        found, last = (marks, self._is_readable(topic, queue_id)), told.get(key)
        if last is None:
            self._queue_ids.setdefault(topic, []).append(queue_id)
        if always or found != last:
            self._parts.observer.observe(_queue_watermark(key, *found))
            told.told(key, found)
        if marks.flushed_offset != marks.max_offset:
            told.moved(key)  # It moves once more, when that is flushed.

    def _sample_groups(self, now_ms: int, *, everything: bool) -> Iterator[None]:
        turns = None if everything else self._turns(len(self._groups))
        count = None if everything else WATERMARKS_PER_SAMPLE_MAX
        due = iter(self._groups.due(turns=turns, moved=count).items())
        while step := list(islice(due, LOOP_STEP_ENTRIES_MAX)):
            self._tell_groups(step, now_ms)
            yield

    def tell(self, keys: Iterable[QueueKey], now_ms: int) -> None:
        """Tell the marks of these queues of groups now, changed or not; of very many the first ones
        now, the rest in the next steps.
        """
        self._parts.work.add(self._tell_each(list(keys), now_ms))

    def _tell_each(self, keys: Sequence[QueueKey], now_ms: int) -> Iterator[None]:
        for begin in range(0, len(keys), LOOP_STEP_ENTRIES_MAX):
            if begin:
                yield
            step = keys[begin : begin + LOOP_STEP_ENTRIES_MAX]
            self._tell_groups([(key, True) for key in step], now_ms)

    def _is_readable(self, topic: str, queue_id: int) -> bool:
        """May anybody pull from it? Not beyond readQueueNums, nor without read permission."""
        config = self._parts.topics.find(topic)
        return (
            config is not None
            and queue_id < config.read_queue_nums
            and bool(config.perm & PERM_READ)
        )

    def _read(self, topic: str, queue_id: int) -> QueueRead:
        marks = self._parts.store.marks_of(topic, queue_id)
        return QueueRead(marks or NO_MESSAGES, self._is_readable(topic, queue_id), {})

    def of_group(self, key: QueueKey, now_ms: int, reads: Reads) -> GroupWatermark | None:
        """The marks of one group on one queue, with the reports since they were told; None when
        the group never pulled it and has no offset for it. Hot.
        """
        parts = self._parts
        group, topic, queue_id = key
        standing, reading = parts.offsets.standing(key), parts.readers.of(key)
        committed, reported = standing.committed, standing.reported
        if committed is None and reading is None:
            return None
        read = reads.get((topic, queue_id))
        if read is None:
            read = reads[topic, queue_id] = self._read(topic, queue_id)
        minimum, maximum, _, last_store_time_ms = read.marks
        state = committed_state(committed, minimum, maximum, readable=read.is_readable)
        store_time_ms = None
        if committed is not None and state in {"EXACT", "UNREADABLE"}:
            times_ms = read.store_times_ms  # Groups that keep pace are at the same one.
            if committed not in times_ms:
                times_ms[committed] = parts.store.store_time_at(topic, queue_id, committed)
            store_time_ms = times_ms[committed]
            if store_time_ms is None:  # Its bytes went between the two looks: retention was faster.
                state = "PURGED"
        members = parts.groups.of(group)
        return GroupWatermark(  # By position: names cost a microsecond more.
            group,
            topic,
            queue_id,
            None if reading is None else reading.pulled_offset,
            None if reading is None else reading.processed_offset,
            committed,
            standing.persisted,
            state,
            store_time_ms,
            minimum,
            maximum,
            last_store_time_ms,
            None if reading is None else reading.last_puller,
            parts.locks.holder_of(key, parts.config.broker_name, now_ms=now_ms),
            None if reading is None else reading.last_pull_ms,
            None if reported is None else reported.last_commit_ms,
            0 if reported is None else reported.count,
            None if members is None else members.message_model,
            0 if members is None else len(members.members),
        )

    def _tell_groups(self, step: Sequence[tuple[QueueKey, bool]], now_ms: int) -> None:
        """Look at these in one step of the loop; True: tell its marks changed or not. Hot."""
        parts, groups = self._parts, self._groups
        topics_leaving, groups_leaving = (
            parts.topics.being_deleted,
            parts.group_configs.being_deleted,
        )
        reads: Reads = {}
        facts: list[GroupWatermark] = []
        for key, always in step:
            groups.looked_at(key)
            if key[1] in topics_leaving or key[0] in groups_leaving:
                groups.moved(key)
                continue
            mark, told = self.of_group(key, now_ms, reads), groups.get(key)
            if mark is None:
                if groups.forget(key):
                    self._pairs.drop(key)
                continue
            if not always and told is not None and not is_news(told, mark):
                continue
            if mark.reports:
                parts.offsets.take_reports(key)
            facts.append(mark)
            if told is None:
                self._pairs.add(key)
            groups.told(key, mark)
        parts.observer.observe_all(facts)


def is_news(told: GroupWatermark, now: GroupWatermark) -> bool:
    """Does a row say more than the one told last? A pull or a report that moved nothing is news
    only while messages wait for the group. Those that move most are compared first. Hot.
    """
    if (
        now.committed != told.committed
        or now.max_offset != told.max_offset
        or now.pulled != told.pulled
        or now.processed != told.processed
        or now.persisted != told.persisted
        or now.min_offset != told.min_offset
        or now.committed_state != told.committed_state
        or now.last_puller != told.last_puller
        or now.lock_holder != told.lock_holder
        or now.members != told.members
        or now.message_model != told.message_model
        or now.last_store_time_ms != told.last_store_time_ms
        or now.store_time_at_committed_ms != told.store_time_at_committed_ms
    ):
        return True
    if not are_waiting(now.committed, now.pulled, now.max_offset):
        return False
    return now.reports > 0 or now.last_pull_time_ms != told.last_pull_time_ms


def are_waiting(committed: int | None, pulled: int | None, maximum: int) -> bool:
    """Are there messages that the group has not consumed? One without an offset has consumed what
    it has pulled, for all that is known here.
    """
    reached = pulled if committed is None else committed
    return reached is None or reached < maximum


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
