"""A consumer's offset store, which holds one consume offset per queue.

Place in the walk: after the listener.

Clustering groups share their offsets through the broker (`BrokerOffsetStore`). A broadcast consumer
keeps its own in <folder>/<client id>/<group>/offsets.json, in RocketMQ's form, the previous one
beside it as offsets.json.bak: a new file is written beside the old one, synced, and put in its
place by renames. Who persists waits for that; the event loop does not.

Invariant: an offset is the NEXT message to consume; a frozen one changes only by being removed.
Unknown is None, and a store that cannot be asked raises: taking "no answer" for "no offset" would
start the queue at the wrong end. After any crash the file or its .bak is complete; both damaged,
the start is refused. Absent on purpose: timers and the decision what to report. Rows A1 to A3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Protocol

from engine.foundation.errors import (
    ConfigError,
    CorruptRecord,
    ProtocolError,
    StorageError,
    TidemarkError,
)
from engine.protocol.bodies import decode_local_offsets, encode_local_offsets
from engine.protocol.message import MessageQueue
from engine.runtime.disk import Disk
from engine.runtime.durable import make_durable

_log = logging.getLogger(__name__)


class ReadOffset(Enum):
    """Where to look for an offset."""

    MEMORY_FIRST_THEN_STORE = "MEMORY_FIRST_THEN_STORE"
    READ_FROM_MEMORY = "READ_FROM_MEMORY"
    READ_FROM_STORE = "READ_FROM_STORE"


class CommitTrigger(Enum):
    """Why offsets are written; travels with the report, so that the platform can distinguish cases
    apart.
    """

    TIMER = "TIMER"
    SHUTDOWN = "SHUTDOWN"
    HAND_OVER = "HAND_OVER"
    UNKNOWN = "UNKNOWN"
    """The application's own wish, when it polls and commits by itself."""


class ControllableOffset:
    """One offset that can be frozen: listeners at work must not overwrite a reset."""

    __slots__ = ("_frozen", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self._frozen = False

    def update(self, offset: int, *, increase_only: bool = False) -> None:
        """Set the offset, or raise it only; nothing happens when frozen."""
        if not self._frozen:
            self.value = max(self.value, offset) if increase_only else offset

    def update_and_freeze(self, offset: int) -> None:
        """Set the offset and ignore every later `update`."""
        self.value = offset
        self._frozen = True


def allowed_offset(queue: MessageQueue, offset: int) -> int:
    """An offset that an application wants to set. Raises ConfigError for a negative one."""
    if offset < 0:
        raise ConfigError("offset", offset, f"the next message of {queue} to consume, 0 or more")
    return offset


class OffsetTable:
    """The offsets in memory; the part all stores share."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, ControllableOffset] = {}

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """Note how far `queue` is; concurrent consumption raises only, orderly consumption sets."""
        assert offset >= 0, f"{queue}: consume offset {offset} is negative"
        held = self._offsets.get(queue)
        if held is None:
            self._offsets[queue] = ControllableOffset(offset)
        else:
            held.update(offset, increase_only=increase_only)

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset and ignore later updates until `remove`."""
        self._offsets.setdefault(queue, ControllableOffset(offset)).update_and_freeze(offset)

    def in_memory(self, queue: MessageQueue) -> int | None:
        """The offset in memory; None when there is none."""
        held = self._offsets.get(queue)
        return None if held is None else held.value

    def remove(self, queue: MessageQueue) -> None:
        """Forget the queue in memory; the store keeps what it has."""
        self._offsets.pop(queue, None)

    def clone(self, topic: str = "") -> dict[MessageQueue, int]:
        """A copy of the offsets of `topic`, or of all topics."""
        return {
            queue: held.value
            for queue, held in self._offsets.items()
            if not topic or queue.topic == topic
        }


class OffsetStore(Protocol):
    """What the consumer asks of either store; see `OffsetTable` for the first five."""

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool) -> None:
        """See `OffsetTable.update`."""
        ...

    def update_and_freeze(self, queue: MessageQueue, offset: int) -> None:
        """See `OffsetTable.update_and_freeze`."""
        ...

    def in_memory(self, queue: MessageQueue) -> int | None:
        """See `OffsetTable.in_memory`."""
        ...

    def remove(self, queue: MessageQueue) -> None:
        """See `OffsetTable.remove`."""
        ...

    def clone(self, topic: str = "") -> dict[MessageQueue, int]:
        """See `OffsetTable.clone`."""
        ...

    async def load(self) -> None:
        """Read the whole store into memory before consumption begins, if it can be read whole."""
        ...

    async def read(self, queue: MessageQueue, where: ReadOffset) -> int | None:
        """The offset; None when there is none.

        Raises TidemarkError when the store cannot be asked.
        """
        ...

    async def persist(self, queue: MessageQueue, trigger: CommitTrigger) -> None:
        """Write one queue's offset, if memory has one. Raises TidemarkError when that fails."""
        ...

    async def persist_all(self, queues: Collection[MessageQueue], trigger: CommitTrigger) -> None:
        """Write the offsets of `queues`; failures are logged, the next round writes them again."""
        ...


class BrokerOffsets(Protocol):
    """The broker's side of offsets, as one consumer group sees it."""

    async def fetch(self, queue: MessageQueue) -> int | None:
        """The committed offset; None when the broker has none.

        Raises TidemarkError when it cannot be asked.
        """
        ...

    async def commit(self, queue: MessageQueue, offset: int, trigger: CommitTrigger) -> bool:
        """Report an offset; True when the broker answered that it took it, False when nobody waits
        for that. Raises TidemarkError when it cannot be asked, or passes the offset over.
        """
        ...


class BrokerOffsetStore(OffsetTable):
    """Offsets of a clustering group, stored by the queue's broker; written one by one."""

    def __init__(
        self,
        broker: BrokerOffsets,
        on_commit_answered: Callable[[MessageQueue, int], None] | None = None,
    ) -> None:
        super().__init__()
        self._broker = broker
        self._on_commit_answered = on_commit_answered

    async def load(self) -> None:
        """Nothing: each queue's offset is fetched when the queue is taken up."""

    async def read(self, queue: MessageQueue, where: ReadOffset) -> int | None:
        """See `OffsetStore.read`; what the broker returns is kept in memory."""
        if where is not ReadOffset.READ_FROM_STORE:
            offset = self.in_memory(queue)
            if offset is not None or where is ReadOffset.READ_FROM_MEMORY:
                return offset
        offset = await self._broker.fetch(queue)
        if offset is not None:
            self.update(queue, offset, increase_only=False)
        return offset

    async def persist(self, queue: MessageQueue, trigger: CommitTrigger) -> None:
        """See `OffsetStore.persist`."""
        offset = self.in_memory(queue)
        if offset is None:
            return
        answered = await self._broker.commit(queue, offset, trigger)
        if answered and self._on_commit_answered is not None:
            self._on_commit_answered(queue, offset)

    async def persist_all(self, queues: Collection[MessageQueue], trigger: CommitTrigger) -> None:
        """See `OffsetStore.persist_all`; queues not in `queues` are forgotten, somebody else has
        them now.
        """
        for queue in list(self._offsets):
            if queue not in queues:
                self.remove(queue)
                continue
            try:
                await self.persist(queue, trigger)
            except TidemarkError as error:
                _log.warning("offset of %s not reported (%s): %s", queue, trigger.value, error)


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
        """Read the file into memory. Raises CorruptRecord when no version can be read."""
        for queue, offset in self._stored().items():
            self.update(queue, offset, increase_only=False)

    async def read(self, queue: MessageQueue, where: ReadOffset) -> int | None:
        """See `OffsetStore.read`; a file that cannot be read has no offset, as in RocketMQ."""
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
        """What the file says; the .bak when it is missing or damaged; nothing without either."""
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
