"""Emits changed queue and group watermarks every second, and periodic full snapshots.

Place in the walk: beside it; whatever moves a mark notes the queue or the group it moved, and once
a second those are read and reported to the observer when they changed, all of them in each snapshot
besides, and at once for the queues of a client that left, expired, was revoked or reset. What
stands still is not looked at but for its turn in a snapshot: to look at 100,000 queues of groups
holds the loop for a second.

A snapshot begins at boot, each `full_sample_interval_ms`, and at once when facts were lost, for
that reason no more often than each SNAPSHOT_DISTANCE_MS; it is emitted in the course of some
samples, and its end by a SNAPSHOT (`engine.telemetry.tables` says what a reader may conclude from
it). When facts are lost before its end no SNAPSHOT is emitted, and the next begins. One that
somebody waits for (the first, and one after a loss) is emitted in SNAPSHOT_IN_HASTE_SAMPLES; others
take their whole interval if they are long.

Invariant: a row shows one instant: all of its columns are read in the same turn of the loop. No
step reads more than LOOP_STEP_ENTRIES_MAX marks. Nothing of a topic or a group is reported while it
is being deleted, and nothing of a group on a topic that it has left. Absent on purpose: timers
(broker), what follows from the rows (pipelines).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from engine.broker.config import BrokerConfig
from engine.broker.groups.readers import QueueKey
from engine.broker.reporting.dirty_marks import EmittedMarks, EmittedPairs, MovedMarks
from engine.broker.reporting.left_topics import LeavingTopics, Left
from engine.broker.reporting.mark_reader import MarkReader, Reads, are_waiting
from engine.broker.reporting.offset_reuse import OffsetReuse
from engine.foundation.chunked_work import ChunkedWork, counted, stepped
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX, WATERMARKS_PER_SAMPLE_MAX
from engine.foundation.observing import (
    EmittedUpTo,
    GroupWatermark,
    LifecycleEvent,
    Observer,
    QueueWatermark,
)
from engine.foundation.units import SECOND_MS
from engine.runtime.clock import Clock
from engine.store.queue_table import QueueMarks

NOTED_PER_STEP = 10 * LOOP_STEP_ENTRIES_MAX
"""Marks that one step notes as moved: to note one costs less than a tenth of reading it."""

NOTED_AT_ONCE = LOOP_STEP_ENTRIES_MAX // 2
"""Marks of a step that are noted in one go."""

SNAPSHOT_TURNS_MIN = WATERMARKS_PER_SAMPLE_MAX // 2
"""Marks of each kind that a sample reports of a snapshot, if there are so many; more when it would
not end in time else."""

SNAPSHOT_IN_HASTE_SAMPLES = 30
"""Until it ends, nothing is known of the broker after a loss: in so many samples it does."""

SNAPSHOT_DISTANCE_MS = 5 * SECOND_MS
"""Between the begins of two snapshots because of losses: a disk that fails again and again makes no
broker report everything all the time."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One that has begun."""

    at: EmittedUpTo
    began_ms: int
    """Wall-clock time."""
    in_haste: bool
    """Is nothing known of the broker until it ends?"""
    again_ms: int
    """Steady time from which on the next one may begin if this one comes to nothing."""


class Watermarks:
    """Reads the marks, and remembers what was reported last."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        marks: MarkReader,
        moved: MovedMarks,
        left_topics: LeavingTopics,
        pairs: EmittedPairs,
        reuse: OffsetReuse,
        observer: Observer,
        clock: Clock,
        work: ChunkedWork,
    ) -> None:
        self._marks = marks
        self._moved = moved
        self._leaving = left_topics
        self._pairs = pairs
        self._reuse = reuse
        self._observer = observer
        self._clock = clock
        self._work = work
        self._round_ms = config.full_sample_interval_ms
        self._round_samples = max(1, config.full_sample_interval_ms // config.sample_interval_ms)
        self._queues: EmittedMarks[tuple[str, int], tuple[QueueMarks, bool]] = EmittedMarks()
        self._had_replicas = False
        for queue in self._moved.all_queues():
            self._queues.moved(queue)
        self._queue_ids: dict[str, list[int]] = {}
        """Queues that were reported, by topic."""
        self._groups: EmittedMarks[QueueKey, GroupWatermark] = EmittedMarks()
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
        """Report the marks that changed since they were reported last, and those whose turn it is
        in a snapshot; or a snapshot of all from its begin to its end. Done in steps, of
        LOOP_STEP_ENTRIES_MAX marks each. `now_ms` is steady time, as leases go by it.
        """
        yield from self._moved.drop_expired_locks(now_ms)
        yield from counted(self._note_moved(), NOTED_PER_STEP)
        if self._marks.has_replicas != self._had_replicas:
            # What of each queue is on a slave is known from now on, or not any more.
            self._had_replicas = self._marks.has_replicas
            yield from counted(self._note_queues(), NOTED_PER_STEP)
        if everything:
            yield from counted(self._note_all(), NOTED_PER_STEP)
        yield from counted(self._leave(now_ms), LOOP_STEP_ENTRIES_MAX)
        self._begin_snapshot_if_due(now_ms, at_once=everything)
        yield from stepped(self._sample_queues(everything=everything))
        yield from self._sample_groups(now_ms, everything=everything)
        self._reuse.note_handed()
        self._reuse.emit_reused()
        yield
        self._end_snapshot_if_complete()

    def _begin_snapshot_if_due(self, now_ms: int, *, at_once: bool) -> None:
        at = self._observer.emitted_up_to()
        if at is None or not (self._queues.round_is_over and self._groups.round_is_over):
            return
        due_ms = self._next_snapshot_ms
        is_lost = at.losses != self._losses and now_ms >= self._hasty_from_ms
        if at_once or due_ms is None or now_ms >= due_ms or is_lost:
            again_ms = now_ms + SNAPSHOT_DISTANCE_MS
            if is_lost:
                self._hasty_from_ms = again_ms
            in_haste = due_ms is None or is_lost
            self._snapshot = Snapshot(at, self._clock.now_ms(), in_haste, again_ms)
            self._losses = at.losses
            self._next_snapshot_ms = now_ms + self._round_ms
            self._queues.begin_round()
            self._groups.begin_round()

    def _end_snapshot_if_complete(self) -> None:
        snapshot, observer = self._snapshot, self._observer
        if snapshot is None or not (self._queues.round_is_over and self._groups.round_is_over):
            return
        self._snapshot = None
        at = observer.emitted_up_to()
        if at is None:  # Nothing can be reported just now, which need not be a loss.
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

    def _turns(self, emitted_count: int) -> int:
        """Marks that one sample reports of a snapshot."""
        samples = self._round_samples
        if self._is_in_haste:
            samples = min(samples, SNAPSHOT_IN_HASTE_SAMPLES)
        return max(SNAPSHOT_TURNS_MIN, emitted_count // samples + 1)

    def _moved_max(self, waiting_count: int) -> int:
        """Marks that one sample looks at because they may have moved; at boot that is all."""
        if not self._is_in_haste:
            return WATERMARKS_PER_SAMPLE_MAX
        return max(WATERMARKS_PER_SAMPLE_MAX, self._turns(waiting_count))

    def _note_moved(self) -> Iterator[int]:
        """Ask the tables what moved since the last sample, and whom it concerns; how many are noted
        at a time."""
        pairs = self._pairs
        queues = self._moved.take_queues()
        for queue in queues:
            self._queues.moved(queue)
            yield 1
        for keys in self._moved.take_keys():
            yield from self._note(keys)
        for heard in self._moved.take_heard():
            yield from self._note_waited_for(heard)
        for topic in self._moved.take_topics():  # Who may read its queues has changed.
            for queue_id in self._queue_ids.get(topic, ()):
                self._queues.moved((topic, queue_id))
            yield from self._note(pairs.of_topic(topic))
        for group in self._moved.take_groups():
            yield from self._note(pairs.of_group(group))
        yield from self._note_readers_of(queues)

    def _note_all(self) -> Iterator[int]:
        """All that is there, once nobody is served: the sample before may have been given up after
        it had asked what moved.
        """
        yield from self._note_queues()
        for keys in self._moved.all_keys():
            yield from self._note(keys)

    def _note_queues(self) -> Iterator[int]:
        for queue in self._moved.all_queues():
            self._queues.moved(queue)
            yield 1

    def _note(self, keys: Iterable[QueueKey]) -> Iterator[int]:
        waiting = iter(keys)
        while some := list(islice(waiting, NOTED_AT_ONCE)):
            self._groups.all_moved(some)
            yield len(some)
        yield 1

    def _note_waited_for(self, keys: Iterable[QueueKey]) -> Iterator[int]:
        """Their groups pulled or reported, and nothing moved: that says something only while
        messages wait for the group, or when it was never reported.
        """
        for key in keys:
            emitted = self._groups.get(key)
            if emitted is None or self._marks.is_waited_for(key, emitted.pulled):
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

    def _leave(self, now_ms: int) -> Iterator[int]:
        """Topics that groups have left, and those that they read again."""
        for change in self._leaving.changes(now_ms):
            if isinstance(change, Left):
                self._observer.observe(change.event)
                self._moved.release_queues(change.keys)
                for key in change.keys:
                    self._drop_group(key)
                yield len(change.keys)
            elif change is not None:
                yield from self._note(change)
            yield 1

    def _drop_group(self, key: QueueKey) -> None:
        """No mark of the key counts any longer."""
        if self._groups.forget(key):
            self._pairs.drop(key)

    def forget_topic(self, topic: str) -> Iterator[None]:
        """The topic was deleted: whatever comes after it under the name is news, also where it
        stands as the earlier one did; done in steps.
        """
        for queue_id in list(self._queue_ids.get(topic, ())):
            if self._queues.forget((topic, queue_id)):
                self._drop_queue(topic, queue_id)
            yield
        yield from self._leaving.forget_topic(topic)
        yield from self._forget_pairs(self._pairs.of_topic(topic))

    def forget_group(self, group: str) -> Iterator[None]:
        """The group was deleted: as `forget_topic`."""
        self._marks.forget_group(group)
        self._leaving.forget_group(group)
        yield from self._forget_pairs(self._pairs.of_group(group))

    def forget_pair(self, group: str, topic: str) -> None:
        """The group's offsets on the topic were deleted: as `forget_topic`, at once."""
        self._leaving.forget_pair(group, topic)
        for key in self._pairs.of_pair(group, topic):
            self._drop_group(key)

    def _forget_pairs(self, keys: Sequence[QueueKey]) -> Iterator[None]:
        for number, key in enumerate(keys, 1):
            self._drop_group(key)
            self._groups.moved(key)
            if not number % LOOP_STEP_ENTRIES_MAX:
                yield

    def _drop_queue(self, topic: str, queue_id: int) -> None:
        self._queue_ids[topic].remove(queue_id)
        if not self._queue_ids[topic]:
            del self._queue_ids[topic]

    def _sample_queues(self, *, everything: bool) -> Iterator[None]:
        """One that stands still costs nothing, and of those that move WATERMARKS_PER_SAMPLE_MAX are
        reported; the others come first in the next sample.
        """
        turns = None if everything else self._turns(len(self._queues))
        count = None if everything else self._moved_max(self._queues.waiting_count)
        for key, always in self._queues.due(turns=turns, moved=count).items():
            self._queues.looked_at((key,))
            self._look_at_queue(key, always=always)
            yield

    def _look_at_queue(self, key: tuple[str, int], *, always: bool) -> None:
        topic, queue_id = key
        if topic in self._moved.topics_leaving:
            self._queues.moved(key)
            return
        queues, found = self._queues, self._marks.of_queue(topic, queue_id)
        if found is None:
            if queues.forget(key):
                self._drop_queue(topic, queue_id)
            return
        (marks, _), last = found, queues.get(key)
        if last is None:
            self._queue_ids.setdefault(topic, []).append(queue_id)
        if always or found != last:
            self._observer.observe(_queue_watermark(key, *found))
            queues.emitted(key, found)
        end = marks.max_offset
        if marks.flushed_offset != end or marks.replicated_offset not in (None, end):
            queues.moved(key)  # It moves once more, when that is flushed, or on a replica.

    def _sample_groups(self, now_ms: int, *, everything: bool) -> Iterator[None]:
        turns = None if everything else self._turns(len(self._groups))
        count = None if everything else self._moved_max(self._groups.waiting_count)
        due = iter(by_queue(self._groups.due(turns=turns, moved=count)))
        while step := list(islice(due, LOOP_STEP_ENTRIES_MAX)):
            self._emit_groups(step, now_ms)
            yield

    def is_emitted(self, key: QueueKey) -> bool:
        """Was anything emitted of how far this group is on this queue?"""
        return key in self._groups

    def emit(self, keys: Sequence[QueueKey]) -> None:
        """Emit the marks of these queues of groups now, changed or not; of very many the first ones
        now, the rest in the next steps.
        """
        self._work.add(self._emit_each(keys, self._clock.steady_ms()))

    def _emit_each(self, keys: Sequence[QueueKey], now_ms: int) -> Iterator[None]:
        for begin in range(0, len(keys), LOOP_STEP_ENTRIES_MAX):
            if begin:
                yield
            step = keys[begin : begin + LOOP_STEP_ENTRIES_MAX]
            self._emit_groups([(key, True) for key in step], now_ms)

    def _emit_groups(self, step: Sequence[tuple[QueueKey, bool]], now_ms: int) -> None:
        """Look at these in one step of the loop; True: report its marks changed or not. Hot."""
        groups = self._groups
        topics_leaving, groups_leaving = self._moved.topics_leaving, self._moved.groups_leaving
        is_any_leaving = bool(topics_leaving or groups_leaving)
        leaving, is_any_left = self._leaving, bool(self._leaving)
        reads = Reads()
        facts: list[GroupWatermark] = []
        of_group, last_of, note = self._marks.of_group, groups.get, groups.emitted
        groups.looked_at([key for key, _ in step])
        for key, always in step:
            if is_any_leaving and (key[1] in topics_leaving or key[0] in groups_leaving):
                groups.moved(key)
                continue
            if is_any_left and key[:2] in leaving:
                self._drop_group(key)
                leaving.want(key[0])  # Whoever pulls the topic reads it again.
                continue
            mark, reported = of_group(key, now_ms, reads)
            if mark is None:
                self._drop_group(key)
                continue
            emitted = last_of(key)
            if not always and emitted is not None and not is_news(emitted, mark):
                continue
            if reported is not None:
                reported.count = 0
            facts.append(mark)
            if emitted is None:
                self._pairs.add(key)
                leaving.want(key[0])
            note(key, mark)
        self._observer.observe_all(facts)


def by_queue(due: dict[QueueKey, bool]) -> list[tuple[QueueKey, bool]]:
    """Those of one queue behind each other, so that a step reads it once for all its groups."""
    found: defaultdict[tuple[str, int], list[tuple[QueueKey, bool]]] = defaultdict(list)
    for one in due.items():
        found[one[0][1:]].append(one)
    return list(chain.from_iterable(found.values()))


def is_news(before: GroupWatermark, now: GroupWatermark) -> bool:
    """Does a row say more than the one reported last? A pull or a report that moved nothing is news
    only while messages wait for the group. Those that move most are compared first. Hot.
    """
    if (
        now.committed != before.committed
        or now.max_offset != before.max_offset
        or now.pulled != before.pulled
        or now.processed != before.processed
        or now.persisted != before.persisted
        or now.min_offset != before.min_offset
        or now.committed_state != before.committed_state
        or now.last_puller != before.last_puller
        or now.lock_holder != before.lock_holder
        or now.members != before.members
        or now.message_model != before.message_model
        or now.last_store_time_ms != before.last_store_time_ms
        or now.store_time_at_committed_ms != before.store_time_at_committed_ms
    ):
        return True
    if not are_waiting(now.committed, now.pulled, now.max_offset):
        return False
    return now.reports > 0 or now.last_pull_time_ms != before.last_pull_time_ms


def _queue_watermark(key: tuple[str, int], marks: QueueMarks, is_readable: bool) -> QueueWatermark:
    """The row of a queue."""
    return QueueWatermark(
        *key,
        min_offset=marks.min_offset,
        max_offset=marks.max_offset,
        flushed_offset=marks.flushed_offset,
        replicated_offset=marks.replicated_offset,
        last_store_time_ms=marks.last_store_time_ms,
        readable=is_readable,
    )
