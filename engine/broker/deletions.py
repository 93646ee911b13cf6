"""Deleting a topic, or a group with its offsets: all that a broker keeps of it, in steps.

Place in the walk: beside it. `handlers/admin_topics`, `admin_store` and `admin_groups` begin here;
what a hundred thousand groups have of a topic takes a third of a second to forget, and the loop has
its other work meanwhile.

Invariant: from the begin of a deletion to its end nobody makes or changes what is deleted, and from
the step on in which it goes nothing of it is told but that it is gone: made again it begins anew,
and no offset counts in it that belongs to its earlier life (`remembered_offsets`). Pulls that are
held are answered.
Two who ask for the
same deletion at once have the same outcome; who goes away does not end it. At most one of a topic
that is here, and one other, are under way at a time: each has long tables listed. Absent on
purpose: what makes the deletion of a topic durable (`store/topic_deletion`), members of a group,
which stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from itertools import chain

from engine.broker.gone import is_known, tell_group_gone, tell_topic_gone
from engine.broker.long_poll import HeldPull
from engine.broker.new_lives import readers_of, witnesses_of
from engine.broker.parts import BrokerParts
from engine.broker.work_in_steps import in_steps
from engine.foundation.errors import RequestRefused, StorageError
from engine.foundation.limits import DELETIONS_MAX
from engine.foundation.long_lists import dropped_in_steps
from engine.protocol.codes import ResponseCode


async def delete_topic(parts: BrokerParts, topic: str) -> None:
    """Delete a topic, its queues and all that is known about it, so that no crash brings it back.

    Raises RequestRefused when that cannot be written down, and while too many wait; so does
    `delete_group`.
    """
    await _once(parts, f"topic {topic}", lambda: _delete_topic(parts, topic))


async def delete_group(parts: BrokerParts, group: str) -> None:
    """Delete a group's settings, its offsets and what was counted of it. Its members stay."""
    await _once(parts, f"group {group}", lambda: _delete_group(parts, group))


async def _once(
    parts: BrokerParts, what: str, begin: Callable[[], Coroutine[None, None, None]]
) -> None:
    """The outcome of a deletion that is under way, or begins now."""

    async def work() -> None:
        try:
            await begin()
        finally:
            del parts.deletions[what]

    task = parts.deletions.get(what)
    if task is None and len(parts.deletions) >= DELETIONS_MAX:
        raise RequestRefused(
            ResponseCode.SYSTEM_BUSY,
            f"{what} is not deleted: {DELETIONS_MAX} deletions wait for their turn; ask later",
        )
    if task is None:
        task = parts.deletions[what] = asyncio.get_running_loop().create_task(work())
        task.add_done_callback(_look_at)
    await asyncio.shield(task)


def _look_at(task: asyncio.Task[None]) -> None:
    """Nobody may be there any more who asks how it ended."""
    if not task.cancelled():
        task.exception()


async def _delete_topic(parts: BrokerParts, topic: str) -> None:
    store = parts.store
    is_here = parts.topics.find(topic) is not None or store.has_held(topic)

    def forget() -> Iterator[None]:
        was_here = is_here or parts.offsets.is_of_any_group(topic)
        if parts.topics.delete(topic):
            parts.topics_changed()
        steps = _forgotten_topic(parts, topic)
        if was_here:
            tell_topic_gone(parts, topic)
        return steps

    parts.topics.being_deleted[topic] = None
    readers: dict[str, None] = {}
    try:
        if is_here or store.is_being_deleted(topic):
            await in_steps(readers_of(parts, topic, readers))
            before = store.tombstones.of(topic)
            too_many = before is not None and before.readers is None  # Few of them were placed.
            await store.delete_topic(topic, forget, None if too_many else list(readers))
        else:
            async with parts.forgetting:  # Offsets may be kept of a topic that never was here.
                await in_steps(forget())
    except StorageError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"topic {topic} is not deleted: {error}"
        ) from error
    finally:
        del parts.topics.being_deleted[topic]


def _forgotten_topic(parts: BrokerParts, topic: str) -> Iterator[None]:
    """Its offsets are told no more from now on; the rest goes in the steps returned."""
    parts.lives.end(topic)
    parts.second_copies.forget_topic(topic)
    parts.handed_tails.forget_topic(topic)
    return chain(
        _answered(parts, parts.holds.take_topic(topic)),
        parts.lives.add_witnesses(topic, witnesses_of(parts, topic)),
        parts.locks.forget_topic(topic),
        parts.topic_marks_void(topic),
        parts.offsets.forget_topic(topic),
        parts.readers.forget_topic(topic),
        parts.traffic.forget_topic(topic),
        parts.deduplication.forget_topic(topic),
        dropped_in_steps(parts.boot_ends or {}, lambda queue: queue[0] == topic),
    )


def _answered(parts: BrokerParts, held: Iterator[list[HeldPull]]) -> Iterator[None]:
    """Pulls that are held wait for what never comes: they are answered, and asked again."""
    for pulls in held:
        parts.pulls_woken(pulls)
        yield


async def _delete_group(parts: BrokerParts, group: str) -> None:
    configs = parts.group_configs
    configs.being_deleted[group] = None
    try:
        async with parts.forgetting:
            was_known = is_known(parts, group)
            if configs.delete(group):
                parts.group_configs_changed()
            steps = chain(
                _answered(parts, parts.holds.take_group(group)),
                parts.group_marks_void(group),
                parts.offsets.forget_group(group),
                parts.readers.forget_group(group),
                parts.traffic.forget_group(group),
            )
            if was_known:
                tell_group_gone(parts, group)
            await in_steps(steps)
    finally:
        del configs.being_deleted[group]
