"""Watermarks: the state of every queue, and of every group on it, on each second of the clock.

Place in the walk: beside it; whatever moves a mark notes the queue or the group it moved, and once
a second those are read and told to the observer when they changed, all of them in each snapshot
besides, and at once for the queues of a client that left, expired, was revoked or reset. What
stands still is not looked at but for its turn in a snapshot: to look at 100,000 queues of groups
holds the loop for a second.

A snapshot begins at boot, each `full_sample_interval_ms`, and at once when facts were lost, for
that reason no more often than each SNAPSHOT_DISTANCE_MS; it is told in the course of some samples,
and its end by a SNAPSHOT (`engine.telemetry.tables` says what a reader may conclude from it). When
facts are lost before its end none is told, and the next begins. One that somebody waits for (the
first, and one after a loss) is told in SNAPSHOT_IN_HASTE_SAMPLES; others take their whole interval
if they are long.

Invariant: a row tells one instant: all of its columns are read in the same turn of the loop. No
step reads more than LOOP_STEP_ENTRIES_MAX marks. Nothing of a topic or a group is told while it is
being deleted. Absent on purpose: timers (broker), what follows from the rows (pipelines).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

from engine.broker.parts import BrokerParts
from engine.broker.reused_offsets import note_handed, tell_reused
from engine.broker.state.offsets import Reported
from engine.broker.state.readers import QueueKey
from engine.broker.told_marks import ToldMarks, ToldPairs
from engine.broker.work_in_steps import counted, stepped
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX, WATERMARKS_PER_SAMPLE_MAX
from engine.foundation.observing import (
    GroupWatermark,
    LifecycleEvent,
    QueueWatermark,
    ToldUpTo,
    committed_state,
)
from engine.foundation.units import SECOND_MS
from engine.protocol.names import PERM_READ
from engine.store.queue_table import QueueMarks

NOTED_PER_STEP = 10 * LOOP_STEP_ENTRIES_MAX
"""Marks that one step notes as moved: to note one costs less than a tenth of reading it."""

NOTED_AT_ONCE = LOOP_STEP_ENTRIES_MAX // 2
"""Marks of a step that are noted in one go."""

SNAPSHOT_TURNS_MIN = WATERMARKS_PER_SAMPLE_MAX // 2
"""Marks of each kind that a sample tells of a snapshot, if there are so many; more when it would
not end in time else."""

SNAPSHOT_IN_HASTE_SAMPLES = 30
"""Until it ends, nothing is known of the broker after a loss: in so many samples it does."""

SNAPSHOT_DISTANCE_MS = 5 * SECOND_MS
"""Between the begins of two snapshots because of losses: a disk that fails again and again makes no
broker tell everything all the time."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One that has begun."""

    at: ToldUpTo
    began_ms: int
    """Wall-clock time."""
    in_haste: bool
    """Is nothing known of the broker until it ends?"""
    again_ms: int
    """Steady time from which on the next one may begin if this one comes to nothing."""


@dataclass(slots=True)
class QueueRead:
    """What one step of the loop has read of a queue, for all groups on it."""

    marks: QueueMarks
    is_readable: bool
    at: dict[int | None, tuple[str, int | None]]
    """What the message at each offset that was asked for is, and when it was stored (ms)."""


NO_MESSAGES: Final = QueueMarks(0, 0, 0, None)

GroupRead = tuple[str | None, int, bool]
"""(message model, members, may it have leases?)"""


@dataclass(slots=True)
class Reads:
    """What one step of the loop has read: what several of its rows have in common."""

    queues: dict[tuple[str, int], QueueRead] = field(default_factory=dict)
    groups: dict[str, GroupRead] = field(default_factory=dict)


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
        self._hasty_from_ms = 0
        """Steady time from which on a loss may begin another one."""

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
        yield from counted(self._note_moved(), NOTED_PER_STEP)
        if everything:
            yield from counted(self._note_all(), NOTED_PER_STEP)
        self._begin_snapshot_if_due(now_ms, at_once=everything)
        yield from stepped(self._sample_queues(everything=everything))
        yield from self._sample_groups(now_ms, everything=everything)
        note_handed(self._parts)
        tell_reused(self._parts)
        yield
        self._end_snapshot_if_complete()

    def _begin_snapshot_if_due(self, now_ms: int, *, at_once: bool) -> None:
        at = self._parts.observer.told_up_to()
        if at is None or not (self._queues.round_is_over and self._groups.round_is_over):
            return
        due_ms = self._next_snapshot_ms
        is_lost = at.losses != self._losses and now_ms >= self._hasty_from_ms
        if at_once or due_ms is None or now_ms >= due_ms or is_lost:
            again_ms = now_ms + SNAPSHOT_DISTANCE_MS
            if is_lost:
                self._hasty_from_ms = again_ms
            in_haste = due_ms is None or is_lost
            self._snapshot = Snapshot(at, self._parts.now_ms(), in_haste, again_ms)
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
        if at is None:  # Nothing can be told just now, which need not be a loss.
            self._next_snapshot_ms = snapshot.again_ms
            return
        if at.losses != snapshot.at.losses:
            return  # The next one begins because of the loss.
        detail = f"{len(self._queues)} queues, {len(self._groups)} queues of groups"
        observer.observe(
            LifecycleEvent(
                "SNAPSHOT", detail, seq_from=snapshot.at.seq, time_from_ms=snapshot.began_ms
            )
        )

    @property
    def _is_in_haste(self) -> bool:
        return self._snapshot is not None and self._snapshot.in_haste

    def _turns(self, told_count: int) -> int:
        """Marks that one sample tells of a snapshot."""
        samples = self._round_samples
        if self._is_in_haste:
            samples = min(samples, SNAPSHOT_IN_HASTE_SAMPLES)
        return max(SNAPSHOT_TURNS_MIN, told_count // samples + 1)

    def _moved_max(self, waiting_count: int) -> int:
        """Marks that one sample looks at because they may have moved; at boot that is all."""
        if not self._is_in_haste:
            return WATERMARKS_PER_SAMPLE_MAX
        return max(WATERMARKS_PER_SAMPLE_MAX, self._turns(waiting_count))

    def _note_moved(self) -> Iterator[int]:
        """Ask the tables what moved since the last sample, and whom it concerns; how many are noted
        at a time."""
        parts, pairs = self._parts, self._pairs
        queues = parts.store.moved_queues()
        for queue in queues:
            self._queues.moved(queue)
            yield 1
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

    def _note_all(self) -> Iterator[int]:
        """All that is there, once nobody is served: the sample before may have been given up after
        it had asked what moved.
        """
        for queue in self._parts.store.queues():
            self._queues.moved(queue)
            yield 1
        yield from self._note(self._parts.offsets.keys())
        yield from self._note(self._parts.readers.keys())

    def _note(self, keys: Iterable[QueueKey]) -> Iterator[int]:
        waiting = iter(keys)
        while some := list(islice(waiting, NOTED_AT_ONCE)):
            self._groups.all_moved(some)
            yield len(some)
        yield 1

    def _note_waited_for(self, keys: Iterable[QueueKey]) -> Iterator[int]:
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
            yield 1

    def _note_readers_of(self, queues: Iterable[tuple[str, int]]) -> Iterator[int]:
        """Their ends moved, and so did how far every group on them is behind."""
        for topic, queue_id in queues:
            for group in self._pairs.groups_on(topic):
                key = (group, topic, queue_id)
                if key in self._groups:
                    self._groups.moved(key)
                yield 1
            yield 1

    def forget_topic(self, topic: str) -> Iterator[None]:
        """The topic was deleted: whatever comes after it under the name is news, also where it
        stands as the earlier one did; done in steps.
        """
        for queue_id in list(self._queue_ids.get(topic, ())):
            if self._queues.forget((topic, queue_id)):
                self._drop_queue(topic, queue_id)
            yield
        yield from self._forget_pairs(self._pairs.of_topic(topic))

    def forget_group(self, group: str) -> Iterator[None]:
        """The group was deleted: as `forget_topic`."""
        yield from self._forget_pairs(self._pairs.of_group(group))

    def _forget_pairs(self, keys: Sequence[QueueKey]) -> Iterator[None]:
        for number, key in enumerate(keys, 1):
            if self._groups.forget(key):
                self._pairs.drop(key)
            self._groups.moved(key)
            if not number % LOOP_STEP_ENTRIES_MAX:
                yield

    def _drop_queue(self, topic: str, queue_id: int) -> None:
        self._queue_ids[topic].remove(queue_id)
        if not self._queue_ids[topic]:
            del self._queue_ids[topic]

    def _sample_queues(self, *, everything: bool) -> Iterator[None]:
        """One that stands still costs nothing, and of those that move WATERMARKS_PER_SAMPLE_MAX are
        told; the others come first in the next sample.
        """
        turns = None if everything else self._turns(len(self._queues))
        count = None if everything else self._moved_max(self._queues.waiting_count)
        for key, always in self._queues.due(turns=turns, moved=count).items():
            self._queues.looked_at((key,))
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
                self._drop_queue(topic, queue_id)
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
        count = None if everything else self._moved_max(self._groups.waiting_count)
        due = iter(by_queue(self._groups.due(turns=turns, moved=count)))
        while step := list(islice(due, LOOP_STEP_ENTRIES_MAX)):
            self._tell_groups(step, now_ms)
            yield

    def offer(self, parts: BrokerParts) -> None:
        """Let the broker's other parts have marks told at once, and ask whether they were."""
        parts.watermarks_wanted = lambda keys: self.tell(keys, parts.steady_ms())
        parts.is_watermark_told = self._groups.__contains__
        parts.topic_marks_void, parts.group_marks_void = self.forget_topic, self.forget_group

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

    def _read_group(self, group: str) -> GroupRead:
        members, may_have_leases = self._parts.groups.of(group), self._parts.locks.may_have(group)
        if members is None:
            return None, 0, may_have_leases
        return members.message_model, len(members.members), may_have_leases

    def of_group(
        self, key: QueueKey, now_ms: int, reads: Reads
    ) -> tuple[GroupWatermark | None, Reported | None]:
        """The marks of one group on one queue, with the reports since they were told, and those
        reports; no marks when the group never pulled it and has no offset for it. Hot.
        """
        parts = self._parts
        group, topic, queue_id = key
        committed, persisted, reported = parts.offsets.standing(key)
        reading = parts.readers.of(key)
        if committed is None and reading is None:
            return None, reported
        read = reads.queues.get((topic, queue_id))
        if read is None:
            read = reads.queues[topic, queue_id] = self._read(topic, queue_id)
        of_group = reads.groups.get(group)
        if of_group is None:
            of_group = reads.groups[group] = self._read_group(group)
        message_model, members, may_have_leases = of_group
        minimum, maximum, flushed, last_store_time_ms = read.marks
        pulled = processed = last_puller = last_pull_ms = None
        if reading is not None:
            pulled, processed = reading.pulled_offset, reading.processed_offset
            last_puller, last_pull_ms = reading.last_puller, reading.last_pull_ms
            if pulled is not None and pulled > flushed:
                parts.handed_tails.pulled(key, pulled, reading.pulled_by)
        holder = None
        if may_have_leases:
            holder = parts.locks.holder_of(key, parts.config.broker_name, now_ms=now_ms)
        at = read.at.get(committed)  # Groups that keep pace are at the same message.
        if at is None:
            at = read.at[committed] = self._message_at(topic, queue_id, committed, read)
        state, store_time_ms = at
        mark = GroupWatermark(  # By position: names cost a microsecond more.
            group,
            topic,
            queue_id,
            pulled,
            processed,
            committed,
            persisted,
            state,
            store_time_ms,
            minimum,
            maximum,
            last_store_time_ms,
            last_puller,
            holder,
            last_pull_ms,
            None if reported is None else reported.last_commit_ms,
            0 if reported is None else reported.count,
            message_model,
            members,
        )
        return mark, reported

    def _message_at(
        self, topic: str, queue_id: int, committed: int | None, read: QueueRead
    ) -> tuple[str, int | None]:
        """What the message at a consume offset is (`committed_state`), and when it was stored."""
        marks = read.marks
        state = committed_state(
            committed, marks.min_offset, marks.max_offset, readable=read.is_readable
        )
        if committed is None or state not in {"EXACT", "UNREADABLE"}:
            return state, None
        store_time_ms = self._parts.store.store_time_at(topic, queue_id, committed)
        if store_time_ms is None:  # Its bytes went between the two looks: retention was faster.
            return "PURGED", None
        return state, store_time_ms

    def _tell_groups(self, step: Sequence[tuple[QueueKey, bool]], now_ms: int) -> None:
        """Look at these in one step of the loop; True: tell its marks changed or not. Hot."""
        parts, groups = self._parts, self._groups
        topics_leaving = parts.topics.being_deleted
        groups_leaving = parts.group_configs.being_deleted
        is_any_leaving = bool(topics_leaving or groups_leaving)
        reads = Reads()
        facts: list[GroupWatermark] = []
        of_group, told_of, tell = self.of_group, groups.get, groups.told
        groups.looked_at([key for key, _ in step])
        for key, always in step:
            if is_any_leaving and (key[1] in topics_leaving or key[0] in groups_leaving):
                groups.moved(key)
                continue
            mark, reported = of_group(key, now_ms, reads)
            if mark is None:
                if groups.forget(key):
                    self._pairs.drop(key)
                continue
            told = told_of(key)
            if not always and told is not None and not is_news(told, mark):
                continue
            if reported is not None:
                reported.count = 0
            facts.append(mark)
            if told is None:
                self._pairs.add(key)
            tell(key, mark)
        parts.observer.observe_all(facts)


def by_queue(due: dict[QueueKey, bool]) -> list[tuple[QueueKey, bool]]:
    """Those of one queue behind each other, so that a step reads it once for all its groups."""
    found: defaultdict[tuple[str, int], list[tuple[QueueKey, bool]]] = defaultdict(list)
    for one in due.items():
        found[one[0][1:]].append(one)
    return list(chain.from_iterable(found.values()))


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
