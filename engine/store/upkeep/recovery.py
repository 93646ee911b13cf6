"""Recovers a store by finding the end of its log and aligning derived files with it.

Place in the walk: `MessageStore.open`, before anything is served. After a clean stop the newest
queue entry shows where to look; after `kill -9` or a power cut the log is read from the last point
the checkpoint vouches for, and the queues are compared with the note of where they ended. A few
entries of each index file are followed, to see that it is of this store.

Every record from there on is checked and dispatched again by the code that dispatches live. Below
the synced position a record that fails is a hole, and the walk goes on behind it: see `log_walk`.
Beyond it the first record that fails ends the log; what lies behind is put aside, wiped and
reported, so that it can never come back between newer records. Queues and index are then cut to the
same end.

Invariant: below the synced position nothing of the log is cut and no file of it removed; beyond it
what remains is a prefix of what was written; recovering again changes nothing. A consume queue that
lacks units is filled by reading the log from its very beginning, which never moves the log's end.
Absent on purpose: repair of log bytes, waiting. Blocks; there is no event loop to hold yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

from engine.foundation.limits import DISPATCH_BATCH_MAX, LOG_HOLES_TOLD_MAX
from engine.foundation.observing import LifecycleEvent
from engine.protocol.hashes import index_key_hash
from engine.store.commit_log import CommitLog
from engine.store.consume_queue import FILLER_SIZE, ConsumeQueue, Unit, unit_end
from engine.store.dispatch import Dispatcher, QueueGap, message_keys
from engine.store.holes import LostMessages, lost_in
from engine.store.index.index import Index
from engine.store.index.index_file import IndexFile
from engine.store.index.index_layout import DamagedIndex
from engine.store.log_walk import LogWalk
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.record_reading import DispatchRequest, has_queue_offset
from engine.store.sound_records import count_sound, last_sound_end, record_at
from engine.store.upkeep.checkpoint import Checkpoint, first_unvouched, synced_position, written_to
from engine.store.upkeep.cut_bytes import CutBytes
from engine.store.upkeep.noted_ends import EndsNote, NotedEnds, kept_end, kept_ends, lacking_queues
from engine.store.upkeep.queue_scrub import QueueEnd


def stranger_in(index: Index, log: CommitLog, synced_to: int) -> str | None:
    """Which entry does not fit its record, in words; None when those looked at do."""
    for file in index.files:
        for number in sorted({1, file.index_count // 2, file.index_count - 1}):
            if 0 < number < file.index_count and not _fits(file, number, log, synced_to):
                return f"entry {number} of index file {file.start:017d} does not fit the commit log"
    return None


def _fits(file: IndexFile, number: int, log: CommitLog, synced_to: int) -> bool:
    key_hash, physical_offset = file.entry(number)
    if not log.min_offset <= physical_offset < synced_to:
        return True
    request = record_at(log, physical_offset)
    if request is None:
        return log.holes.at(physical_offset) is not None
    keys = message_keys(request.properties)
    return any(index_key_hash(request.topic, key) == key_hash for key in keys)


ANY_OFFSET = 1 << 63
QUEUES_NAMED = 5
"""Of those that lack entries; the others are counted."""


@dataclass(slots=True)
class Recovered:
    """What recovery found."""

    clean: bool
    """Was the last stop a clean one?"""
    end_offset: int = 0
    """End of the log."""
    written_offset: int = 0
    """How far the log reached before: where bytes were found, or how far the checkpoint says that
    it had been written; equal to end_offset when nothing is known to be gone.
    """
    dropped_bytes: int = 0
    """Bytes found behind the end and wiped."""
    dropped_records: int = 0
    """Sound records among them."""
    kept_aside: str = ""
    """Where those bytes are now, in words."""
    synced_to: int = 0
    """The synced position: nothing below was cut."""
    lost: list[LostMessages] = field(default_factory=list)
    """What each hole held, as far as queues know; the largest, in the order of the log."""
    holes_unlisted: int = 0
    """Holes beyond these."""
    last_store_time_ms: int = 0
    """Store time of the newest message read; 0 when none was."""
    dispatched_store_time_ms: int = 0
    """That of the newest one that is visible."""
    records_checked: int = 0
    scanned_from: int = 0
    stopped_by: str = ""
    """Why reading ended, in words."""
    damaged: list[str] = field(default_factory=list)
    """One sentence for each file that was not as it should be."""

    def events(self, min_offset: int) -> list[LifecycleEvent]:
        """What an operator should know of it: each damage, each hole, then one RECOVERY."""
        lost_bytes = self.written_offset - self.end_offset
        detail = (
            f"commit log [{min_offset}, {self.end_offset}): {self.records_checked} records checked "
            f"from {self.scanned_from}, {self.dropped_bytes} bytes dropped"
        )
        if self.dropped_bytes:
            detail += f" with {self.dropped_records} sound records ({self.kept_aside})"
        detail += f"; {self.stopped_by}"
        if lost_bytes:
            detail += f"; at least {lost_bytes} bytes lost of {self.written_offset} written"
        recovery = LifecycleEvent(
            "RECOVERY",
            detail,
            clean=self.clean,
            truncated_from=self.end_offset if lost_bytes else None,
            truncated_to=self.written_offset if lost_bytes else None,
        )
        damaged = [LifecycleEvent("DAMAGED_FILE", each) for each in self.damaged]
        # Without truncated_from and _to, which say that offsets are given a second time.
        holes = [LifecycleEvent("LOG_HOLE", each.sentence()) for each in self.lost]
        if self.holes_unlisted:
            holes.append(
                LifecycleEvent("LOG_HOLE", f"commit log: {self.holes_unlisted} further holes")
            )
        return [*damaged, *holes, recovery]


@dataclass(slots=True, eq=False)
class Recovery:
    """One recovery of one store; `run` once.

    `deleted`: deleted topics, each with the end of its deleted records.
    """

    log: CommitLog
    queues: QueueTable
    index: Index | None
    _: KW_ONLY
    dispatcher: Dispatcher
    delay_levels_ms: Sequence[int]
    cut_bytes: CutBytes
    deleted: Mapping[str, int]
    noted_ends: NotedEnds
    _note: EndsNote = field(default_factory=EndsNote, init=False)
    _synced_to: int = field(default=0, init=False)
    _unseen: dict[QueueKey, int] = field(default_factory=dict, init=False)
    """Next offsets by messages that end beyond what is visible."""
    _unseen_from: int | None = field(default=None, init=False)
    """Where the first of them begins."""
    _unseen_ms: int = field(default=0, init=False)
    """When the last of them was stored."""

    def run(self, checkpoint: Checkpoint, *, clean: bool, now_ms: int) -> Recovered:
        """Find the end of the log, bring the derived files to it. Raises DiskFull, StorageError."""
        found, log = Recovered(clean), self.log
        found.damaged += log.load(checkpoint.flushed_offset or (ANY_OFFSET if clean else 0))
        damaged_queues = self.queues.load(clean=clean)
        ours = checkpoint.derived is not None if clean else checkpoint.flushed_offset > 0
        damaged_index = [] if self.index is None else self.index.load(clean=clean, ours=ours)
        if clean and checkpoint.derived is not None:
            damaged_queues += self._changed_since(checkpoint.derived)
        self.queues.bury(self.deleted)
        found.damaged += damaged_queues + damaged_index
        # Until the end is known, everything in the files may be read.
        starts = log.files.starts
        log.end_offset = log.committed_offset = (
            starts[-1] + log.file_size_bytes if starts else log.min_offset
        )
        fault_of_note = self._take_note(checkpoint)
        self._synced_to = found.synced_to = max(
            synced_position(log, self.queues, checkpoint, clean=clean), self._note.flushed_offset
        )
        log.note_missing_files(self._synced_to, checkpoint.log_begin)
        if self.index is not None:
            bound = max(log.end_offset, self._synced_to)
            found.damaged += self.index.repair_newest(bound, clean=clean)
        found.damaged += self._index_of_another_log()
        self._hide(log.visible_end)
        for key, queue in zip(self.queues.keys(), self.queues.all(), strict=True):
            if not clean:
                broken = self._mend_end(found, key, queue)
                found.damaged += broken
                damaged_queues += broken
                self._drop_units_without_records(key, queue)
            queue.wipe_behind_end()
        if not clean and (shorter := self._shorter_than_noted(checkpoint)):
            found.damaged.append(shorter)
            damaged_queues.append(shorter)
        # Somebody else's store, and no index: nothing says whether there ever was one.
        unindexed = checkpoint.derived is None and self.index is not None and not self.index.files
        trusted = clean and not found.damaged and not unindexed
        scan_from = self._trusted_end() if trusted else None
        if scan_from is None:
            scan_from = self._vouched_start(found, checkpoint, fault_of_note)
        if damaged_queues or (clean and checkpoint.has_lost_derived):
            scan_from = log.min_offset  # Nothing says that the queues are what they were.
        if log.visible_end < scan_from:
            scan_from = max(log.min_offset, log.files.start_at(log.visible_end))
        self._scan(found, scan_from, now_ms=now_ms)
        self._cut(found, checkpoint, now_ms=now_ms)
        if not clean:
            self._go_on_behind_noted()
        found.lost = [lost_in(hole, self.queues.all()) for hole in log.holes]
        self._follow_log()
        if len(found.lost) > LOG_HOLES_TOLD_MAX:
            found.lost.sort(key=lambda each: -each.hole.size_bytes)
            del found.lost[LOG_HOLES_TOLD_MAX:]
            found.lost.sort(key=lambda each: each.hole.start)
        found.holes_unlisted = log.holes.count - len(found.lost)
        if found.last_store_time_ms and found.last_store_time_ms < checkpoint.physic_timestamp_ms:
            found.damaged.append(
                f"the commit log ends at {found.end_offset} ({found.stopped_by}), though messages "
                f"up to time {checkpoint.physic_timestamp_ms} were on disk"
            )
        return found

    def _hide(self, visible_end: int) -> None:
        """Queues and index end where the log does, as far as it is visible."""
        for queue in self.queues.all():
            queue.truncate_to_log(visible_end)
        if self.index is not None:
            self.index.truncate_to_log(visible_end)

    def _changed_since(self, derived: tuple[int, int]) -> list[str]:
        """Are queues and index what the clean stop left? An index that is not begins anew."""
        queues, index = derived
        changed: list[str] = []
        if self.queues.fingerprint() != queues:
            changed.append(
                f"{self.queues.directory} is not as the last stop left it; what is missing there "
                f"is built again from the log's start"
            )
        if self.index is not None and index and self.index.fingerprint() != index:
            self.index.begin_anew()
            changed.append(
                f"{self.index.directory} is not as the last stop left it; it is built again from "
                f"the log's start"
            )
        return changed

    def _index_of_another_log(self) -> list[str]:
        if self.index is None:
            return []
        try:
            stranger = stranger_in(self.index, self.log, self._synced_to)
        except DamagedIndex as damage:
            self.index.drop_from(damage.start)
            return [f"{damage}; its keys and all later ones are put again from the log"]
        if not stranger:
            return []
        self.index.begin_anew()
        return [f"{stranger}; the index is built again from the log's start"]

    def _mend_end(self, found: Recovered, key: QueueKey, queue: ConsumeQueue) -> list[str]:
        """Put right what hides the queue's end; a sentence when that cannot be."""
        end = QueueEnd(self.log, key, queue, self.deleted.get(key[0], 0))
        if not end.find() and not self._is_all_noted(key, queue):
            return [f"{queue.directory} holds entries that lead nowhere; it is built again"]
        if end.mended:
            found.damaged.append(
                f"{queue.directory}: {end.mended} entries at its end were not what the log says, "
                f"and written again from it"
            )
        return []

    def _is_all_noted(self, key: QueueKey, queue: ConsumeQueue) -> bool:
        """Does the queue hold what the note says that was on stable storage? What is beyond its end
        was torn before it ever was, and the log is read again for it.
        """
        noted = kept_end(self._note, key, self.deleted)
        noted_to = 0 if noted is None else noted.max_offset
        return self._note.dispatched_offset > 0 and noted_to <= queue.max_offset

    def _drop_units_without_records(self, key: QueueKey, queue: ConsumeQueue) -> None:
        """The newest unit must lead to its record, or to damage that has taken it: what lies before
        it counts as held.
        """
        good = queue.max_offset
        while good > queue.min_offset:
            unit = queue.unit(good - 1)
            if unit is None or unit[1] == FILLER_SIZE or unit[0] < self.log.min_offset:
                break
            request = record_at(self.log, unit[0])
            if request is not None and (
                (request.topic, request.queue_id, request.queue_offset) == (*key, good - 1)
            ):
                break
            if request is None and self._is_lost(unit):
                break
            good -= 1
        if good < queue.max_offset:
            queue.truncate(good)

    def _is_lost(self, unit: Unit) -> bool:
        """May the unit name a message below the synced position that damage has taken? Not when its
        place lies inside a sound record: then the unit itself was torn.
        """
        physical_offset = unit[0]
        if unit_end(unit) > self._synced_to:
            return False
        start = self.log.files.start_at(physical_offset)
        if not self.log.files.has(start):
            return True
        view = self.log.file_view(start)
        end = last_sound_end(view, start, physical_offset)
        return end is None or end <= physical_offset

    # ---- where to begin ---------------------------------------------------------------------

    def _trusted_end(self) -> int | None:
        """End of the newest message any queue knows, if that message is really there; else None."""
        newest: ConsumeQueue | None = None
        for queue in self.queues.all():
            if newest is None or queue.end_physical > newest.end_physical:
                newest = queue
        if newest is None or newest.end_physical <= self.log.min_offset:
            return None
        unit = newest.unit(newest.max_offset - 1)
        assert unit is not None, f"{newest.directory} has an end and no newest unit"
        physical_offset, size_bytes, _ = unit
        request = record_at(self.log, physical_offset)
        if request is None or request.size_bytes != size_bytes:
            return None
        return physical_offset

    def _vouched_start(self, found: Recovered, checkpoint: Checkpoint, fault_of_note: str) -> int:
        """Where the log begins that the checkpoint does not vouch for; not newer than what the
        index holds, so that its missing entries are made, nor than the note of the queues' ends,
        which says that no queue lacks anything before.
        """
        indexed = ANY_OFFSET if self.index is None else self.index.end_physical
        if indexed is None:
            return self.log.min_offset
        start = first_unvouched(self.log, checkpoint, indexed)
        if not checkpoint.flushed_offset or start <= self._note.dispatched_offset:
            return start
        found.damaged.append(f"{fault_of_note}; the log is read from its start instead")
        return self.log.min_offset

    def _take_note(self, checkpoint: Checkpoint) -> str:
        """Read where queues ended, unless RocketMQ has had the store since; why not, in words."""
        noted_ends = self.noted_ends
        fault = noted_ends.load()
        if checkpoint.flushed_offset or checkpoint.is_blank:
            self._note = noted_ends.newest
            if self._note.dispatched_offset > self.log.visible_end:
                self._note = EndsNote(flushed_offset=self._note.flushed_offset)
        return fault or f"{noted_ends.path} does not say where consume queues ended"

    def _shorter_than_noted(self, checkpoint: Checkpoint) -> str:
        """Which queues have lost entries that were on stable storage, in a sentence; else empty."""
        lacking = lacking_queues(
            self._note, self.queues, self.deleted, log_begin=checkpoint.log_begin
        )
        if not lacking:
            return ""
        more = f" and {len(lacking) - QUEUES_NAMED} more" if len(lacking) > QUEUES_NAMED else ""
        return (
            f"{self.queues.directory} has lost entries: {', '.join(lacking[:QUEUES_NAMED])}{more}"
            f"; they are built again from the log's start"
        )

    def _go_on_behind_noted(self) -> None:
        """No queue offset that was on stable storage is given a second time, also when the messages
        are gone from the log.
        """
        for key, noted in kept_ends(self._note, self.deleted):
            queue = self.queues.find_or_add(*key)
            if queue.max_offset >= noted.max_offset:
                continue
            if queue.min_offset == queue.max_offset:
                queue.skip_to(noted.max_offset)
            else:
                queue.bridge_to(noted.max_offset, queue.end_physical)

    # ---- reading on -------------------------------------------------------------------------

    def _scan(self, found: Recovered, scan_from: int, *, now_ms: int) -> None:
        """Check and dispatch record after record up to the end of the log. When a queue lacks units
        of messages before `scan_from`, all queues are filled from the log's start: up to that end,
        which is settled then.
        """
        found.scanned_from = scan_from
        walk = self._walk(scan_from, self._synced_to)
        try:
            self._dispatch(walk, found, now_ms=now_ms)
        except QueueGap as gap:
            for _ in walk.records():
                pass
            found.damaged.append(f"{gap}; the consume queues are built again from the log's start")
            found.scanned_from = self.log.min_offset
            again = self._walk(self.log.min_offset, walk.position)
            self._dispatch(again, found, now_ms=now_ms, end_offset=walk.position)
        found.last_store_time_ms = self._unseen_ms or found.dispatched_store_time_ms
        found.end_offset, found.stopped_by = walk.position, walk.stopped_by

    def _walk(self, begin: int, synced_to: int) -> LogWalk:
        return LogWalk(
            self.log,
            self.queues,
            begin,
            synced_to=synced_to,
            delay_levels_ms=self.delay_levels_ms,
        )

    def _dispatch(
        self, walk: LogWalk, found: Recovered, *, now_ms: int, end_offset: int = ANY_OFFSET
    ) -> None:
        """Dispatch what the walk finds before `end_offset`. Hot. Raises QueueGap."""
        fill_gaps = walk.position == self.log.min_offset
        batch: list[DispatchRequest] = []
        for request in walk.records():
            if request.physical_offset >= end_offset:
                break
            if request.physical_offset + request.size_bytes > self.log.visible_end:
                self._leave_unseen(request)
                continue
            batch.append(request)
            if len(batch) == DISPATCH_BATCH_MAX:
                found.dispatched_store_time_ms = request.store_timestamp_ms
                self.dispatcher.apply(batch, now_ms=now_ms, fill_gaps=fill_gaps)
                batch.clear()
        found.records_checked = walk.records_count
        if batch:
            found.dispatched_store_time_ms = batch[-1].store_timestamp_ms
            self.dispatcher.apply(batch, now_ms=now_ms, fill_gaps=fill_gaps)

    def _leave_unseen(self, request: DispatchRequest) -> None:
        """For dispatch, when more of the log becomes visible."""
        self._unseen_ms = request.store_timestamp_ms
        if self._unseen_from is None:
            self._unseen_from = request.physical_offset
        if has_queue_offset(request.sys_flag):
            self._unseen[request.topic, request.queue_id] = request.queue_offset + 1

    # ---- cutting ----------------------------------------------------------------------------

    def _cut(self, found: Recovered, checkpoint: Checkpoint, *, now_ms: int) -> None:
        """Make log, queues and index end at the same message."""
        log, end_offset = self.log, found.end_offset
        reached = max(end_offset, written_to(log, end_offset))
        found.dropped_bytes = reached - end_offset
        found.written_offset = max(reached, checkpoint.written_offset)
        if found.dropped_bytes:
            found.dropped_records = count_sound(log, end_offset, reached)
            found.kept_aside = self.cut_bytes.keep(log, end_offset, reached, now_ms=now_ms)
        log.set_end(end_offset)
        known_to = max([queue.end_physical for queue in self.queues.all()], default=0)
        if checkpoint.is_blank and known_to > end_offset:
            found.damaged.append(
                f"the commit log ends at {end_offset}, though consume queues know of messages up "
                f"to {known_to}; there is no checkpoint to say what was there"
            )
        for key, queue in zip(self.queues.keys(), self.queues.all(), strict=True):
            queue.truncate_to_log(end_offset)
            if not found.clean:  # A record may have turned out to be another queue's.
                self._drop_units_without_records(key, queue)
        if self.index is not None:
            self.index.truncate_to_log(end_offset)
        self.dispatcher.position = end_offset if self._unseen_from is None else self._unseen_from

    def _follow_log(self) -> None:
        """Let queues and index begin where the log does."""
        for queue in self.queues.all():
            queue.follow_log(self.log.min_offset)
        if self.index is not None:
            self.index.follow_log(self.log.min_offset)
        self.queues.settle()
        self.queues.go_on_at(self._unseen)
