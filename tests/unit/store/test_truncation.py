"""Cuts of a live store: what is under way over a cut, what it refuses, and what it leaves."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from engine.foundation.errors import DiskFull, OffsetOutOfRange, StorageError, WritesStopped
from engine.protocol.message_record import decode_records
from engine.store import GetStatus, MessageStore, PutResult
from engine.store.mapped_file import MAKING
from engine.store.upkeep.queue_scrub import QueueScrub
from tests.failing_disk import FailingDisk
from tests.store_support import (
    BIG,
    Listener,
    abandon,
    bodies_of,
    draft,
    open_store,
    runtime_on,
    small_config,
    sync_config,
    turn,
    until,
)


def put_some(
    store: MessageStore, count: int, name: bytes = b"m", size: int = 300
) -> list[PutResult]:
    """Messages of one queue, with their keys."""
    return [
        store.put(
            draft(
                b"%s%d" % (name, number) + b"." * size,
                properties=f"KEYS\x01k{number}\x02TAGS\x01T\x02",
            )
        )
        for number in range(count)
    ]


def names_of(store: MessageStore) -> list[bytes]:
    """What each message of the queue begins with."""
    return [body.rstrip(b".") for body in bodies_of(store)]


@pytest.mark.parametrize("keep", [1, 5, 12])
async def test_after_a_cut_the_log_goes_on_with_other_messages_in_the_same_places(
    tmp_path: Path, keep: int
) -> None:
    store = await open_store(small_config(tmp_path))
    store.start()
    put = put_some(store, 30)
    await turn()
    cuts: list[int] = []
    store.on_cut(cuts.append)
    await store.truncate(put[keep - 1].end_offset)
    assert cuts == [put[keep - 1].end_offset]
    assert names_of(store) == [b"m%d" % number for number in range(keep)]
    assert store.marks_of("TopicA", 0).max_offset == keep  # type: ignore[union-attr]
    again = store.put(draft(b"n" + b"." * 301, properties="TAGS\x01T\x02"))
    assert again.queue_offset == keep
    await turn()
    assert names_of(store)[keep:] == [b"n"]
    key = store.query_by_key("TopicA", "k20", max_count=9, begin_ms=0, end_ms=1 << 60)
    assert key.physical_offsets == []
    await store.close()
    store = await open_store(small_config(tmp_path))
    assert names_of(store)[keep:] == [b"n"]
    await store.close()


async def test_a_sync_under_way_over_a_cut_counts_for_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = await open_store(sync_config(tmp_path), runtime=runtime_on(disk))
    store.start()
    put = put_some(store, 4)
    before = store.when_flushed(put[1].end_offset)
    assert before is not None
    assert await before
    disk.hold_syncs = hold = asyncio.Event()
    put += put_some(store, 4)
    under_way = store.when_flushed(put[-1].end_offset)
    await asyncio.sleep(0.01)
    put += put_some(store, 4)
    next_one = store.when_flushed(put[-1].end_offset)
    assert under_way is not None
    assert next_one is not None
    assert under_way is not next_one
    disk.hold_syncs = None  # The cut need not wait for the disk, but for the sync.
    cutting = asyncio.ensure_future(store.truncate(put[5].end_offset))
    await asyncio.wait([cutting], timeout=0.3)
    assert not cutting.done()
    assert under_way.done(), "unknown at once, not when the disk is back"
    assert not under_way.result()
    assert next_one.done()
    assert not next_one.result()
    late = store.when_flushed(put[-1].end_offset)
    hold.set()
    await cutting
    await until(lambda: store._flusher._running_group is None)
    assert late is not None
    assert not await late
    assert store.physical_flushed <= put[5].end_offset
    gone = store.when_flushed(put[-1].end_offset)
    assert gone is not None
    assert not await gone, "bytes that were cut never become durable"
    again = put_some(store, 6, b"n")
    safe = store.when_flushed(again[-1].end_offset)
    assert safe is not None
    assert await safe
    await store.close()
    store = await open_store(sync_config(tmp_path))
    assert names_of(store)[4:] == [b"m0", b"m1", *(b"n%d" % number for number in range(6))]
    await store.close()


async def test_whoever_reads_what_is_cut_reads_it_to_its_end(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    put = put_some(store, 8)
    await turn()
    held = store.get("TopicA", 0, 2, max_count=4, max_bytes=BIG)
    await store.truncate(put[0].end_offset)
    put_some(store, 8, b"n", size=299)
    await turn()
    bodies = [message.body.rstrip(b".") for message in decode_records(held.body())]
    assert bodies == [b"m2", b"m3", b"m4", b"m5"]
    assert (
        store.get("TopicA", 0, 9, max_count=1, max_bytes=1).status is GetStatus.OFFSET_OVERFLOW_ONE
    )
    await store.close()


async def test_what_was_not_dispatched_is_not_after_a_cut_either(tmp_path: Path) -> None:
    store = await open_store(sync_config(tmp_path))
    put = put_some(store, 9)
    await store.truncate(put[5].end_offset)
    again = store.put(draft(b"n"))
    assert again.queue_offset == 6
    arrived: list[int] = []
    store.on_arrival(lambda requests: arrived.extend(one.queue_offset for one in requests))
    await store.flush()
    await turn()
    assert arrived == [0, 1, 2, 3, 4, 5, 6]
    assert names_of(store) == [*(b"m%d" % number for number in range(6)), b"n"]
    await store.close()


async def test_nothing_is_put_while_the_log_is_cut_and_two_cuts_come_one_after_the_other(
    tmp_path: Path,
) -> None:
    store = await open_store(small_config(tmp_path))
    put = put_some(store, 9)
    cuts = [asyncio.ensure_future(store.truncate(put[keep].end_offset)) for keep in (6, 3)]
    await turn()
    with pytest.raises(WritesStopped, match="being cut; try again"):
        store.put(draft())
    with pytest.raises(WritesStopped):
        store.append_at(store.physical_max, b"")
    await asyncio.gather(*cuts)
    assert store.put(draft(b"n")).queue_offset == 4
    await store.close()


@pytest.mark.parametrize("beyond", [-1, 1, 40])
async def test_a_cut_where_no_entry_ends_is_refused_and_changes_nothing(
    tmp_path: Path, beyond: int
) -> None:
    store = await open_store(small_config(tmp_path))
    put = put_some(store, 9)
    await turn()
    with pytest.raises(OffsetOutOfRange):
        await store.truncate(put[4].end_offset + beyond)
    with pytest.raises(OffsetOutOfRange):
        await store.truncate(put[-1].end_offset + 1)
    assert len(names_of(store)) == 9
    assert store.put(draft(b"n")).queue_offset == 9
    await store.close()


async def test_a_full_disk_refuses_a_cut_and_the_store_goes_on(tmp_path: Path) -> None:
    disk, listener = FailingDisk(), Listener()
    store = await open_store(small_config(tmp_path), listener, runtime_on(disk))
    put = put_some(store, 9)
    await turn()
    disk.free_bytes = 100
    with pytest.raises(DiskFull):
        await store.truncate(put[4].end_offset)
    assert listener.lifecycle("DISK_FULL")
    assert not list(tmp_path.rglob(f"*{MAKING}"))
    disk.free_bytes = None
    assert store.put(draft(b"n")).queue_offset == 9
    await turn()
    assert len(names_of(store)) == 10
    await store.truncate(put[4].end_offset)
    assert len(names_of(store)) == 5
    await store.close()


@pytest.mark.parametrize(
    "path", ["consumequeueEnds", "checkpoint", "consumequeue/", "index", "log"]
)
async def test_a_cut_that_the_disk_refuses_ends_writing_and_a_start_finds_one_end_or_the_other(
    tmp_path: Path, path: str
) -> None:
    disk = FailingDisk()
    store = await open_store(small_config(tmp_path), runtime=runtime_on(disk))
    put = put_some(store, 30)
    await turn()
    await store._flusher.flush_log("TIMER")
    await store._flusher.flush_derived("TIMER")
    put_some(store, 2)
    disk.fail_syncs = path
    with pytest.raises(StorageError):
        await store.truncate(put[9].end_offset)
    assert not store.writable
    await abandon(store)
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    assert len(names_of(store)) in (10, 32)
    assert not listener.lifecycle("LOG_HOLE")
    await store.close()


async def test_a_file_made_ahead_over_a_cut_follows_no_log_that_is_shorter(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = await open_store(small_config(tmp_path), runtime=runtime_on(disk))
    put_some(store, 27)  # More than half of the third file.
    await turn()
    disk.hold_making = threading.Event()
    making = asyncio.ensure_future(store._flusher._spares.make())
    await turn()
    await store.truncate(0)
    disk.hold_making.set()
    await making
    assert store._log.files.starts == []
    put_some(store, 30)
    await turn()
    assert len(names_of(store)) == 30
    await store.close()


async def test_a_start_after_a_cut_misses_nothing_of_what_went(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    put = put_some(store, 30)
    await turn()
    await store._flusher.flush_log("TIMER")
    await store._flusher.flush_derived("TIMER")
    await store.truncate(put[9].end_offset)
    await abandon(store)
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    assert not listener.lifecycle("DAMAGED_FILE") + listener.lifecycle("LOG_HOLE")
    assert store.put(draft(b"n")).queue_offset == 10
    await store.close()


async def test_the_deletion_of_a_topic_that_lies_beyond_is_taken_back_to_the_new_end(
    tmp_path: Path,
) -> None:
    store = await open_store(small_config(tmp_path))
    put = put_some(store, 9)
    await turn()
    await store.delete_topic("TopicA")
    await store.truncate(put[4].end_offset)
    assert store.tombstones.ends["TopicA"] == put[4].end_offset
    assert store.put(draft(b"n")).queue_offset == 0
    await turn()
    assert names_of(store) == [b"n"]
    await store.close()


async def test_the_scrub_of_queues_takes_no_cut_for_damage(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    put = put_some(store, 60)
    await store.close()
    listener = Listener()
    runtime = runtime_on()
    store = await open_store(small_config(tmp_path), listener, runtime)
    log, queues, dispatcher = store._log, store._queues, store._dispatcher
    scrub = QueueScrub(runtime, listener, log=log, queues=queues, dispatcher=dispatcher)
    store.on_cut(scrub.cut)
    pauses: list[int] = []

    async def pause(pause_ms: int) -> bool:
        """At the end of a file: behind the second one the log is cut amid the first."""
        pauses.append(pause_ms)
        if len(pauses) == 2:
            await store.truncate(put[3].end_offset)
            put_some(store, 40, b"n", size=411)
            await store.flush()
        return False

    await scrub.run(pause)
    assert len(pauses) == 2, "what follows a cut is of this life"
    assert not listener.lifecycle("DAMAGED_FILE") + listener.lifecycle("LOG_HOLE")
    await store.close()
