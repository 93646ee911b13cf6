"""Deletes topics, groups and group offsets in bounded steps.

Place in the walk: beside it, behind the handlers of tools. What a hundred thousand groups have of a
topic takes a third of a second to forget, and the loop has its other work meanwhile.

Invariant: from the begin of a deletion to its end nobody makes or changes what is deleted, and from
the step in which it goes nothing is reported of it but its removal: made again it begins anew.
Callers that request the same deletion at once get the same outcome; a caller that leaves does not
end it. At most one of a topic that is here, and one other, are under way at a time. Offsets that a
member of the group may still use are not deleted alone. Absent on purpose: what makes a deletion
durable (`store/topic_deletion`, `groups/group_configs`), members of a group, which stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.group_configs import DeletedGroups, GroupConfigs
from engine.broker.groups.readers import Readers
from engine.broker.groups.removals import Removals
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.new_lives import NewLives, TopicReaders
from engine.broker.offsets.progress import GroupQueues
from engine.broker.reporting.watermarks import Watermarks
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.foundation.chunked_work import in_steps
from engine.foundation.errors import RequestRefused, StorageError
from engine.foundation.limits import DELETIONS_MAX
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.protocol.left_topics import LEFT_AFTER_MS
from engine.protocol.reported_subscriptions import topics_in
from engine.runtime.clock import Clock
from engine.store import MessageStore

Forget = Callable[[str], Iterator[None]]
"""Forgets what a table has of the topic, or of the group, with this name; in steps."""


@dataclass(slots=True, kw_only=True, eq=False)
class Deletions:
    """The deletions of one broker, under way and to come.

    `of_topics`, `of_groups`: what forgets a topic or a group, in this order.
    """

    store: MessageStore
    topics: Topics
    group_configs: GroupConfigs
    deleted_groups: DeletedGroups
    offsets: ConsumerOffsets
    new_lives: NewLives
    changes: TableChanges
    save_offsets: Callable[[], Awaitable[None]]
    removals: Removals
    of_topics: Sequence[Forget]
    of_groups: Sequence[Forget]
    agree: Callable[[str], Awaitable[None]] | None = field(default=None, init=False)
    """Has every node of a group delete a topic; None: this broker alone decides."""
    _under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    """What is being deleted: "topic ..." or "group ..."."""
    _forgetting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held while all that is known of a group, or of a topic that is not here, is forgotten."""

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic, its queues and all that is known of it, so that no crash brings it back.

        Raises RequestRefused when that cannot be written down, and while too many wait; so does
        `delete_group`.
        """
        agree = self.agree
        await self._once(
            f"topic {topic}",
            lambda: self.delete_here(topic) if agree is None else _run(agree(topic)),
        )

    async def ended(self) -> None:
        """Wait for what is under way."""
        while self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    async def delete_group(self, group: str) -> None:
        """Delete a group's settings, its offsets and what was counted of it. Its members stay.

        What is noted of it is durable once the file of groups is.
        """
        await self._once(f"group {group}", lambda: self._delete_group(group))

    async def _once(self, what: str, begin: Callable[[], Coroutine[None, None, None]]) -> None:
        """The outcome of a deletion that is under way, or begins now."""

        async def work() -> None:
            try:
                await begin()
            finally:
                del self._under_way[what]

        task = self._under_way.get(what)
        if task is None and len(self._under_way) >= DELETIONS_MAX:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"{what} is not deleted: {DELETIONS_MAX} deletions wait for their turn; ask later",
            )
        if task is None:
            task = self._under_way[what] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(_look_at)
        await asyncio.shield(task)

    async def delete_here(self, topic: str, end_offset: int | None = None) -> None:
        """Delete the topic on this node, as far as its log holds it before `end_offset`; None:
        all of it. Raises RequestRefused.
        """
        store = self.store
        is_here = self.topics.find(topic) is not None or store.has_held(topic)

        def forget() -> Iterator[None]:
            was_here = is_here or self.offsets.is_of_any_group(topic)
            if self.topics.delete(topic):
                self.changes.of_topics()
            steps = [self.new_lives.topic_goes(topic, readers.found.polling)]
            steps += [forget(topic) for forget in self.of_topics]
            if was_here:
                self.removals.topic_gone(topic)
            return chain.from_iterable(steps)

        self.topics.being_deleted[topic] = None
        readers = TopicReaders()
        try:
            if is_here or store.is_being_deleted(topic):
                await in_steps(self.new_lives.readers_of(topic, readers))
                await store.delete_topic(topic, forget, readers.found, end_offset=end_offset)
            else:
                async with self._forgetting:  # Offsets may be kept of a topic that never was here.
                    await in_steps(forget())
        except StorageError as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"topic {topic} is not deleted: {error}"
            ) from error
        finally:
            self.topics.being_deleted.pop(topic, None)

    async def _delete_group(self, group: str) -> None:
        configs = self.group_configs
        configs.being_deleted[group] = None
        try:
            async with self._forgetting:
                if self.deleted_groups.is_full:
                    await self.save_offsets()
                was_known = self.removals.is_known(group)
                if self.offsets.is_on_any_topic(group):
                    self.deleted_groups.note(group)
                    self.changes.of_settings()
                if configs.delete(group):
                    self.changes.of_settings()
                steps = [self.new_lives.group_goes(group)]
                steps += [forget(group) for forget in self.of_groups]
                if was_known:
                    self.removals.group_gone(group)
                await in_steps(chain.from_iterable(steps))
        finally:
            del configs.being_deleted[group]


async def _run(work: Awaitable[None]) -> None:
    await work


def _look_at(task: asyncio.Task[None]) -> None:
    """Nobody may be there any more who asks how it ended."""
    if not task.cancelled():
        task.exception()


@dataclass(slots=True, kw_only=True, eq=False)
class OffsetDeletion:
    """Deletes what a group has on one topic."""

    clock: Clock
    group_queues: GroupQueues
    groups: ConsumerGroups
    offsets: ConsumerOffsets
    readers: Readers
    removals: Removals
    watermarks: Watermarks
    save_offsets: Callable[[], Awaitable[None]]

    def check(self, group: str, topic: str) -> None:
        """Raise RequestRefused while somebody of the group reads the topic, or may read it."""
        reason = self._who_reads(group, topic)
        if reason is not None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the offsets of group {group} on topic {topic} are not deleted: {reason}; stop "
                f"who reads it, and delete them {LEFT_AFTER_MS // SECOND_MS} s later",
            )
        if self.offsets.is_being_forgotten(topic, group):
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"group {group} or topic {topic} is being deleted, and its offsets with it",
            )

    async def delete(self, group: str, topic: str) -> None:
        """Forget all that is known of the group on the topic, in this step of the loop, and return
        when that is on disk. Raises StorageError.
        """
        count = len(self.offsets.queues(group, topic))
        keys = self.group_queues.queues_of(group, topic)
        self.watermarks.forget_pair(group, topic)
        if count:
            self.removals.offsets_deleted(group, topic, count)
        self.offsets.forget_pair(group, topic)
        self.readers.forget_queues(keys)
        await self.save_offsets()

    def _who_reads(self, group: str, topic: str) -> str | None:
        members = self.groups.of(group)
        if members is not None:
            for subscription, ids in members.reported.items():
                if topic in topics_in(subscription):
                    return f"member {ids[0]} subscribes to it"
            for client_id, member in members.members.items():
                if not member.subscription:
                    return f"member {client_id} does not say what it reads"
        pull = self.group_queues.last_pull(group, topic)
        if pull is not None and (ago_ms := self.clock.now_ms() - pull[0]) < LEFT_AFTER_MS:
            return f"queue {pull[1]} was pulled {ago_ms // SECOND_MS} s ago"
        return None
