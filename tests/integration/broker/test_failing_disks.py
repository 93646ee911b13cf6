"""A broker on a disk that is full, slow or broken: writes are refused or answered as not yet safe,
reads go on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from engine.foundation.errors import StorageError, WritesStopped
from engine.protocol.codes import ResponseCode
from engine.runtime import system_runtime
from engine.store import FlushDiskType
from tests.failing_disk import FailingDisk, WatchedDisk
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    bodies,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.spooled import spooled

LOG_BYTES = 64 * 1024


async def test_a_full_disk_stops_writes_keeps_reads_and_recovers_by_itself(tmp_path: Path) -> None:
    disk = FailingDisk()
    config = broker_config(tmp_path, log_bytes=LOG_BYTES, telemetry=False)
    async with cluster(config, replace(system_runtime(), disk=disk)) as running:
        client = running.client()
        assert (await client.send(b"first")).code == ResponseCode.SUCCESS
        disk.free_bytes = 0
        sent = ResponseCode.SUCCESS
        for _ in range(40):
            answer = await client.send(bytes(4096))
            sent = ResponseCode(answer.code)
            if sent != ResponseCode.SUCCESS:
                break
        assert sent == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no space left" in (answer.remark or "")
        assert bodies(await client.pull(0))[0] == b"first", "reads go on"
        disk.free_bytes = None
        assert (await client.send(b"room again")).code == ResponseCode.SUCCESS


async def test_a_broker_whose_store_finds_no_room_says_that_it_has_to_be_started_again(
    tmp_path: Path,
) -> None:
    """What makes the store whole cannot wait, and nothing resumes by itself."""
    disk = FailingDisk()
    config = broker_config(tmp_path)
    async with cluster(config) as running:
        assert (await running.client().send(b"first")).code == ResponseCode.SUCCESS
    (tmp_path / "store" / "checkpoint").unlink()
    disk.free_bytes = 0
    with pytest.raises(StorageError, match=r"no space left.*; free some, then start it again"):
        async with cluster(config, replace(system_runtime(), disk=disk)):
            pass
    disk.free_bytes = None
    async with cluster(config, replace(system_runtime(), disk=disk)) as running:
        assert bodies(await running.client().pull(0))[0] == b"first"


async def test_a_full_disk_is_reported_as_a_lifecycle_event(tmp_path: Path) -> None:
    disk = FailingDisk()
    config = broker_config(tmp_path, log_bytes=LOG_BYTES)
    async with cluster(config, replace(system_runtime(), disk=disk)) as running:
        client = running.client()
        await client.send(b"first")
        disk.free_bytes = 0
        while (await client.send(bytes(4096))).code == ResponseCode.SUCCESS:
            pass
        disk.free_bytes = None
    kinds = [row["kind"] for row in spooled(tmp_path / "store", "lifecycle")]
    assert "DISK_FULL" in kinds


async def test_a_sync_that_does_not_end_in_time_is_answered_as_stored_but_not_safe(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    config = broker_config(
        tmp_path, flush=FlushDiskType.SYNC_FLUSH, sync_flush_timeout_ms=2000, telemetry=False
    )
    async with cluster(config, replace(system_runtime(), disk=disk)) as running:
        client = running.client()
        assert (await client.send(b"safe")).code == ResponseCode.SUCCESS
        disk.hold_syncs = asyncio.Event()
        slow = await client.send(b"not yet safe")
        assert slow.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert slow.fields["queueOffset"] == "1", "it is stored, and the answer says where"
        impatient = await client.send(b"does not wait", WAIT="false")
        assert impatient.code == ResponseCode.SUCCESS
        assert bodies(await client.pull(0)) == [b"safe"], "what is not safe is not delivered"
        disk.hold_syncs.set()
        pulled = await client.pull(1, wait_ms=10_000)
        assert bodies(pulled)[0] == b"not yet safe"


@pytest.mark.parametrize("flush", FlushDiskType)
async def test_however_slow_a_sync_is_nobody_else_waits_for_it(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    """Row C7: while a broker serves, no sync runs on the event loop."""
    disk = WatchedDisk()
    config = broker_config(tmp_path, log_bytes=LOG_BYTES, flush=flush)
    async with cluster(config, replace(system_runtime(), disk=disk)) as running:
        disk.held_the_loop.clear()
        disk.log.clear()
        client, offsets = running.client(), running.broker.state.offsets
        for number in range(60):  # Several commit-log files, new topics, delayed messages.
            topic = f"{TOPIC}-{number % 5}"
            answer = await client.send(bytes(4096), topic=topic, DELAY=number % 2)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        await client.heartbeat()
        await client.commit(1, topic=f"{TOPIC}-0")

        async def persisted() -> bool:
            return offsets.persisted(GROUP, f"{TOPIC}-0", 0) == 1

        await eventually(persisted, "the offset is persisted")

        async def flushed() -> bool:
            return any(line.startswith("sync 0/") for line in disk.log)

        await eventually(flushed, "consume queues are flushed")
        assert disk.held_the_loop == []


async def test_after_a_failed_sync_nothing_is_answered_as_safe_and_the_broker_ends(
    tmp_path: Path,
) -> None:
    """A second sync could succeed and mean nothing: only a recovery knows what the disk holds."""
    disk = FailingDisk()
    config = broker_config(tmp_path, flush=FlushDiskType.SYNC_FLUSH)
    async with cluster(config, replace(system_runtime(), disk=disk)) as running:
        client = running.client()
        assert (await client.send(b"safe")).code == ResponseCode.SUCCESS
        ending = asyncio.create_task(running.broker.wait())
        disk.fail_syncs = "commitlog"
        answer = await client.send(b"unknown")
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        disk.fail_syncs = False
        refused = await client.send(b"refused")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert bodies(await client.pull(0)) == [b"safe"], "reads go on to the end"
        with pytest.raises(WritesStopped, match="Input/output error"):
            await ending
    kinds = [row["kind"] for row in spooled(tmp_path / "store", "lifecycle")]
    assert kinds.count("WRITES_STOPPED") == 1
    assert (tmp_path / "store" / "abort").exists()
    async with cluster(config) as running:
        assert bodies(await running.client().pull(0))[0] == b"safe"


async def test_a_broker_that_cannot_save_its_tables_does_not_start_and_lets_the_store_go(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    config = broker_config(tmp_path, telemetry=False)
    async with cluster(config):
        pass
    topics = tmp_path / "store" / "config" / "topics.json"
    topics.unlink()
    (tmp_path / "store" / "config" / "topics.json.bak").unlink(missing_ok=True)
    (topics.parent / "topics.json.tmp").mkdir()
    with pytest.raises(StorageError, match=r"topics\.json\.tmp"):
        async with cluster(config, replace(system_runtime(), disk=disk)):
            pass
    (topics.parent / "topics.json.tmp").rmdir()
    async with cluster(config) as running:
        assert (await running.client().send()).code == ResponseCode.SUCCESS


async def test_offsets_that_could_not_be_persisted_are_persisted_when_the_disk_lets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingDisk()
    async with cluster(
        broker_config(tmp_path, telemetry=False), replace(system_runtime(), disk=disk)
    ) as running:
        client, offsets = running.client(), running.broker.state.offsets
        await client.send()
        disk.fail_syncs = "/config/"
        await client.commit(1)

        async def failed() -> bool:
            return "consume offsets are not persisted yet" in caplog.text

        await eventually(failed, "a try to persist the offsets fails")
        assert offsets.persisted(GROUP, TOPIC, 0) is None
        disk.fail_syncs = False

        async def persisted() -> bool:
            return offsets.persisted(GROUP, TOPIC, 0) == 1

        await eventually(persisted, "the offset is persisted after all")
