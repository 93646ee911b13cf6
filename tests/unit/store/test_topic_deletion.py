"""The deletion of a topic in steps: nothing of it shows from one step of the loop on, and nothing
is put into it until its last file is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from engine.foundation.errors import StorageError, WritesStopped
from engine.runtime.disk import SystemDisk
from engine.store import MessageStore
from engine.store.consume_queue import ConsumeQueue
from engine.store.mapped_file import FilePool
from engine.store.queue_table import QueueTable
from engine.store.topic_deletion import QUEUES_REMOVED_AT_ONCE
from tests.failing_disk import FailingDisk
from tests.steps import instructions
from tests.store_support import (
    abandon,
    bodies_of,
    draft,
    open_store,
    runtime_on,
    small_config,
    turn,
)

QUEUES = QUEUES_REMOVED_AT_ONCE + 1
NEIGHBOURS = [("Topic", 0), ("TopicA0", 0), ("TopicB", 0)]
"""Of TopicA in the sorted list of queues."""


class StubbornDisk(FailingDisk):
    """Removes no file of a consume queue while it is switched off."""

    __slots__ = ("keeps",)

    def __init__(self) -> None:
        super().__init__()
        self.keeps = False

    def remove(self, path: str) -> None:
        if self.keeps and "consumequeue" in path:
            raise StorageError(f"removing {path}: input/output error")
        super().remove(path)


async def filled(folder: Path, disk: FailingDisk) -> MessageStore:
    """A topic of many queues, in files, and another one."""
    store = await open_store(small_config(folder), runtime=runtime_on(disk))
    for queue_id in range(QUEUES):
        store.put(draft(b"old", queue_id=queue_id))
    for name, _ in reversed(NEIGHBOURS):
        store.put(draft(b"kept", topic=name))
    await turn()
    await store._flusher.flush_derived("SHUTDOWN")
    assert (folder / "consumequeue" / "TopicA" / "0").is_dir()
    return store


async def test_nothing_of_a_topic_shows_while_it_is_forgotten_and_nothing_is_put(
    tmp_path: Path,
) -> None:
    store = await filled(tmp_path, FailingDisk())
    seen: list[tuple[object, ...]] = []

    def forget() -> Iterator[None]:
        for _ in range(3):
            ends = store.max_offset("TopicA", 0), store.has_held("TopicA"), bodies_of(store)
            seen.append((*ends, store.queues()))
            with pytest.raises(WritesStopped, match="topic TopicA is being deleted"):
                store.put(draft(b"meanwhile"))
            store.put(draft(b"too", topic="TopicB"))
            yield

    assert await store.delete_topic("TopicA", forget) == QUEUES
    assert seen == [(0, False, [], NEIGHBOURS)] * 3
    assert not (tmp_path / "consumequeue" / "TopicA").exists()
    assert store.put(draft(b"new")).queue_offset == 0
    await turn()
    assert bodies_of(store) == [b"new"]
    assert bodies_of(store, "TopicB") == [b"kept", *[b"too"] * 3]
    assert store.queues() == sorted([*NEIGHBOURS, ("TopicA", 0)])
    await store.close()


async def test_a_topic_whose_files_cannot_be_removed_takes_nothing_until_they_are(
    tmp_path: Path,
) -> None:
    disk = StubbornDisk()
    store = await filled(tmp_path, disk)
    disk.keeps = True
    with pytest.raises(StorageError, match="input/output error"):
        await store.delete_topic("TopicA")
    assert store.queues() == NEIGHBOURS, "it is deleted all the same"
    assert store.is_being_deleted("TopicA")
    with pytest.raises(WritesStopped, match="topic TopicA is being deleted"):
        store.put(draft(b"meanwhile"))
    disk.keeps = False
    deletions = store.tombstones.deletions
    await store.delete_topic("TopicA")
    assert store.tombstones.deletions == deletions, "its tombstone is there already"
    assert not (tmp_path / "consumequeue" / "TopicA").exists()
    assert store.put(draft(b"new")).queue_offset == 0
    await turn()
    assert bodies_of(store) == [b"new"]
    await store.close()


async def test_files_that_a_kill_amid_a_deletion_has_left_go_at_the_next_start(
    tmp_path: Path,
) -> None:
    disk = StubbornDisk()
    store = await filled(tmp_path, disk)
    disk.keeps = True
    with pytest.raises(StorageError):
        await store.delete_topic("TopicA")
    await abandon(store)
    store = await open_store(small_config(tmp_path))
    assert store.queues() == NEIGHBOURS
    assert not (tmp_path / "consumequeue" / "TopicA").exists()
    assert store.put(draft(b"new")).queue_offset == 0
    await turn()
    assert bodies_of(store) == [b"new"]
    await store.close()


def test_taking_a_topics_queues_out_costs_no_more_for_those_of_others(tmp_path: Path) -> None:
    costs = []
    for others in (10, 2000):
        queues = QueueTable(SystemDisk(), f"{tmp_path}/consumequeue", 20 * 100, FilePool())
        for number in range(others):
            queues.find_or_add(f"Other{number}", 0)
        for topic in ("TopicA", "TopicB"):
            queues.find_or_add(topic, 0)
            queues.next_offset(topic, 1)
            queues.advance(topic, 1, 5)
        listed = queues.keys()
        taken: list[ConsumeQueue] = []
        costs.append(instructions(partial(_take_out, queues, taken)))
        assert len(taken) == 1
        assert not queues.has_given_offsets("TopicA")
        assert queues.has_given_offsets("TopicB")
        assert queues.keys() == [key for key in listed if key != ("TopicA", 0)]
    assert costs[0] == costs[1]


def _take_out(queues: QueueTable, taken: list[ConsumeQueue]) -> None:
    taken += queues.take_out("TopicA")


async def test_a_stop_waits_for_the_deletion_that_was_asked_for(tmp_path: Path) -> None:
    store = await filled(tmp_path, FailingDisk())
    has_begun, goes_on = asyncio.Event(), asyncio.Event()

    def forget() -> Iterator[None]:
        has_begun.set()
        while not goes_on.is_set():
            yield

    deletion = asyncio.create_task(store.delete_topic("TopicA", forget))
    await has_begun.wait()
    stop = asyncio.create_task(store.close())
    await asyncio.wait({stop}, timeout=0.3)
    assert not stop.done()
    goes_on.set()
    await stop
    assert await deletion == QUEUES
    assert not (tmp_path / "consumequeue" / "TopicA").exists()
    store = await open_store(small_config(tmp_path))
    assert store.queues() == NEIGHBOURS
    await store.close()
