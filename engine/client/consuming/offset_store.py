"""The offset store of a consumer: one consume offset per queue, in memory first.

Place in the walk: after the listener.

Clustering groups share their offsets through the broker (`BrokerOffsetStore`); a broadcast consumer
keeps its own in a file (`local_offset_store`). Both hold the same table of `ControllableOffset`.

Invariant: an offset is the NEXT message to consume; a frozen one changes only by being removed.
Unknown is None, and a store that cannot be asked raises: taking "no answer" for "no offset" would
start the queue at the wrong end. Absent on purpose: timers and the decision what to report. The
wire is behind `BrokerOffsets`. Rows A1 and A3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from enum import Enum
from typing import Protocol

from engine.foundation.errors import ConfigError, TidemarkError
from engine.protocol.message import MessageQueue

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
    """One offset that can be frozen: a reset must not be overwritten by listeners that are still at
    work.
    """

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
        """Read the whole store into memory before consumption begins, if it is one that can be read
        whole.
        """
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
    """Offsets of a clustering group, kept by the broker that holds the queue; written one by
    one.
    """

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
