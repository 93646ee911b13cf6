"""Row C7: three ways to flush and the transient pool, what each row of flush_checkpoints says of
them, and what a crash then costs.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.config import BrokerConfig, BrokerRole
from engine.foundation.errors import ConfigError, WritesStopped
from engine.foundation.limits import TRANSIENT_POOL_BYTES_MAX
from engine.runtime import system_runtime
from engine.runtime.kernel import UnwrittenPages, parse_input, parse_memory
from engine.store import FlushDiskType, GetStatus, StoreConfig
from engine.store.upkeep.checkpoint import decode_checkpoint
from tests.failing_disk import FailingDisk
from tests.store_support import (
    BIG,
    START_MS,
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


def pooled(root: Path, **changes: object) -> StoreConfig:
    """A store with the pool, whose timers do nothing until a test says so."""
    slow = {"commit_interval_commit_log_ms": 60_000, "flush_interval_commit_log_ms": 60_000}
    return small_config(root, transient_store_pool_enable=True, **(slow | changes))


async def test_what_waits_in_the_pool_is_seen_by_nobody_until_its_commit(tmp_path: Path) -> None:
    listener, arrived = Listener(), list[int]()
    store = await open_store(pooled(tmp_path), listener)
    store.on_arrival(lambda requests: arrived.extend(one.queue_offset + 1 for one in requests))
    result = store.put(draft(b"waits", properties="UNIQ_KEY\x01k\x02"))
    await turn()
    assert (store.physical_committed, store.physical_max) == (0, result.end_offset)
    assert store.max_offset("TopicA", 0) == 0
    nothing = store.get("TopicA", 0, 0, max_count=1, max_bytes=BIG)
    assert nothing.status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.record_at(result.physical_offset) is None
    assert arrived == []
    store._committer.commit("TIMER")
    assert store.physical_committed == result.end_offset
    assert bodies_of(store) == [b"waits"]
    assert arrived == [1]
    assert store.put(draft(b"next")).queue_offset == 1, "offsets run on in memory"
    await store.close()
    assert [fact.cause for fact in listener.flushes("COMMIT_LOG")] == [
        "TIMER",
        "SHUTDOWN",
        "SHUTDOWN",
    ]


async def test_commits_and_flushes_are_distinguished_with_three_offsets_each(
    tmp_path: Path,
) -> None:
    listener = Listener()
    store = await open_store(pooled(tmp_path), listener)
    first = store.put(draft(b"a")).end_offset
    store._committer.commit("TIMER")
    second = store.put(draft(b"b")).end_offset
    await store._flusher.flush_log("TIMER")
    await abandon(store)
    reported = [
        (fact.action, fact.written, fact.committed, fact.flushed)
        for fact in listener.flushes("COMMIT_LOG")
    ]
    assert reported == [("COMMIT", first, first, 0), ("FLUSH", second, first, first)]


async def test_each_row_has_the_most_a_crash_could_have_cost_since_the_row_before(
    tmp_path: Path,
) -> None:
    """Right after a commit nothing waits: the difference of the offsets alone would say 0."""
    listener = Listener()
    store = await open_store(pooled(tmp_path, mapped_file_size_commit_log_bytes=8192), listener)
    waited_bytes, unflushed_bytes = [0], [0]
    for number in range(30):  # More than a file: a roll commits as well.
        store.put(draft(b"%d" % number + bytes(400)))
        waited_bytes.append(store.physical_max - store.physical_committed)
        unflushed_bytes.append(store.physical_max - store.physical_flushed)
    store._committer.commit("TIMER")
    await store._flusher.flush_log("TIMER")
    store.put(draft(b"one more"))
    store._committer.commit("TIMER")
    await abandon(store)
    reported = [(fact.action, fact.at_risk_bytes) for fact in listener.flushes("COMMIT_LOG")]
    one_more = store.physical_max - store.physical_flushed
    assert reported == [
        ("COMMIT", max(waited_bytes)),
        ("FLUSH", max(unflushed_bytes)),
        ("COMMIT", one_more),
    ]


async def test_sigkill_loses_what_was_written_and_not_committed_and_recovery_says_how_much(
    tmp_path: Path,
) -> None:
    listener = Listener()
    store = await open_store(pooled(tmp_path), listener)
    for number in range(8):
        store.put(draft(b"%d" % number + bytes(300)))
        if number == 5:
            store._committer.commit("TIMER")
    await turn()
    await store._flusher.flush_log("TIMER")
    last = listener.flushes("COMMIT_LOG")[-1]
    assert last.written is not None
    assert last.committed is not None
    assert last.written - last.committed > 600
    await abandon(store)
    listener = Listener()
    store = await open_store(pooled(tmp_path), listener)
    assert len(bodies_of(store)) == 6
    recovery = listener.recovery
    assert (recovery.truncated_from, recovery.truncated_to) == (last.committed, last.written)
    assert f"{last.written - last.committed} bytes lost" in str(recovery.detail)
    await store.close()


async def test_recovery_counts_what_the_last_note_said_was_written(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    ends = [store.put(draft(b"%d" % number + bytes(300))).end_offset for number in range(9)]
    await store._flusher.flush_log("TIMER")
    store._life.checkpoint.value.flushed_offset = ends[
        4
    ]  # As when the others came during the sync.
    await store._flusher.flush_derived("TIMER")
    await abandon(store)
    log = tmp_path / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes()[: ends[4]])  # A power cut takes what was never synced.
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    recovery = listener.recovery
    assert (recovery.truncated_from, recovery.truncated_to) == (ends[4], ends[8])
    assert f"at least {ends[8] - ends[4]} bytes lost of {ends[8]}" in str(recovery.detail)
    await store.close()
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    assert listener.recovery.truncated_from is None, "it is reported once"
    await store.close()


async def test_files_of_the_pool_roll_and_recover_like_any_other(tmp_path: Path) -> None:
    config = pooled(tmp_path)
    store = await open_store(config)
    expected = [b"%d" % number + bytes(300) for number in range(40)]
    for body in expected:
        store.put(draft(body))
    assert len(list((tmp_path / "commitlog").iterdir())) > 3, "a roll commits what it leaves"
    store._committer.commit("TIMER")
    await abandon(store)
    store = await open_store(small_config(tmp_path))
    assert bodies_of(store) == expected
    await store.close()


async def test_a_full_pool_commits_by_itself(tmp_path: Path) -> None:
    config = pooled(tmp_path, mapped_file_size_commit_log_bytes=128 << 20)
    store = await open_store(config)
    piece = bytes(4 << 20)
    while store.physical_max < TRANSIENT_POOL_BYTES_MAX + 2 * len(piece):
        store.put(draft(piece))
        waiting_bytes = store.physical_max - store.physical_committed
        assert waiting_bytes <= TRANSIENT_POOL_BYTES_MAX
    assert store.physical_committed > 0
    await abandon(store)


async def test_a_commit_that_fails_ends_writing(tmp_path: Path) -> None:
    disk, listener = FailingDisk(), Listener()
    store = await open_store(pooled(tmp_path), listener, runtime_on(disk))
    store.put(draft(b"answered already"))
    disk.fail_writes = True
    store._committer.commit("TIMER")
    with pytest.raises(WritesStopped, match="committing the pool"):
        store.put(draft(b"refused"))
    assert len(listener.lifecycle("WRITES_STOPPED")) == 1
    await store.close()
    assert (tmp_path / "abort").exists()


async def test_the_pool_commits_and_flushes_by_its_own_timers(tmp_path: Path) -> None:
    config = pooled(
        tmp_path,
        commit_interval_commit_log_ms=5,
        commit_commit_log_thorough_interval_ms=1,
        commit_commit_log_least_bytes=1,
        flush_interval_commit_log_ms=5,
        flush_commit_log_least_bytes=1,
    )
    store = await open_store(config, runtime=runtime_on())
    store.start()
    result = store.put(draft(b"by itself"))
    await until(lambda: store.physical_flushed == result.end_offset)
    assert bodies_of(store) == [b"by itself"]
    await store.close()


def syncs_of_the_log(disk: FailingDisk) -> int:
    return disk.log.count(f"sync commitlog/{0:020d}")


async def test_the_log_is_synced_once_an_interval_while_it_grows_and_never_while_it_rests(
    tmp_path: Path,
) -> None:
    """However little is written: a quiet topic has no longer window than a busy one."""
    disk, loop = FailingDisk(), asyncio.get_running_loop()
    config = small_config(
        tmp_path, flush_interval_commit_log_ms=50, mapped_file_size_commit_log_bytes=1 << 20
    )
    store = await open_store(config, runtime=replace(system_runtime(), disk=disk))
    store.start()
    disk.log.clear()
    began_s = loop.time()
    while loop.time() - began_s < 0.6:
        store.put(draft(b"little"))
        await asyncio.sleep(0.002)
    end_offset = store.physical_max
    await until(lambda: store.physical_flushed == end_offset, within_s=5)
    syncs, intervals = syncs_of_the_log(disk), (loop.time() - began_s) / 0.05
    assert 2 <= syncs <= intervals + 1
    disk.log.clear()
    await asyncio.sleep(0.3)
    assert syncs_of_the_log(disk) == 0, "nothing is dirty"
    await store.close()


def test_by_default_no_message_waits_longer_than_one_interval_for_its_flush() -> None:
    config = StoreConfig("/store")
    assert (config.flush_commit_log_least_bytes, config.flush_interval_commit_log_ms) == (0, 500)


async def test_who_sets_a_least_amount_has_less_wait_for_the_thorough_interval(
    tmp_path: Path,
) -> None:
    config = small_config(
        tmp_path,
        flush_interval_commit_log_ms=5,
        flush_commit_log_least_bytes=1024,
        flush_commit_log_thorough_interval_ms=60_000,
    )
    store = await open_store(config)
    store.start()
    store.put(draft(b"little"))
    await asyncio.sleep(0.1)
    assert store.physical_flushed == 0
    enough = store.put(draft(bytes(1024))).end_offset
    await until(lambda: store.physical_flushed == enough)
    await store.close()


def test_the_pool_is_refused_where_it_would_break_a_promise() -> None:
    with pytest.raises(ConfigError, match="only in memory"):
        StoreConfig(
            "/store", flush_disk_type=FlushDiskType.SYNC_FLUSH, transient_store_pool_enable=True
        )
    with pytest.raises(ConfigError, match="on a slave"):
        BrokerConfig(
            StoreConfig("/store", transient_store_pool_enable=True),
            broker_role=BrokerRole.SLAVE,
            broker_id=1,
            namesrv_addresses=("127.0.0.1:9876",),
        )


async def test_of_many_queues_those_with_little_to_lose_wait_and_the_checkpoint_with_them(
    tmp_path: Path,
) -> None:
    clock = HandClock()
    config = small_config(
        tmp_path, flush_consume_queues_at_once=3, flush_consume_queue_least_bytes=2 * 20
    )
    store = await open_store(config, runtime=runtime_on(clock=clock))
    begun_ms = store._life.checkpoint.value.logics_timestamp_ms

    async def put(*queue_ids: int) -> int:
        clock.value_ms += 10
        stored_ms = max(store.put(draft(queue_id=one)).store_timestamp_ms for one in queue_ids)
        await turn()
        await store._flusher.flush_derived("TIMER")
        return stored_ms

    await put(0, 0, 1, 2, 3)
    assert list(store._queues.dirty) == [("TopicA", 1), ("TopicA", 2), ("TopicA", 3)]
    assert store._life.checkpoint.value.logics_timestamp_ms == begun_ms
    clock.value_ms += config.flush_consume_queue_thorough_interval_ms
    for queue_ids in ((0, 1, 2, 3), (1, 2, 3)):
        stored_ms = await put(*queue_ids)
        assert not store._queues.dirty, f"all due, or few: {queue_ids}"
        assert store._life.checkpoint.value.logics_timestamp_ms == stored_ms
    await store.close()


async def test_each_flush_reports_what_the_kernel_has_not_written_yet(tmp_path: Path) -> None:
    listener = Listener()
    store = await open_store(small_config(tmp_path), listener)
    store.put(draft(b"dirty"))
    await store._flusher.flush_log("TIMER")
    await store.close()
    reported = listener.flushes("COMMIT_LOG")
    assert reported[0].kernel_dirty is not None
    assert reported[0].kernel_writeback is not None


def test_the_kernels_figures_are_read_from_its_own_text() -> None:
    text = "MemTotal: 24 kB\nDirty:    12 kB\nWriteback:     3 kB\nWritebackTmp:  9 kB\n"
    assert parse_memory(text) == UnwrittenPages(12 * 1024, 3 * 1024)
    assert parse_memory("MemTotal: 24 kB\nDirty: 12 kB\n") is None, "unknown is not 0"
    assert parse_input("rchar: 7\nread_bytes: 4096\nwrite_bytes: 0\n") == 4096
    assert parse_input("rchar: 7\nwrite_bytes: 0\n") is None


async def test_the_checkpoint_vouches_for_whole_index_files_only(tmp_path: Path) -> None:
    """As RocketMQ 5.5.0 has it: after a kill it deletes index files newer than this time, and goes
    on in one that is not. A time inside a file would have it trust half of one."""
    clock = HandClock()
    config = small_config(tmp_path, max_index_count=4)
    store = await open_store(config, runtime=runtime_on(clock=clock))
    ends: list[int] = []
    for number in range(8):
        clock.value_ms += 1000
        store.put(draft(b"%d" % number, properties=f"UNIQ_KEY\x01{number}\x02"))
        await turn()
        await store._flusher.flush_log("TIMER")
        await store._flusher.flush_derived("TIMER")
        noted = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
        ends.append(noted.index_timestamp_ms and (noted.index_timestamp_ms - START_MS) // 1000)
    assert ends == [0, 0, 3, 3, 3, 6, 6, 6], "three entries fill a file"
    await store.close()
