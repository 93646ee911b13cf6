"""A failed sync ends writing for good, a full disk suspends it; nobody is lied to, reads go on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from engine.foundation.errors import DiskFull, WritesStopped
from engine.foundation.limits import QUEUE_UNITS_WAITING_MAX
from engine.store import MessageStore, PutResult
from engine.store.upkeep.flush import DISK_FULL_QUIET_MS
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
    sync_config,
    turn,
    until,
)


async def put_and_wait(store: MessageStore, body: bytes) -> bool:
    result = store.put(draft(body))
    flushed = store.when_flushed(result.end_offset)
    assert flushed is not None
    return await flushed


async def test_after_a_failed_sync_nothing_is_acknowledged_and_no_sync_is_tried_again(
    tmp_path: Path,
) -> None:
    disk, listener = FailingDisk(), Listener()
    store = await open_store(sync_config(tmp_path), listener, runtime_on(disk))
    store.start()
    assert await put_and_wait(store, b"safe") is True
    disk.fail_syncs = True
    assert await put_and_wait(store, b"not confirmed") is False
    disk.fail_syncs = False
    disk.log.clear()
    assert store.writable is False
    with pytest.raises(WritesStopped, match="Input/output error"):
        store.put(draft(b"refused"))
    waiting = store.when_flushed(store.physical_max)
    assert waiting is not None
    assert await waiting is False
    assert bodies_of(store) == [b"safe"], "only what was flushed is visible"
    await store.close()
    assert not [line for line in disk.log if line.startswith("sync commitlog")]
    assert (tmp_path / "abort").exists(), "the next start must look closely"
    assert "Input/output error" in str(listener.lifecycle("WRITES_STOPPED")[0].detail)


async def test_after_a_failed_sync_a_restart_serves_what_was_acknowledged(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = await open_store(sync_config(tmp_path), runtime=runtime_on(disk))
    store.start()
    for number in range(50):
        assert await put_and_wait(store, b"%d" % number) is True
    disk.fail_syncs = True
    assert await put_and_wait(store, b"unknown") is False
    await abandon(store)
    store = await open_store(sync_config(tmp_path))
    assert bodies_of(store)[:50] == [b"%d" % number for number in range(50)]
    assert store.writable
    await store.close()


async def test_a_failed_sync_under_async_flush_stops_writing_too(tmp_path: Path) -> None:
    disk, listener = FailingDisk(), Listener()
    store = await open_store(small_config(tmp_path), listener, runtime_on(disk))
    disk.fail_syncs = True
    store.put(draft(b"kept in memory"))
    await turn()
    await store._flusher.flush_log("TIMER")
    with pytest.raises(WritesStopped):
        store.put(draft(b"refused"))
    assert bodies_of(store) == [b"kept in memory"]
    assert store.physical_flushed == 0
    await store.close()


async def test_a_full_disk_refuses_at_the_roll_and_writing_resumes_by_itself(
    tmp_path: Path,
) -> None:
    disk, listener = FailingDisk(), Listener()
    store = await open_store(small_config(tmp_path), listener, runtime_on(disk))
    disk.free_bytes = 4096 + 1000  # One commit-log file and a few small ones.
    accepted: list[bytes] = []
    refused: bytes | None = None
    for number in range(60):
        body = b"%03d" % number + bytes(200)
        try:
            store.put(draft(body))
        except DiskFull:
            refused = body
            break
        accepted.append(body)
        await turn()
    assert refused is not None
    assert store.physical_max < 4096, "nothing torn, not even the closing blank"
    with pytest.raises(DiskFull, match="no space left"):
        store.put(draft(refused))
    assert len(listener.lifecycle("DISK_FULL")) == 1, "reported once, not with every refusal"
    assert bodies_of(store) == accepted
    disk.free_bytes = None
    result = store.put(draft(refused))
    assert (result.physical_offset, result.queue_offset) == (4096, len(accepted))
    await turn()
    assert bodies_of(store) == [*accepted, refused]
    await abandon(store)
    store = await open_store(small_config(tmp_path))
    assert bodies_of(store) == [*accepted, refused]
    await store.close()


async def test_small_messages_that_still_find_room_do_not_report_the_full_disk_again(
    tmp_path: Path,
) -> None:
    disk, listener, clock = FailingDisk(), Listener(), HandClock()
    store = await open_store(small_config(tmp_path), listener, runtime_on(disk, clock))
    store.put(draft(bytes(3000)))
    disk.free_bytes = 0
    for _ in range(3):
        with pytest.raises(DiskFull):
            store.put(draft(bytes(2000)))
        store.put(draft(b"small"))
    assert len(listener.lifecycle("DISK_FULL")) == 1
    clock.value_ms += DISK_FULL_QUIET_MS
    with pytest.raises(DiskFull):
        store.put(draft(bytes(2000)))
    assert len(listener.lifecycle("DISK_FULL")) == 2, "after a minute without, it is news"
    await abandon(store)


async def test_a_consume_queue_that_found_no_room_is_filled_when_there_is(tmp_path: Path) -> None:
    disk = FailingDisk()
    config = small_config(tmp_path, mapped_file_size_commit_log_bytes=1 << 20)
    store = await open_store(config, runtime=runtime_on(disk))
    store.put(draft(b"first"))
    await turn()
    disk.free_bytes = 0  # The queue's files cannot be made; the log has its room.
    for number in range(QUEUE_UNITS_WAITING_MAX + 10):
        store.put(draft(b"%d" % number))
        await turn()
        await store._flusher.flush_derived("TIMER")
    assert store.max_offset("TopicA", 0) == QUEUE_UNITS_WAITING_MAX, "the rest is undispatched"
    disk.free_bytes = None
    store.start()
    await until(lambda: store.max_offset("TopicA", 0) == QUEUE_UNITS_WAITING_MAX + 11)
    put = [b"first", *(b"%d" % number for number in range(QUEUE_UNITS_WAITING_MAX + 10))]
    assert bodies_of(store) == put
    await abandon(store)
    store = await open_store(config)
    assert bodies_of(store) == put
    await store.close()


async def test_keys_of_a_message_that_found_no_room_follow_those_that_did(tmp_path: Path) -> None:
    disk = FailingDisk()
    config = small_config(tmp_path, max_index_count=3, mapped_file_size_commit_log_bytes=1 << 20)
    store = await open_store(config, runtime=runtime_on(disk))

    def found() -> list[int]:
        span = {"max_count": 9, "begin_ms": 0, "end_ms": 1 << 60}
        return [len(store.query_by_key("TopicA", key, **span).physical_offsets) for key in keys]

    keys = ["first", "one", "two", "three", "four", "five"]
    store.put(draft(properties="KEYS\x01first\x02"))
    await turn()
    disk.free_bytes = 0  # Of five keys one finds room, the others need two more files.
    store.put(draft(properties="KEYS\x01one two three four five\x02"))
    await turn()
    assert found() == [1, 1, 0, 0, 0, 0]
    disk.free_bytes = None
    store._dispatching.turn()
    assert found() == [1, 1, 1, 1, 1, 1]
    await abandon(store)
    store = await open_store(config)
    assert found() == [1, 1, 1, 1, 1, 1]
    await store.close()


async def test_no_queue_loses_its_sync_to_another_that_finds_no_room_meanwhile(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    store = await open_store(small_config(tmp_path), runtime=runtime_on(disk))
    eight_fill_a_file = [draft(queue_id=1)] * 8
    store.put(draft(queue_id=0))
    store.put_batch(eight_fill_a_file)
    await turn()
    disk.hold_syncs = asyncio.Event()
    flush = asyncio.create_task(store._flusher.flush_derived("TIMER"))
    await turn()
    store.put_batch(eight_fill_a_file)  # They need a file, and there is no room for it.
    await turn()
    disk.free_bytes = 0
    disk.hold_syncs.set()
    await flush
    disk.free_bytes = None
    await store._flusher.flush_derived("TIMER")
    assert store._life.checkpoint.value.logics_timestamp_ms > 0
    assert f"sync 0/{0:020d}" in disk.log, "what the checkpoint vouches for was synced"
    await store.close()


async def test_a_disk_fuller_than_the_warning_level_refuses_puts_until_it_is_emptier(
    tmp_path: Path,
) -> None:
    disk, listener = FailingDisk(), Listener()
    config = small_config(
        tmp_path,
        disk_max_used_ratio=0.75,
        disk_clean_forcibly_ratio=0.85,
        disk_warning_ratio=0.9,
    )
    store = await open_store(config, listener, runtime_on(disk))
    store.put(draft(b"kept"))
    await turn()
    disk.ratio = 0.95
    await store.retention.run(0)
    assert store.writable is False
    with pytest.raises(WritesStopped, match="fuller than 90%"):
        store.put(draft(b"refused"))
    assert bodies_of(store) == [b"kept"]
    disk.ratio = 0.89
    await store.retention.run(0)
    assert store.put(draft(b"taken")).queue_offset == 1
    await store.close()
    assert len(listener.lifecycle("DISK_FULL")) == 1


async def test_one_sync_serves_every_waiter_and_comes_after_its_writes(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = await open_store(sync_config(tmp_path), runtime=runtime_on(disk))
    store.start()
    disk.log.clear()
    results = [store.put(draft(b"%d" % number)) for number in range(10)]
    futures = [store.when_flushed(result.end_offset) for result in results]
    assert all(future is futures[0] for future in futures)
    assert futures[0] is not None
    assert await futures[0] is True
    log = [line for line in disk.log if "commitlog" in line]
    assert [line.split()[0] for line in log[:12]] == ["write"] * 10 + ["sync_directory", "sync"]
    assert store.physical_flushed == results[-1].end_offset
    assert store.when_flushed(results[-1].end_offset) is None
    await store.close()


async def test_no_send_waits_for_the_next_file_to_be_made(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.hold_making = threading.Event()
    store = await open_store(sync_config(tmp_path), runtime=runtime_on(disk))
    store.start()
    for _ in range(2):  # The first makes the log half full: the next file is begun, and held.
        waiting = store.when_flushed(store.put(draft(bytes(2500))).end_offset)
        assert waiting is not None
        async with asyncio.timeout(3):  # Less than sync_flush_timeout_ms.
            assert await waiting is True
        await turn()
    disk.hold_making.set()
    await store.close()


async def test_a_put_during_a_sync_waits_for_the_next_one(tmp_path: Path) -> None:
    disk = FailingDisk()
    store = await open_store(sync_config(tmp_path), runtime=runtime_on(disk))
    store.start()
    disk.hold_syncs = asyncio.Event()
    first = store.put(draft(b"first"))
    waiting_first = store.when_flushed(first.end_offset)
    await turn()  # The flush begins and is held.
    second = store.put(draft(b"second"))
    waiting_second = store.when_flushed(second.end_offset)
    assert waiting_first is not None
    assert waiting_second is not None
    assert waiting_second is not waiting_first
    assert store.when_flushed(first.end_offset) is waiting_first
    disk.hold_syncs.set()
    assert await waiting_first is True
    assert bodies_of(store) == [b"first"]
    assert await waiting_second is True
    assert bodies_of(store) == [b"first", b"second"]
    await store.close()


async def test_who_begins_to_wait_during_a_sync_nobody_waited_for_is_reported_by_it(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    store = await open_store(sync_config(tmp_path), runtime=runtime_on(disk))
    store.start()
    disk.hold_syncs = asyncio.Event()
    result = store.put(draft(b"nobody waits"))
    store._flusher.wake()
    await turn()  # The flush begins and is held.
    late = store.when_flushed(result.end_offset)
    assert late is not None
    disk.hold_syncs.set()
    async with asyncio.timeout(3):  # Less than sync_flush_timeout_ms.
        assert await late is True
    await store.close()


async def test_a_sync_that_takes_too_long_answers_unknown_and_still_ends(tmp_path: Path) -> None:
    disk = FailingDisk()
    config = sync_config(tmp_path, sync_flush_timeout_ms=20)
    store = await open_store(config, runtime=runtime_on(disk))
    store.start()
    disk.hold_syncs = asyncio.Event()
    result: PutResult = store.put(draft(b"slow"))
    waiting = store.when_flushed(result.end_offset)
    assert waiting is not None
    assert await waiting is False
    assert store.writable
    disk.hold_syncs.set()
    await until(lambda: store.physical_flushed >= result.end_offset)
    assert bodies_of(store) == [b"slow"]
    await store.close()
