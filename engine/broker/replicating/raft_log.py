"""Presents the message store as the log of a Raft node.

Place in the walk: `raft_group` hands it to the node, whose journal appends, syncs and cuts by it.

Invariant: a disk that is full is reported as such, and tried again; a store that writes no more is
a failed disk. Absent on purpose: which bytes are right.
"""

from __future__ import annotations

from engine.foundation.errors import DiskFull, OffsetOutOfRange, WritesStopped
from engine.store import MessageStore


class RaftLog:
    """The log of one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    @property
    def end_offset(self) -> int:
        """Behind the last byte."""
        return self._store.physical_max

    def append_at(self, offset: int, data: bytes) -> None:
        """Append whole entries at the end. Raises StorageError; DiskFull: some may be there."""
        store = self._store
        if not store.writable and not store.has_failed:
            raise DiskFull("the disk is too full for what others have")
        end = store.append_at(offset, data)
        if end != offset + len(data):
            raise OffsetOutOfRange(f"{len(data)} bytes at {offset} end amid an entry, at {end}")

    async def sync(self) -> None:
        """Make durable what stands there now. Raises WritesStopped."""
        store, end = self._store, self._store.physical_max
        while store.physical_flushed < end:
            await store.flush()
            if store.has_failed:
                raise WritesStopped("the log cannot be synced")

    async def truncate(self, offset: int) -> None:
        """Cut the log there, durably. Raises StorageError."""
        if offset < self._store.physical_max:
            await self._store.truncate(offset)

    async def begin_at(self, offset: int) -> None:
        """Forget everything, and begin there, durably. Raises StorageError."""
        store = self._store
        if store.physical_max > store.physical_min:
            await store.truncate(store.physical_min)
        await store.begin_at(offset)

    def read(self, offset: int, end_offset: int) -> bytes | None:
        """These bytes, committed or not; None when they are gone."""
        return self._store.copied(offset, end_offset)

    def whole_end(self, offset: int, limit: int) -> int:
        """The end of the last whole entry before `limit`; of the first one, if it is longer."""
        return self._store.entry_end(offset, limit)
