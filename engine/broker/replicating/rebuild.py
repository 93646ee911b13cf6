"""Truncates a diverged log so that the broker can follow its master again.

Place in the walk: an order of `tidemark admin replica rebuild`, with a preview.

Both logs are the same up to the last epoch that both lists name, in the log in which it ends first.
What lies behind may be the only copy of messages that were acknowledged: all of it is written to a
file, durably, before any of it is cut.

    diverged/<first byte>-<end>.log    the bytes as they lay in the log

Invariant: nothing is cut but what was previewed. Absent on purpose: deciding whether it is to be
cut, and messages from the file (`tidemark store`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from engine.broker.identity import BrokerNode, Role
from engine.broker.replicating.replication import Replication
from engine.foundation.errors import RequestRefused, StorageError
from engine.foundation.units import MIB
from engine.protocol.bodies_admin import LogCut
from engine.protocol.codes import ResponseCode
from engine.replication import Following
from engine.runtime import Disk
from engine.runtime.durable import make_durable
from engine.store import MessageStore
from engine.store.epochs import last_common

FOLDER: Final = "diverged"
CHUNK_BYTES: Final = MIB


@dataclass(slots=True, kw_only=True, eq=False)
class Rebuild:
    """That of one broker."""

    disk: Disk
    node: BrokerNode
    read_again: Callable[[], Awaitable[None]]
    replication: Replication
    store: MessageStore

    async def preview(self) -> LogCut:
        """What is to be cut. Raises RequestRefused when nothing is, or nobody knows."""
        store = self.store
        begin, end = await self._common_end(), store.physical_max
        topics = Counter[str]()
        async for entries in store.records(begin):
            topics.update(one.topic for one in entries if one.physical_offset < end)
        return LogCut(
            begin=begin, end=end, messages=topics.total(), topics=dict(topics.most_common())
        )

    async def carry_out(self, at: int) -> LogCut:
        """Write out and cut what lies behind `at`. Raises RequestRefused, StorageError."""
        async with self.replication.standing_still():
            cut = await self.preview()
            if cut.begin != at:
                raise _refused(f"the logs part at {cut.begin} now, not at {at}: preview it again")
            cut.file = await self._write_out(cut.begin, cut.end)
            await self.store.truncate(at)
            await self.read_again()
        return cut

    async def _common_end(self) -> int:
        """Up to where this log and the master's are the same."""
        store, client = self.store, self.replication.ha_client
        if self.node.role is not Role.SLAVE:
            raise _refused(f"it is {self.node.role.name}, and has no master to follow")
        if client.following is not Following.DIVERGED:
            raise _refused(f"it is {client.following.name}, not DIVERGED: there is nothing to cut")
        master = await self.replication.find_master()
        if master is None:
            raise _refused("no name server knows its master")
        end = last_common(store.epochs.entries, store.physical_max, master.epochs, master.log_end)
        if not max(store.physical_min, master.log_begin) <= end < store.physical_max:
            raise _refused(
                f"the epochs of both logs part at byte {end}, and this log is "
                f"[{store.physical_min}, {store.physical_max}): start it with an empty store"
            )
        return end

    async def _write_out(self, begin: int, end: int) -> str:
        """Write these bytes to a file of their own, durably; its path."""
        disk, store = self.disk, self.store
        folder = f"{self.node.config.store.root}/{FOLDER}"
        path = f"{folder}/{begin:020d}-{end:020d}.log"
        make_durable(disk, folder)
        file, at = disk.open(path, create=True), begin
        try:
            while at < end:
                size = min(CHUNK_BYTES, end - at, store.room_in_file(at))
                view = store.bytes_at(at, size)
                if view is None:
                    raise StorageError(f"what begins at {at} of the log cannot be read")
                await disk.off_loop(partial(file.pwrite, view, at - begin))
                at += size
            await disk.off_loop(file.sync)
        finally:
            file.close()
        disk.sync_directory(folder)
        return path


def _refused(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, why)
