"""Offsets of a broadcast consumer, in a file of its own (after the listener in the walk).

File: <folder>/<client id>/<group>/offsets.json in RocketMQ's form, the previous one beside it as
offsets.json.bak. A new file is written beside the old one, synced, and put in its place by renames,
so that a crash leaves one of the two whole. Who persists waits until that is on stable storage,
the names of the folders above among it; the event loop does not: the disk works beside it.

Invariant: after any crash at least one of main file and .bak is complete. Both damaged: the start
is refused, because beginning anew would consume everything twice without a word. Absent on purpose:
sharing; the folder belongs to one client. Row A2.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from engine.client.consuming.offset_store import CommitTrigger, OffsetTable, ReadOffset
from engine.foundation.errors import CorruptRecord, ProtocolError, StorageError
from engine.protocol.bodies import decode_local_offsets, encode_local_offsets
from engine.protocol.message import MessageQueue
from engine.runtime.disk import Disk
from engine.runtime.durable import make_durable

_log = logging.getLogger(__name__)


class LocalOffsetStore(OffsetTable):
    """Offsets of one broadcast consumer."""

    def __init__(self, disk: Disk, directory: str, *, client_id: str, group: str) -> None:
        super().__init__()
        self._disk = disk
        self._folder = f"{directory}/{client_id}/{group}"
        self._path = f"{self._folder}/offsets.json"
        self._above = (directory, f"{directory}/{client_id}")
        self._is_settled = False
        """Are the names of the folders on stable storage?"""
        self._under_way: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read the file into memory.

        Raises CorruptRecord when there are files and none of them can be read.
        """
        for queue, offset in self._stored().items():
            self.update(queue, offset, increase_only=False)

    async def read(self, queue: MessageQueue, where: ReadOffset) -> int | None:
        """See `OffsetStore.read`; a file that cannot be read counts as having no offset, as in
        RocketMQ.
        """
        if where is not ReadOffset.READ_FROM_STORE:
            offset = self.in_memory(queue)
            if offset is not None or where is ReadOffset.READ_FROM_MEMORY:
                return offset
        try:
            offset = self._stored().get(queue)
        except StorageError as error:
            _log.warning("offset of %s not read: %s", queue, error)
            return None
        if offset is not None:
            self.update(queue, offset, increase_only=False)
        return offset

    async def persist(self, queue: MessageQueue, trigger: CommitTrigger) -> None:
        """See `OffsetStore.persist`."""
        await self.persist_all([queue], trigger)

    async def persist_all(self, queues: Collection[MessageQueue], trigger: CommitTrigger) -> None:
        """Merge the offsets of `queues` into the file; what it says of other queues stays."""
        del trigger  # Nobody but this client reads the file.
        while self._under_way is not None and not self._under_way.done():
            await asyncio.wait([self._under_way])  # Two would take each other's files away.
        fresh = {queue: offset for queue in queues if (offset := self.in_memory(queue)) is not None}
        if not fresh:
            return
        memory = self.clone()
        self._under_way = asyncio.create_task(self._write_beside(fresh, memory))
        await asyncio.shield(self._under_way)  # Cancelled, it goes on: nobody can stop the disk.

    async def _write_beside(
        self, fresh: Mapping[MessageQueue, int], memory: Mapping[MessageQueue, int]
    ) -> None:
        try:
            await self._disk.off_loop(lambda: self._replace(self._merged(fresh, memory)))
        except StorageError as error:
            _log.error("offsets not written, the next round tries again: %s", error)

    def _merged(
        self, fresh: Mapping[MessageQueue, int], memory: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        """What the file is to say; all that memory knows when it says nothing that can be read."""
        try:
            merged = self._stored() | dict(fresh)
        except CorruptRecord as error:
            _log.error("the offset file is damaged and written anew: %s", error)
            merged = {**memory, **fresh}
        return merged

    def _stored(self) -> dict[MessageQueue, int]:
        """What the file says; the .bak when it is missing or damaged; nothing when neither
        exists.
        """
        damage: ProtocolError | None = None
        for path in (self._path, f"{self._path}.bak"):
            if not self._disk.exists(path):
                continue
            content = self._disk.read(path)
            if not content.strip():
                continue
            try:
                return decode_local_offsets(content)
            except ProtocolError as error:
                _log.error("%s is damaged: %s", path, error)
                damage = error
        if damage is not None and self._disk.exists(f"{self._path}.bak"):
            raise CorruptRecord(
                f"{self._path} and its .bak are both damaged ({damage}); repair one of them, "
                "or remove both to begin without offsets"
            ) from damage
        return {}

    def _replace(self, offsets: Mapping[MessageQueue, int]) -> None:
        make_durable(self._disk, self._folder)
        if not self._is_settled:  # Whoever made them may have died before their names were synced.
            for folder in self._above:
                self._disk.sync_directory(folder)
            self._is_settled = True
        fresh = f"{self._path}.tmp"
        self._disk.write(fresh, encode_local_offsets(offsets))
        self._disk.sync_file(fresh)
        if self._is_whole(self._path):  # A damaged one must not take the place of a good .bak.
            self._disk.rename(self._path, f"{self._path}.bak")
        self._disk.rename(fresh, self._path)
        self._disk.sync_directory(self._folder)

    def _is_whole(self, path: str) -> bool:
        try:
            decode_local_offsets(self._disk.read(path) if self._disk.exists(path) else b"")
        except ProtocolError:
            return False
        return True
