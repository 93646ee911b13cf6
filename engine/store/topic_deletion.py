"""The deletion of a topic: durable before anything of the topic goes.

Place in the walk: `handlers/admin_topics`, through `message_store.delete_topic`. First the
tombstone, then what the broker keeps of the topic, then its queues.

Invariant: one deletion at a time; nothing is put into the topic from the moment its log end is
taken until the tombstone there is durable, so that no message is stored which the tombstone then
hides. A deletion whose caller goes away is carried through. Absent on purpose: the table of
tombstones (`tombstones`), the topic's settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.foundation.errors import DiskFull, StorageError
from engine.store.commit_log import CommitLog
from engine.store.queue_table import QueueTable
from engine.store.tombstones import Tombstones
from engine.store.upkeep.flush import Flusher


class TopicDeletion:
    """Deletes topics of one store."""

    def __init__(
        self, log: CommitLog, queues: QueueTable, tombstones: Tombstones, flusher: Flusher
    ) -> None:
        self._log = log
        self._queues = queues
        self._tombstones = tombstones
        self._flusher = flusher
        self.under_way: dict[str, None] = {}
        """Topics whose deletion is being written down: nothing is put into them meanwhile."""
        self._one_at_a_time = asyncio.Lock()

    async def delete(self, topic: str, forget: Callable[[], object]) -> int:
        """Delete the topic; returns how many queues. `forget` is called once the tombstone is
        durable, before anything else can be put or asked.

        Raises DiskFull, StorageError: then nothing has changed.
        """
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.create_task(self._delete(topic, forget)))

    async def _delete(self, topic: str, forget: Callable[[], object]) -> int:
        async with self._one_at_a_time:
            log_begin = self._log.min_offset
            self._tombstones.check_room(topic, log_begin=log_begin)
            self.under_way[topic] = None
            try:
                await self._tombstones.add(topic, self._log.end_offset, log_begin=log_begin)
            except DiskFull:
                raise
            except StorageError as error:  # Whether it is on disk is unknown.
                self._flusher.fail(f"deleting topic {topic}: {error}")
                raise
            finally:
                del self.under_way[topic]
            forget()
            return self._queues.delete_topic(topic)
