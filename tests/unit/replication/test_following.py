"""A slave follows its master's log byte for byte, and says no more than it has."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from engine.foundation.errors import ClusterError
from engine.replication import Following, HaClient, MasterAddress, ha_client
from engine.replication.ha_frames import HEARTBEAT_MS, PIECE, REPORT
from engine.store import FlushDiskType
from tests.failing_disk import FailingDisk
from tests.store_support import bodies_of, draft, runtime_on
from tests.unit.replication.two_stores import (
    FILE_BYTES,
    LOOPBACK,
    Pair,
    eventually,
    log_bytes,
    pair,
)


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_a_slave_has_what_its_master_has_and_goes_on_when_it_comes_back(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    async with pair(tmp_path, flush_disk_type=flush) as stage:
        stage.slave.start()
        stage.put(*(b"before %d" % number * 40 for number in range(60)))
        stage.follow()
        await stage.caught_up()
        stage.put(b"while it follows", b"more")
        await stage.caught_up()
        await stage.leave()
        stage.put(*(b"while it is away" * 30 for _ in range(40)))
        stage.follow()
        await stage.caught_up()
        assert log_bytes(stage.slave) == log_bytes(stage.master)
        await eventually(lambda: stage.slave.queues() == stage.master.queues())
        for key in stage.master.queues():
            await eventually(partial(same_bodies, stage, key))
        assert stage.client.following is Following.FOLLOWING


async def test_a_put_is_acknowledged_when_the_slave_has_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as stage:
        stage.follow()
        end = stage.put(b"first")
        await stage.caught_up()
        await eventually(lambda: stage.acknowledgements.when_met(0, end) is None)
        end = stage.put(b"second")
        commit = stage.acknowledgements.when_met(0, end)
        assert commit is not None
        assert await commit
        assert stage.slave.physical_max == end


async def test_a_slave_in_sync_flush_acknowledges_what_is_synced(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with pair(tmp_path, disk=disk, flush_disk_type=FlushDiskType.SYNC_FLUSH) as stage:
        stage.slave.start()
        stage.follow()
        await eventually(lambda: stage.client.following is Following.FOLLOWING, within_s=9)
        disk.hold_syncs = asyncio.Event()
        end = stage.put(b"safe on two disks")
        await stage.caught_up()
        await asyncio.sleep(0.05)
        assert stage.acknowledgements.when_met(0, end) is not None, "its sync has not ended"
        disk.hold_syncs.set()
        await eventually(lambda: stage.acknowledgements.when_met(0, end) is None)


async def test_what_is_not_synced_is_in_no_heartbeat_either(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with pair(tmp_path, disk=disk, flush_disk_type=FlushDiskType.SYNC_FLUSH) as stage:
        said = list[int]()
        connection = ha_client._Connection(
            runtime_on(disk), stage.slave, on_following=lambda _end: None
        )
        stage.slave.start()
        connection.connection_made(cast(asyncio.Transport, Said(said)))
        connection.begin(0)
        connection.go_on()
        disk.hold_syncs = asyncio.Event()
        end = stage.put(b"not synced yet")
        connection.data_received(PIECE.pack(0, end) + log_bytes(stage.master))
        assert stage.slave.physical_max == end
        connection.tick(connection._said_ms + HEARTBEAT_MS)
        before_the_sync = list(said)
        disk.hold_syncs.set()
        assert before_the_sync == [0, 0], "where it begins, and a heartbeat that says no more"
        await eventually(lambda: said[-1] == end)
        connection.close()


async def test_a_master_that_refuses_its_figures_is_asked_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as stage:
        refused = list[str]()

        async def find_master() -> MasterAddress | None:
            if not refused:
                refused.append("once")
                raise ClusterError("the master refused GET_BROKER_RUNTIME_INFO")
            return await stage.find_master()

        stage.client = HaClient(
            runtime_on(), stage.slave, find_master=find_master, is_slave=lambda: True, tls=None
        )
        stage.put(b"a message")
        stage.follow()
        await eventually(lambda: "refused GET_BROKER" in stage.client.reason)
        assert stage.client.following is Following.SEARCHING
        await stage.caught_up()


async def test_who_was_a_slave_once_follows_nobody_until_it_is_compared_again(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as stage:
        role = ["SLAVE"]
        stage.client = HaClient(
            runtime_on(),
            stage.slave,
            find_master=stage.find_master,
            is_slave=lambda: role == ["SLAVE"],
            tls=None,
        )
        stage.put(b"a message")
        stage.follow()
        await eventually(lambda: stage.client.following is Following.FOLLOWING)
        role[:] = ["MASTER"]
        await eventually(lambda: stage.client.following is Following.SEARCHING)


async def test_without_a_slave_a_put_is_not_acknowledged(tmp_path: Path) -> None:
    async with pair(tmp_path) as stage:
        first = stage.acknowledgements.when_met(0, stage.put(b"alone"))
        await asyncio.sleep(0.1)
        second = stage.acknowledgements.when_met(0, stage.put(b"later"))
        assert first is not None
        assert second is not first, "each has its own time"
        assert not await first
        third = stage.acknowledgements.when_met(0, stage.put(b"in time"))
        stage.follow()
        assert third is not None
        assert await third, "a slave that comes in time is enough"


async def test_puts_of_one_turn_share_a_waiter(tmp_path: Path) -> None:
    async with pair(tmp_path) as stage:
        stage.follow()
        await eventually(lambda: len(list(stage.service.replicas())) == 1)
        first = stage.acknowledgements.when_met(0, stage.put(b"a"))
        second = stage.acknowledgements.when_met(0, stage.put(b"b"))
        assert first is second
        assert first is not None
        assert await first
        assert stage.slave.physical_max == stage.master.physical_max


async def test_a_slave_that_has_nothing_gets_the_log_from_its_begin(tmp_path: Path) -> None:
    async with pair(tmp_path) as stage:
        await stage.master.begin_at(2 * FILE_BYTES)
        stage.put(*(b"%d" % number * 90 for number in range(90)))
        stage.follow()
        await stage.caught_up()
        assert stage.slave.physical_min == stage.master.physical_min == 2 * FILE_BYTES
        assert log_bytes(stage.slave) == log_bytes(stage.master)


async def test_a_slave_whose_log_is_longer_does_not_follow_and_loses_nothing(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as stage:
        stage.follow()
        stage.put(b"common")
        await stage.caught_up()
        await stage.leave()
        stage.slave.put(draft(b"acknowledged by a slave that was asked"))
        end = stage.slave.physical_max
        stage.follow()
        await eventually(stage.is_diverged)
        assert f"ends at {end}" in stage.client.reason
        assert "Promote this node, or rebuild its log" in stage.client.reason
        assert stage.slave.physical_max == end


async def test_a_slave_whose_end_differs_does_not_follow(tmp_path: Path) -> None:
    async with pair(tmp_path) as stage:
        stage.follow()
        stage.put(b"common")
        await stage.caught_up()
        await stage.leave()
        stage.slave.put(draft(b"this one"))
        stage.put(b"that one", b"more")
        end = stage.slave.physical_max
        stage.follow()
        await eventually(stage.is_diverged)
        assert "differ" in stage.client.reason
        assert stage.slave.physical_max == end
        assert stage.acknowledgements.when_met(0, end) is not None, "it acknowledged nothing"


class Said:
    """A transport that notes the offsets that a slave reports."""

    def __init__(self, said: list[int]) -> None:
        self._said = said

    def write(self, data: bytes) -> None:
        self._said += REPORT.unpack(data)

    def resume_reading(self) -> None:
        """Nobody sends."""

    def abort(self) -> None:
        """Nobody is there."""


def same_bodies(stage: Pair, key: tuple[str, int]) -> bool:
    return bodies_of(stage.slave, *key) == bodies_of(stage.master, *key)


async def raw_slave(port: int, offset: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(REPORT.pack(offset))
    return reader, writer


async def test_a_report_beyond_what_was_sent_ends_the_connection(tmp_path: Path) -> None:
    async with pair(tmp_path) as stage:
        end = stage.put(b"a message")
        reader, writer = await raw_slave(stage.port, 0)
        header = await reader.readexactly(PIECE.size)
        assert PIECE.unpack(header) == (0, end)
        await reader.readexactly(end)
        writer.write(REPORT.pack(end + 1))
        assert await reader.read() == b""
        assert stage.acknowledgements.when_met(0, end) is not None
        writer.close()


async def test_a_slave_beyond_the_masters_end_is_not_served(tmp_path: Path) -> None:
    async with pair(tmp_path) as stage:
        end = stage.put(b"a message")
        reader, writer = await raw_slave(stage.port, end + 1)
        assert await reader.read() == b""
        writer.close()


async def test_what_a_slave_claims_to_have_had_before_acknowledges_nothing(tmp_path: Path) -> None:
    async with pair(tmp_path) as stage:
        end = stage.put(b"a message")
        _reader, writer = await raw_slave(stage.port, end)
        await eventually(lambda: len(list(stage.service.replicas())) == 1)
        writer.write(REPORT.pack(end))
        await asyncio.sleep(0.05)
        assert stage.acknowledgements.when_met(0, end) is not None
        writer.close()


async def test_entries_that_come_in_several_pieces_are_stored_whole(tmp_path: Path) -> None:
    async with pair(tmp_path) as stage:
        stage.put(*(b"%d" % number * 30 for number in range(9)))
        log, writers = log_bytes(stage.master), list[asyncio.StreamWriter]()

        async def serve(_reader: asyncio.StreamReader, writer: Any) -> None:
            writers.append(writer)
            for begin in range(0, len(log), 7):
                piece = log[begin : begin + 7]
                writer.write(PIECE.pack(begin, len(piece)) + piece)
                if not begin:
                    await eventually(lambda: stage.client.following is Following.FOLLOWING)

        server = await asyncio.start_server(serve, LOOPBACK, 0)
        stage.port = server.sockets[0].getsockname()[1]
        stage.following = asyncio.create_task(stage.client.run())
        await stage.caught_up()
        assert log_bytes(stage.slave) == log
        stage.following.cancel()
        await asyncio.gather(stage.following, return_exceptions=True)
        stage.following = None
        writers[0].close()
        await writers[0].wait_closed()
        server.close()


@pytest.mark.parametrize(
    "hostile", [b"\xff" * 8, PIECE.pack(7, 3) + b"abc", PIECE.pack(0, 40) + b"\x00" * 40]
)
async def test_a_master_that_sends_nonsense_is_left_and_nothing_of_it_is_stored(
    tmp_path: Path, hostile: bytes
) -> None:
    async def serve(_reader: asyncio.StreamReader, writer: Any) -> None:
        writer.write(hostile + bytes(8))
        writer.close()

    async with pair(tmp_path) as stage:
        server = await asyncio.start_server(serve, LOOPBACK, 0)
        stage.port = server.sockets[0].getsockname()[1]
        stage.follow()
        await eventually(lambda: "knows a master" not in stage.client.reason)
        await eventually(lambda: stage.client.following is not Following.COMPARING)
        await asyncio.sleep(0.1)
        assert stage.slave.physical_max == 0
        server.close()
