"""Tombstones of deleted topics: durable first, kept as long as the log speaks of the topic."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest

from engine.foundation.errors import DiskFull, StorageError, WritesStopped
from engine.store.tombstones import EarlierReaders, Tombstone, Tombstones
from tests.failing_disk import FailingDisk
from tests.store_support import (
    HandClock,
    Listener,
    abandon,
    bodies_of,
    draft,
    open_store,
    runtime_on,
    small_config,
    turn,
    until,
)

LATER_MS = 10_000
"""More than the margin that recovery leaves behind the checkpoint's times."""


async def test_a_recovery_after_a_deletion_reads_no_more_of_the_log_than_any_other(
    tmp_path: Path,
) -> None:
    clock = HandClock()
    store = await open_store(small_config(tmp_path), runtime=runtime_on(clock=clock))
    for number in range(100):
        clock.value_ms += LATER_MS
        topic = "TopicA" if number % 2 else "TopicB"
        store.put(draft(b"x" * 400, topic=topic, properties=f"UNIQ_KEY\x01{number}\x02"))
        await turn()
    await store.delete_topic("TopicA")
    await store._flusher.flush_log("TIMER")
    await store._flusher.flush_derived("TIMER")
    await abandon(store)
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener, runtime_on(clock=clock))
    assert not listener.lifecycle("DAMAGED_FILE")
    detail = str(listener.recovery.detail)
    checked = re.search(r"(\d+) records checked", detail)
    assert checked is not None
    assert int(checked[1]) < 30, detail
    assert len(bodies_of(store, "TopicB")) == 50
    assert [topic for topic, _ in store.queues()] == ["TopicB"]
    await store.close()


async def test_what_is_put_while_the_deletion_is_written_down_is_refused_and_not_lost(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    store = await open_store(small_config(tmp_path), runtime=runtime_on(disk))
    store.put(draft(b"old"))
    await turn()
    disk.hold_syncs = asyncio.Event()
    deletion = asyncio.create_task(store.delete_topic("TopicA"))
    await turn()
    with pytest.raises(WritesStopped, match="topic TopicA is being deleted"):
        store.put(draft(b"meanwhile"))
    assert store.put(draft(b"elsewhere", topic="TopicB")).queue_offset == 0
    deletion.cancel()  # Whoever asked may be gone: the deletion goes on.
    disk.hold_syncs.set()
    await asyncio.gather(deletion, return_exceptions=True)
    await until(lambda: not store.is_being_deleted("TopicA"))
    assert store.queues() == [("TopicB", 0)]
    assert store.put(draft(b"new")).queue_offset == 0
    await turn()
    assert bodies_of(store) == [b"new"]
    await abandon(store)
    shutil.rmtree(tmp_path / "consumequeue")
    store = await open_store(small_config(tmp_path))
    assert bodies_of(store) == [b"new"]
    assert bodies_of(store, "TopicB") == [b"elsewhere"]
    await store.close()


async def test_a_deletion_that_finds_no_room_changes_nothing(tmp_path: Path) -> None:
    class FullDisk(FailingDisk):
        def write(self, path: str, data: bytes) -> None:
            if path.endswith("deletedTopics.json.tmp"):
                raise DiskFull(f"writing {path}: no space left on the device")
            super().write(path, data)

    store = await open_store(small_config(tmp_path), runtime=runtime_on(FullDisk()))
    store.put(draft(b"kept"))
    await turn()
    with pytest.raises(DiskFull):
        await store.delete_topic("TopicA")
    assert bodies_of(store) == [b"kept"]
    assert store.put(draft(b"too")).queue_offset == 1
    await turn()
    await store.close()


async def test_a_log_cut_behind_a_deletion_gives_its_place_to_messages_that_are_not_deleted(
    tmp_path: Path,
) -> None:
    store = await open_store(small_config(tmp_path))
    for number in range(6):
        store.put(draft(b"old %d" % number, topic="TopicB" if number < 3 else "TopicA"))
    await turn()
    cut_at = store.physical_max // 2
    await store.delete_topic("TopicA")
    await abandon(store)
    log = tmp_path / "commitlog" / f"{0:020d}"
    content = log.read_bytes()
    log.write_bytes(content[:cut_at] + bytes(len(content) - cut_at))
    for derived in ("consumequeue", "checkpoint"):
        path = tmp_path / derived
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    assert len(listener.lifecycle("OFFSETS_TAKEN_BACK")) == 1
    store.put(draft(b"new"))
    await turn()
    await abandon(store)
    store = await open_store(small_config(tmp_path))
    assert bodies_of(store) == [b"new"], "it lies before the tombstone as it was"
    await store.close()


async def test_a_tombstone_goes_with_the_log_it_speaks_of_and_too_many_are_refused(
    tmp_path: Path,
) -> None:
    config = small_config(tmp_path)
    (tmp_path / "commitlog").mkdir()
    table = Tombstones(runtime_on(), config, count_max=2)
    await table.add("first", 100, log_begin=0)
    await table.add("second", 200, log_begin=0)
    with pytest.raises(StorageError, match="retention makes room"):
        table.check_room("third", log_begin=99)
    table.check_room("second", log_begin=99)
    table.check_room("third", log_begin=100)
    await table.add("third", 300, log_begin=100)
    again = Tombstones(runtime_on(), config)
    again.load(Listener())
    assert again.ends == {"second": 200, "third": 300}
    assert again.after(1) == ["second", "third"]
    assert again.after(2) == ["third"]
    assert again.deletions == 3


async def test_as_many_readers_are_named_as_have_room_and_any_group_counts_beyond_them(
    tmp_path: Path,
) -> None:
    table = Tombstones(runtime_on(), small_config(tmp_path), readers_max=3, all_readers_max=5)
    readers = EarlierReaders(sharing=("a", "b"), polling=("c",))
    await table.add("few", 100, log_begin=0, readers=readers)
    await table.add("many", 200, log_begin=0, readers=EarlierReaders(sharing=("a", "b", "c", "d")))
    again = Tombstones(runtime_on(), small_config(tmp_path))
    again.load(Listener())
    few, many = again.of("few"), again.of("many")
    assert few is not None
    assert many is not None
    assert few.readers == readers
    assert [few.was_read_by(group) for group in ("a", "c", "d")] == [True, True, False]
    assert many.readers == EarlierReaders(sharing=("a", "b"), has_more=True), "five in all"
    assert many.was_read_by("d")


@pytest.mark.parametrize(
    ("entry", "readers"),
    [
        ("", EarlierReaders()),
        (',"readers":["b","a"]', EarlierReaders(sharing=("a", "b"))),
        (',"readers":null', EarlierReaders(has_more=True)),
    ],
    ids=["without readers", "with readers", "with too many"],
)
def test_tombstones_of_earlier_versions_are_understood(
    tmp_path: Path, entry: str, readers: EarlierReaders
) -> None:
    (tmp_path / "config").mkdir()
    tombstone = '{"physicalOffset":5,"deletion":1' + entry + "}"
    (tmp_path / "config" / "deletedTopics.json").write_text(
        '{"deletedTopics":{"t":' + tombstone + '},"deletions":1}'
    )
    table = Tombstones(runtime_on(), small_config(tmp_path))
    table.load(Listener())
    assert table.of("t") == Tombstone(5, 1, readers)


@pytest.mark.parametrize(
    "text",
    ['{"deletions":1}', '{"deletedTopics":{"t":5},"deletions":1}', '{"deletedTopics":{}}'],
)
def test_a_table_of_another_form_is_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "deletedTopics.json").write_text(text)
    table = Tombstones(runtime_on(), small_config(tmp_path))
    with pytest.raises(StorageError, match=r"deletedTopics\.json"):
        table.load(Listener())
