"""Deletes a topic, making the deletion durable before anything is removed.

Place in the walk: `handlers/admin_topics`, through `message_store.delete_topic`. First the
tombstone; in the same step of the loop nothing of the topic shows any more; then goes what the
broker keeps of it, and then its files, in steps.

Invariant: one deletion at a time; nothing is put into the topic from the moment its log end is
taken until all of it is gone, so that no message is stored which the tombstone then hides, and a
topic that is made again finds nothing of the earlier one. A deletion whose caller goes away is
carried through. Absent on purpose: the table of tombstones (`tombstones`), the topic's settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final

from engine.foundation.errors import DiskFull, StorageError
from engine.runtime.disk import Disk
from engine.store.commit_log import CommitLog
from engine.store.consume_queue import ConsumeQueue
from engine.store.queue_table import QueueTable
from engine.store.tombstones import NO_READERS, EarlierReaders, Tombstones
from engine.store.upkeep.flush import Flusher

QUEUES_REMOVED_AT_ONCE: Final = 64
"""Queues whose files are closed in one step of the loop, and then deleted beside it."""


@dataclass(slots=True)
class _Left:
    """What of a topic's files is still to be deleted."""

    queues: list[ConsumeQueue]
    works: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class TopicDeletion:
    """Deletes topics of one store."""

    disk: Disk
    _: KW_ONLY
    log: CommitLog
    queues: QueueTable
    tombstones: Tombstones
    flusher: Flusher
    under_way: dict[str, None] = field(default_factory=dict, init=False)
    """Topics whose deletion has not ended: nothing is put into them meanwhile."""
    _left: dict[str, _Left] = field(default_factory=dict, init=False)
    """Of topics whose tombstone is durable."""
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Whoever has it keeps topics from being deleted."""

    async def delete(
        self,
        topic: str,
        forget: Callable[[], Iterable[None]],
        readers: EarlierReaders = NO_READERS,
        *,
        end_offset: int | None = None,
    ) -> int:
        """Delete the topic; returns how many queues. `forget` is called once the tombstone is
        durable, before anything else can be asked; what it returns is done step by step.
        `readers` are the groups that read it.

        Raises DiskFull, StorageError: then nothing has changed; or the tombstone is there, files
        cannot be removed, and nothing is put until another deletion of the topic has ended.
        """
        loop = asyncio.get_running_loop()
        work = self._delete(topic, forget, readers, end_offset)
        return await asyncio.shield(loop.create_task(work))

    async def ended(self) -> None:
        """Wait for the deletions that were asked for."""
        async with self.one_at_a_time:
            pass

    async def _delete(
        self,
        topic: str,
        forget: Callable[[], Iterable[None]],
        readers: EarlierReaders,
        end_offset: int | None,
    ) -> int:
        async with self.one_at_a_time:
            if topic not in self._left:
                await self._write_down(topic, readers, end_offset)
                self._left[topic] = _Left(self.queues.take_out(topic))
            count = len(self._left[topic].queues)
            for _ in forget():
                await asyncio.sleep(0)
            await self._remove(topic)
            self.under_way.pop(topic, None)
            return count

    def check_room(self, topic: str) -> None:
        """Raise StorageError when one more deletion would be too many."""
        self.tombstones.check_room(topic, log_begin=self.log.min_offset)

    async def _write_down(
        self, topic: str, readers: EarlierReaders, end_offset: int | None
    ) -> None:
        log_begin = self.log.min_offset
        if end_offset is None:  # Else it is agreed on.
            self.check_room(topic)
        was_refused = topic in self.under_way
        self.under_way[topic] = None
        end = self.log.end_offset if end_offset is None else end_offset
        try:
            await self.tombstones.add(topic, end, log_begin=log_begin, readers=readers)
        except BaseException as error:
            if not was_refused:
                del self.under_way[topic]
            if isinstance(error, StorageError) and not isinstance(error, DiskFull):
                self.flusher.fail(f"deleting topic {topic}: {error}")  # Is it on disk? Unknown.
            raise

    async def _remove(self, topic: str) -> None:
        """Delete the files, some queues at once, and the folder. Raises StorageError; then what is
        left can be removed by another deletion.
        """
        left = self._left[topic]
        while left.queues or left.works:
            some = left.queues[-QUEUES_REMOVED_AT_ONCE:]
            del left.queues[-QUEUES_REMOVED_AT_ONCE:]
            left.works += [queue.take_out() for queue in some]
            if not left.queues:
                folder = self.queues.folder_of(topic)
                left.works.append(partial(self.disk.remove_directory, folder))
            await self.disk.off_loop(partial(_remove_files, left.works))
            left.works = []
        del self._left[topic]


def _remove_files(works: Iterable[Callable[[], None]]) -> None:
    for work in works:
        work()
