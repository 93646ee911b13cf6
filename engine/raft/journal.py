"""Carries out what the core wants done to the log, in order, and says when it is durable.

Place in the walk: `node` hands it the effects on the log; the log itself is a port, behind which
the message store stands.

    bytes     appended at once, when nothing is before them; synced together
    mark      the log before it is synced, then the mark is durable, then what comes next
    cut       written down, made, crossed out (`term_starts`)
    install   the files of a leader are taken, then the log begins anew

Invariant: nothing is appended behind a mark or a cut that is not durable, so that each byte belongs
to the term that the marks say. A sync counts for what stood before it began, and for no cut after.
Absent on purpose: which of these is right.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from engine.foundation.errors import DiskFull, StorageError, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.raft.events import (
    Cut,
    DiskFailed,
    Event,
    Install,
    Installed,
    InstallFailed,
    SaveMark,
    Synced,
)
from engine.raft.log_shape import LogShape
from engine.raft.term_starts import StoredMarks, TermStarts
from engine.runtime.disk import Disk

DISK_FULL_RETRY_MS = SECOND_MS
"""A full disk is tried again after so long; until then nothing here is acknowledged."""


class Log(Protocol):
    """The bytes."""

    @property
    def end_offset(self) -> int:
        """Behind the last byte."""
        ...

    def append_at(self, offset: int, data: bytes) -> None:
        """Append these whole entries at the log's end. Raises StorageError; DiskFull: some of them
        may be there, whole.
        """
        ...

    async def sync(self) -> None:
        """Make durable what stands there now. Raises StorageError."""
        ...

    async def truncate(self, offset: int) -> None:
        """Cut it there, durably. Raises StorageError."""
        ...

    async def begin_at(self, offset: int) -> None:
        """Forget everything, and begin there, durably. Raises StorageError."""
        ...


@dataclass(frozen=True, slots=True)
class Bytes:
    """Whole entries that come next."""

    begin_offset: int
    data: bytes


Operation = Bytes | SaveMark | Cut | Install


class Journal:
    """The log of one node, and what is to be done to it."""

    def __init__(
        self,
        disk: Disk,
        log: Log,
        marks: TermStarts,
        shape: LogShape,
        *,
        happened: Callable[[Event], None],
        fetch_files: Callable[[Install], Awaitable[None]],
    ) -> None:
        """`shape`: of the log as it is; `fetch_files` raises TidemarkError when it cannot."""
        self._disk = disk
        self._log = log
        self._marks = marks
        self._shape = shape
        self._durable = shape.base.index
        self._cuts = 0
        self._happened = happened
        self._fetch_files = fetch_files
        self._operations: deque[Operation] = deque()
        self._wake = asyncio.Event()
        self._wake.set()

    @property
    def is_level(self) -> bool:
        """Is everything done?"""
        return not self._operations and self._durable == self._shape.end_index

    def add(self, operation: Operation) -> None:
        """Do this next."""
        if isinstance(operation, Bytes) and not self._operations:
            try:
                self._append(operation)
            except StorageError:
                self._operations.append(operation)  # Tried again, and reported, by `run`.
        else:
            self._operations.append(operation)
        self._wake.set()

    def grown_to(self, end_offset: int) -> None:
        """Bytes were put by this node itself, which leads."""
        assert not self._operations, "a leader puts behind what is not done"
        self._shape = self._shape.with_bytes(end_offset)
        self._wake.set()

    def begin_gone(self, offset: int) -> None:
        """The log begins there now; the next mark says so on disk."""
        self._shape = self._shape.begun_at(offset)

    async def run(self) -> None:
        """Do what is to be done, until it fails or is cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while not self.is_level:
                    try:
                        await self._go_on()
                    except DiskFull:
                        await asyncio.sleep(DISK_FULL_RETRY_MS / SECOND_MS)
        except StorageError:
            self._happened(DiskFailed())

    async def _go_on(self) -> None:
        while self._operations and isinstance(self._operations[0], Bytes):
            self._append(self._operations[0])
            self._operations.popleft()
        if self._durable < self._shape.end_index:
            await self._sync()
            return  # More may have been appended meanwhile, and is to be synced as well.
        match self._operations[0]:
            case SaveMark(mark):
                shape = self._shape.with_mark(mark.term, mark.members)
                await self._save(StoredMarks(shape.base, shape.marks))
                self._shape = self._shape.with_mark(mark.term, mark.members)
            case Cut(index, end_offset):
                shape = self._shape.cut(index)
                await self._save(StoredMarks(shape.base, shape.marks, cut_offset=end_offset))
                await self._log.truncate(end_offset)
                await self._save(StoredMarks(shape.base, shape.marks))
                self._shape = self._shape.cut(index)
                self._cuts += 1
            case Install(_, base) as install:
                if not await self._fetch(install):
                    return
                await self._save(StoredMarks(base, begins_anew=True))
                await self._log.begin_at(base.offset)
                await self._save(StoredMarks(base))
                self._shape = LogShape(base, (), base.offset)
                self._cuts += 1
                self._happened(Installed(base))
        self._operations.popleft()
        self._durable = self._shape.end_index
        self._happened(Synced(self._cuts, self._durable))

    async def _fetch(self, install: Install) -> bool:
        """Are the leader's files here? Else whatever comes next is not behind them."""
        try:
            await self._fetch_files(install)
        except TidemarkError:
            self._operations.popleft()
            self._happened(InstallFailed())
            return False
        return True

    def _append(self, operation: Bytes) -> None:
        """What the shape has of it is there already, from a try that ended with a full disk."""
        rest = operation.data[self._shape.end_offset - operation.begin_offset :]
        try:
            self._log.append_at(self._shape.end_offset, rest)
        finally:
            if self._log.end_offset > self._shape.end_offset:
                self._shape = self._shape.with_bytes(self._log.end_offset)

    async def _sync(self) -> None:
        end = self._shape.end_index
        await self._log.sync()
        self._durable = end
        self._happened(Synced(self._cuts, end))

    async def _save(self, stored: StoredMarks) -> None:
        await self._disk.off_loop(lambda: self._marks.save(stored))
