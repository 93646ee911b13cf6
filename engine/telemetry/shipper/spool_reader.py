"""Reads each spooled row exactly once, in order, while a broker writes the spool.

Place in the walk: the shipper's first step. Invariant: rows are handed out after the bytes they
came from were synced. Otherwise a power cut could take rows from the spool that are already in the
lake. A run is of one life: what the next one passed over lies between two runs.

Absent on purpose: writing. Only `drop_shipped` changes the folder, and never the newest segment.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from engine.foundation.errors import StorageError
from engine.runtime import Disk
from engine.telemetry.frames import Life, Placed, Row, Turn, decode_frames
from engine.telemetry.segments import (
    before_seq_of,
    first_seq_of,
    last_seq_of,
    next_seq_of,
    segment_names,
)
from engine.telemetry.shipper.arrow_schemas import Speaker, SpooledRow

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Run:
    """A piece of the spool: rows in the order of seq, by table number, and what the emitter vouches
    for."""

    speaker: Speaker
    broker_epoch: int
    seq_from: int
    seq_to: int
    as_of: int
    rows: dict[int, list[SpooledRow]] = field(default_factory=dict)
    skipped: int = 0
    """Seqs right before `seq_from` that no row has: its life passed them over."""

    @property
    def row_count(self) -> int:
        """Rows of all tables together."""
        return self.seq_to - self.seq_from + 1 if self.rows else 0


class Extent(NamedTuple):
    """What a spool holds: rows in (before_seq, last_seq]. `next_seq` is the one that comes next."""

    life: Life
    """The newest."""
    before_seq: int
    last_seq: int
    next_seq: int


class Written(NamedTuple):
    """A row in the spool, and the life that wrote it."""

    life: Life
    seq: int
    row: Row


def speaker_of(life: Life) -> Speaker:
    """The common columns that a life gives its rows."""
    return Speaker(life.cluster, life.broker, f"{life.cluster}/{life.broker}/{life.broker_id}")


class SpoolReader:
    """Where the shipper stands in one spool."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._name: str | None = None
        self._position = 0
        self._life: Life | None = None
        self.next_seq = 1
        """Seq of the next row to be handed out."""
        self._as_of = 0
        self.is_replaced = False
        """Does the folder hold another spool than before? Nothing is read until `seek`."""

    def newest_rows(self, begin: int, ends: Sequence[int]) -> list[Written]:
        """Of each table the newest row in (begin, end]; `ends` are by table number."""
        found: dict[int, Written] = {}
        for name in segment_names(self._disk, self._directory):
            if first_seq_of(name) > max(ends):
                break
            life: Life | None = None
            for placed in self._frames(name, 0)[0]:
                if isinstance(placed.frame, Life):
                    life = placed.frame
                    continue
                for seq, row in enumerate(placed.frame.rows, placed.frame.first_seq):
                    if life is not None and begin < seq <= ends[row[0]]:
                        found[row[0]] = Written(life, seq, row)
        return sorted(found.values(), key=lambda one: one.seq)

    def extent(self) -> Extent | None:
        """What the spool holds; None when nobody has written yet."""
        names = segment_names(self._disk, self._directory)
        for name in reversed(names):
            frames, _ = self._frames(name, 0)
            if frames and isinstance(frames[0].frame, Life):
                life = next(one.frame for one in reversed(frames) if isinstance(one.frame, Life))
                before_seq = before_seq_of(self._disk, self._directory, names[0])
                next_seq = next_seq_of(frames[-1].frame)
                return Extent(life, before_seq, last_seq_of(frames), next_seq)
        return None

    def seek(self, next_seq: int, *, as_of: int = 0) -> None:
        """Hand out rows from `next_seq` on, and no mere sign of life up to `as_of`."""
        self._as_of = max(self._as_of, as_of)
        names = segment_names(self._disk, self._directory)
        before = [name for name in names if first_seq_of(name) <= next_seq]
        self._name = before[-1] if before else (names[0] if names else None)
        self._position = 0
        self._life = None
        self.next_seq = next_seq
        self.is_replaced = False

    def read(self, rows_max: int) -> Run | None:
        """The next rows, at least one frame and about `rows_max` of them, or the time alone; None
        when nothing is new.

        Raises StorageError when the spool cannot be read or synced.
        """
        run: Run | None = None
        while run is None or run.row_count < rows_max:
            # The list first: a segment with a successor gets no more frames, its end is final.
            names = segment_names(self._disk, self._directory)
            if self._name is None and names:
                self.seek(self.next_seq)
            if self._name not in names:  # No shipper drops the one that it reads.
                self.is_replaced = self._name is not None
                break
            assert self._name is not None
            following = names[names.index(self._name) + 1 :]
            frames, whole = self._frames(self._name, self._position)
            for placed in frames:
                if run is not None and self._begins_another(placed.frame, run):
                    return run
                run = self._take(placed, run)
                if run is not None and run.row_count >= rows_max:
                    return run
            if not following:
                break
            if first_seq_of(following[0]) < self.next_seq:  # Behind rows that were read already.
                self.is_replaced = True
                break
            if not whole:
                _log.error(
                    "spool segment %s is damaged at byte %d; going on with %s, rows may be missing",
                    self._name,
                    self._position,
                    following[0],
                )
            self._name, self._position = following[0], 0
        return run

    def drop_shipped(self, shipped_seq: int) -> list[str]:
        """Remove segments whose every row is at or below `shipped_seq`, and return their names; the
        newest stays.

        A segment goes only when its successor begins with a whole Life on stable storage: marks
        live there now.
        """
        names = segment_names(self._disk, self._directory)
        dropped: list[str] = []
        for name, following in pairwise(names):
            if first_seq_of(following) > shipped_seq + 1 or name == self._name:
                break
            frames, _ = self._frames(following, 0)
            if not frames or not isinstance(frames[0].frame, Life):
                break
            self._disk.remove(f"{self._directory}/{name}")
            dropped.append(name)
        if dropped:
            self._disk.sync_directory(self._directory)
        return dropped

    def _frames(self, name: str, position: int) -> tuple[list[Placed], bool]:
        """Whole, synced frames of a segment from `position` on; and is there nothing after them?"""
        path = f"{self._directory}/{name}"
        file = self._disk.open(path)
        try:
            data = file.pread(max(file.size_bytes() - position, 0), position)
            if data:
                file.sync()
            if position == 0:  # Perhaps a new file: its name must be as durable as its bytes.
                self._disk.sync_directory(self._directory)
        finally:
            file.close()
        frames, end = decode_frames(data)
        placed = [Placed(frame, start + position, stop + position) for frame, start, stop in frames]
        return placed, end == len(data)

    def _begins_another(self, frame: Life | Turn, run: Run) -> bool:
        """Is it of another life than the rows of the run?"""
        if self._life is None or not run.rows or not isinstance(frame, Life):
            return False
        return (frame.broker_epoch, frame.life_seq) != (
            self._life.broker_epoch,
            self._life.life_seq,
        )

    def _take(self, placed: Placed, run: Run | None) -> Run | None:
        frame = placed.frame
        if isinstance(frame, Life):
            self._life = frame
            self._position = placed.end
            return run
        # A heartbeat is written over: stay in front of it.
        self._position = placed.start if frame.is_heartbeat else placed.end
        if self._life is None:
            raise StorageError(
                f"{self._directory}/{self._name} does not begin with a life: not a spool segment"
            )
        is_read = not frame.rows or frame.next_seq <= self.next_seq
        if is_read and frame.as_of <= self._as_of:
            return run
        return self._add(frame, self._life, run)

    def _add(self, frame: Turn, life: Life, run: Run | None) -> Run:
        if run is None:
            run = Run(
                speaker_of(life), life.broker_epoch, self.next_seq, self.next_seq - 1, frame.as_of
            )
        if frame.rows and frame.first_seq > self.next_seq:
            skipped = life.unused_in(self.next_seq, frame.first_seq)
            missing = frame.first_seq - self.next_seq - skipped
            if missing:
                _log.error("spool: %d rows before row %d are missing", missing, frame.first_seq)
            if not run.rows:
                run.seq_from, run.skipped = frame.first_seq, skipped
            self.next_seq = frame.first_seq
        for seq, (table_number, event_time, values) in enumerate(frame.rows, frame.first_seq):
            if seq >= self.next_seq:
                row = SpooledRow(seq, life.broker_epoch, event_time, values)
                run.rows.setdefault(table_number, []).append(row)
        if frame.rows:
            self.next_seq = max(self.next_seq, frame.next_seq)
        run.seq_to = self.next_seq - 1
        run.broker_epoch = life.broker_epoch
        run.as_of = self._as_of = max(self._as_of, frame.as_of)
        return run
