"""Checks an entire store for damage, and compares its queues and index with the log.

Place in the walk: beside it, `tidemark store check`. Every record of the log is read, which takes
some 10 s for each gigabyte.

  commit log     holes below the synced position; what lies behind it and is no record yet
  consume queue  each record has the unit that leads to it and has its tags code, each unit leads
                 to its record
  index          headers, slots and entries are as they were flushed, and can be what they are; not
                 whether each key is there

Invariant: nothing is changed, and no lock is taken. A broker may be running on the store: below the
synced position, which is all that is judged, nothing moves but files that retention removes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from engine.foundation.errors import StorageError
from engine.foundation.limits import LOG_HOLES_TOLD_MAX
from engine.runtime.disk import Disk
from engine.store.commit_log import SIZE_KEY as LOG_SIZE_KEY
from engine.store.commit_log import CommitLog
from engine.store.config import StoreConfig
from engine.store.consume_queue import FILLER_SIZE, ConsumeQueue
from engine.store.holes import LostMessages, lost_in
from engine.store.index.index import Index
from engine.store.index.index_layout import IndexShape
from engine.store.log_walk import LogWalk
from engine.store.mapped_file import FilePool
from engine.store.queue_table import QueueKey, QueueTable
from engine.store.record_reading import DispatchRequest, has_queue_offset, is_no_code_of
from engine.store.sound_records import message_at
from engine.store.tombstones import FILE_NAME as TOMBSTONES
from engine.store.upkeep.checkpoint import (
    Checkpoint,
    decode_checkpoint,
    first_unvouched,
    synced_position,
    written_to,
)


@dataclass(slots=True)
class StoreReport:
    """What a look at a store found."""

    clean: bool
    """Was the last stop clean (and is no broker running)?"""
    min_offset: int = 0
    end_offset: int = 0
    """Where the next start will let the log end."""
    synced_to: int = 0
    records: int = 0
    unsynced_bytes: int = 0
    """Bytes behind the end that are no records: torn, or being written now."""
    unsynced_reason: str = ""
    lost: list[LostMessages] = field(default_factory=list)
    holes_unlisted: int = 0
    queue_faults: list[str] = field(default_factory=list)
    units_to_build: int = 0
    """Records whose units are in no file yet: the next start, or the running broker, adds them."""
    index_faults: list[str] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        """Is anything lost, or wrong in what is derived?"""
        return bool(self.lost or self.queue_faults or self.index_faults)

    def lines(self) -> Iterator[str]:
        """For a terminal, worst last."""
        yield (
            f"commit log [{self.min_offset}, {self.end_offset}): {self.records} sound records, "
            f"synced to {self.synced_to}"
        )
        if not self.clean:
            yield "the last stop was not clean, or a broker is running"
        if self.unsynced_bytes:
            yield (
                f"{self.unsynced_bytes} bytes behind {self.end_offset} were never synced and are "
                f"no records ({self.unsynced_reason}): a start cuts them off and keeps them aside"
            )
        if self.units_to_build:
            yield f"{self.units_to_build} entries of consume queues are still to be written"
        yield from self.index_faults
        yield from self.queue_faults
        for each in self.lost:
            yield each.sentence()
        if self.holes_unlisted:
            yield f"commit log: {self.holes_unlisted} further holes"
        yield "damaged" if self.damaged else "sound"


class StoreCheck:
    """One look at one store."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        """Raises StorageError when there is no store, ConfigError for other file sizes."""
        root, pool = config.root, FilePool()
        if not disk.is_directory(config.commit_log_folder):
            raise StorageError(f"{root}: no store is there ({config.commit_log_folder} is missing)")
        self._log = CommitLog(
            disk, config.commit_log_folder, config.mapped_file_size_commit_log_bytes, pool
        )
        self._queues = QueueTable(
            disk, config.consume_queue_folder, config.mapped_file_size_consume_queue_bytes, pool
        )
        shape = IndexShape(config.max_hash_slot_count, config.max_index_count)
        self._index = Index(disk, config.index_folder, shape, pool)
        self._delay_levels_ms = config.delay_levels_ms
        self._clean = not disk.exists(config.abort_path)
        self._deleted = _deleted_topics(disk, f"{root}/config/{TOMBSTONES}")
        path = f"{root}/checkpoint"
        self._checkpoint = decode_checkpoint(disk.read(path)) if disk.exists(path) else Checkpoint()
        self._look()

    def _look(self) -> None:
        log = self._log
        log.files.look(LOG_SIZE_KEY)
        self._queues.look()
        starts = log.files.starts
        log.min_offset = starts[0] if starts else 0
        log.end_offset = log.committed_offset = starts[-1] + log.file_size_bytes if starts else 0
        self._synced_to = synced_position(log, self._queues, self._checkpoint, clean=self._clean)
        log.note_missing_files(self._synced_to, self._checkpoint.log_begin)

    def first_hole(self) -> LostMessages | None:
        """What a start would come upon: a file that is missing, or damage in what it reads."""
        begin = self._log.files.start_at(max(self._synced_to - 1, self._log.min_offset))
        if not self._clean:
            begin = first_unvouched(self._log, self._checkpoint, self._synced_to)
        for _ in self._walk(begin).records():
            if len(self._log.holes):
                break
        return next((lost_in(hole, self._queues.all()) for hole in self._log.holes), None)

    def run(self) -> StoreReport:
        """Read everything."""
        log = self._log
        report = StoreReport(self._clean, log.min_offset, synced_to=self._synced_to)
        walk = self._walk(log.min_offset)
        led: dict[QueueKey, int] = {}
        faults = _Faults(report.queue_faults)
        for request in walk.records():
            is_deleted = request.physical_offset < self._deleted.get(request.topic, 0)
            if has_queue_offset(request.sys_flag) and not is_deleted:
                self._check_unit(request, report, led, faults)
        report.records, report.end_offset = walk.records_count, walk.position
        report.unsynced_bytes = max(0, written_to(log, walk.position) - walk.position)
        report.unsynced_reason = walk.stopped_by
        self._check_strays(walk.position, led, faults)
        faults.close()
        report.index_faults += self._index.look(
            max(walk.position, self._synced_to), clean=self._clean
        )
        report.lost = [lost_in(hole, self._queues.all()) for hole in log.holes]
        report.holes_unlisted = log.holes.left_out
        return report

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        self._queues.close()
        self._index.close()

    def _walk(self, begin: int) -> LogWalk:
        return LogWalk(
            self._log,
            self._queues,
            begin,
            synced_to=self._synced_to,
            delay_levels_ms=self._delay_levels_ms,
        )

    def _check_unit(
        self,
        request: DispatchRequest,
        report: StoreReport,
        led: dict[QueueKey, int],
        faults: _Faults,
    ) -> None:
        key = (request.topic, request.queue_id)
        queue = self._queues.find(*key)
        if queue is None or request.queue_offset >= queue.max_offset:
            if self._clean and request.physical_offset < self._synced_to:
                faults.add(f"{_name(key)} ends before message {request.queue_offset} of the log")
            else:
                report.units_to_build += 1
            return
        unit = queue.unit(request.queue_offset)
        if unit is not None and unit[:2] == (request.physical_offset, request.size_bytes):
            led[key] = led.get(key, 0) + 1
            if is_no_code_of(request, unit[2]):
                faults.add(
                    f"{_name(key)}: entry {request.queue_offset} has another tags code than its "
                    f"message at {request.physical_offset}"
                )
        elif unit is None or not self._leads(key, request.queue_offset, unit[0]):
            faults.add(
                f"{_name(key)}: entry {request.queue_offset} does not lead to its message at "
                f"{request.physical_offset}"
            )

    def _leads(self, key: QueueKey, queue_offset: int, physical_offset: int) -> bool:
        """Is there another record for the unit: was its topic made anew?"""
        return message_at(self._log, physical_offset, key, queue_offset) is not None

    def _check_strays(self, end_offset: int, led: dict[QueueKey, int], faults: _Faults) -> None:
        """Units that lead neither to a record that was found nor into a hole."""
        for key, queue in zip(self._queues.keys(), self._queues.all(), strict=True):
            known = queue.count_between(self._log.min_offset, end_offset)
            known -= sum(
                queue.count_between(max(hole.start, self._log.min_offset), hole.end)
                for hole in self._log.holes
                if hole.end > self._log.min_offset
            )
            strays = known - led.get(key, 0) - self._bridges_outside_holes(queue, end_offset)
            if strays > 0:
                faults.add(f"{_name(key)}: {strays} entries lead to no message of the log")

    def _bridges_outside_holes(self, queue: ConsumeQueue, end_offset: int) -> int:
        """Units without a message whose hole is not known any more: a file was put back."""
        bridges, queue_offset = 0, queue.min_offset
        while queue_offset < queue.max_offset:
            units = queue.units(queue_offset, 1024)
            if not units:
                break
            bridges += sum(
                size == FILLER_SIZE
                and self._log.min_offset <= physical < end_offset
                and self._log.holes.at(physical) is None
                for physical, size, _ in units
            )
            queue_offset += len(units)
        return bridges


class _Tombstone(msgspec.Struct):
    physicalOffset: int  # noqa: N815 - as the file has it


class _Tombstones(msgspec.Struct):
    deletedTopics: dict[str, _Tombstone]  # noqa: N815 - as the file has it


def _deleted_topics(disk: Disk, path: str) -> dict[str, int]:
    """Deleted topics, each with the end of its deleted records. A table that cannot be read counts
    as empty: their records are then reported as entries that are missing.
    """
    if not disk.exists(path):
        return {}
    try:
        table = msgspec.json.decode(disk.read(path), type=_Tombstones)
    except msgspec.MsgspecError:
        return {}
    return {topic: one.physicalOffset for topic, one in table.deletedTopics.items()}


class _Faults:
    """The first LOG_HOLES_TOLD_MAX sentences, and how many more there were."""

    def __init__(self, sentences: list[str]) -> None:
        self._sentences = sentences
        self._unlisted = 0

    def add(self, sentence: str) -> None:
        if len(self._sentences) < LOG_HOLES_TOLD_MAX:
            self._sentences.append(sentence)
        else:
            self._unlisted += 1

    def close(self) -> None:
        if self._unlisted:
            self._sentences.append(f"consume queues: {self._unlisted} faults more")


def _name(key: QueueKey) -> str:
    return f"consume queue {key[0]}/{key[1]}"
