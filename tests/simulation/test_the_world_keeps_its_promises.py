"""The simulator: time jumps, streams keep order, disks forget unsynced bytes, seeds repeat."""

from __future__ import annotations

import asyncio

import pytest

from engine.foundation.errors import ConnectFailed, DiskFull, StorageError
from engine.runtime import Runtime
from tests.seeds import seeded
from tests.simulation.world import World, run_world
from tests.simulation.world.loop import SimulationDeadlock

A, B = "10.0.0.1", "10.0.0.2"


class Recorder(asyncio.Protocol):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.lost = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def connect(world: World) -> tuple[Recorder, Recorder]:
    """A connection from A to B; returns A's end and B's end."""
    ends: list[Recorder] = []

    def accept() -> Recorder:
        ends.append(Recorder())
        return ends[-1]

    for host in (A, B):
        if not world.node(host).up:
            await world.node(host).boot(_nothing)
    await world.node(B).runtime.network.listen(B, 9876, accept)
    near = await world.node(A).runtime.network.connect(B, 9876, Recorder, timeout_ms=1000)
    assert isinstance(near, Recorder)
    return near, ends[0]


async def _nothing(runtime: Runtime) -> None:
    del runtime


def test_a_day_of_sleep_takes_no_time_and_moves_the_clock() -> None:
    seen: list[int] = []

    async def scenario(world: World) -> None:
        await world.node(A).boot(_nothing)
        before_ms = world.node(A).runtime.clock.now_ms()
        await asyncio.sleep(86_400)
        seen.append(world.node(A).runtime.clock.now_ms() - before_ms)

    run_world(1, scenario)
    assert seen == [86_400_000]


def test_waiting_for_what_never_comes_is_reported_as_a_deadlock() -> None:
    async def scenario(world: World) -> None:
        await world.loop.create_future()

    with pytest.raises(SimulationDeadlock):
        run_world(1, scenario)


@seeded(10)
def test_a_stream_arrives_whole_and_in_order_however_it_is_cut(seed: int) -> None:
    async def scenario(world: World) -> None:
        world.network.loss_percent = 20
        near, far = await connect(world)
        sent = b"".join(number.to_bytes(2, "big") for number in range(500))
        for first in range(0, len(sent), 7):
            near.transport.write(sent[first : first + 7])
        await world.until("all bytes", lambda: len(far.heard) == len(sent), within_s=60)
        assert bytes(far.heard) == sent

    run_world(seed, scenario)


def test_a_partition_lets_no_byte_through_and_then_breaks_the_connection() -> None:
    async def scenario(world: World) -> None:
        near, far = await connect(world)
        world.network.partition(A, B)
        near.transport.write(b"into the void")
        with pytest.raises(ConnectFailed):
            await world.node(A).runtime.network.connect(B, 9876, Recorder, timeout_ms=500)
        await world.until("the sender gives up", lambda: near.lost, within_s=60)
        assert not far.heard

    run_world(1, scenario)


def test_a_crashed_process_resets_its_connections_and_frees_its_ports() -> None:
    async def scenario(world: World) -> None:
        near, _ = await connect(world)
        world.node(B).crash(power_cut=False)
        await world.until("the reset", lambda: near.lost, within_s=1)
        with pytest.raises(ConnectFailed):
            await world.node(A).runtime.network.connect(B, 9876, Recorder, timeout_ms=500)

    run_world(1, scenario)


def test_a_crashed_process_writes_nothing_more() -> None:
    async def scenario(world: World) -> None:
        node = world.node(A)

        async def start(runtime: Runtime) -> Runtime:
            return runtime

        runtime = await node.boot(start)
        runtime.disk.write("/file", b"before")
        node.crash(power_cut=False)
        with pytest.raises(StorageError):
            runtime.disk.write("/file", b"after")
        runtime = await node.boot(start)
        assert runtime.disk.read("/file") == b"before"

    run_world(1, scenario)


def test_a_power_cut_keeps_what_was_synced_and_of_the_rest_a_prefix_or_any_of_its_sectors() -> None:
    kept: dict[bytes, None] = {}

    async def scenario(world: World) -> None:
        node = world.node(A)
        await node.boot(_nothing)
        file = node.runtime.disk.open("/log", create=True)
        file.pwrite(b"synced.", 0)
        file.sync()
        node.runtime.disk.sync_directory("/")
        file.pwrite(b"one.", 7)
        file.pwrite(b"two.", 11)
        node.crash(power_cut=True)
        await node.boot(_nothing)
        kept[node.runtime.disk.read("/log")] = None

    for seed in range(60):
        run_world(seed, scenario)
    assert all(content.startswith(b"synced.") for content in kept)
    first_is_lost = b"synced.\0\0\0\0two."
    assert first_is_lost in kept
    assert all(
        b"synced.one.two.".startswith(content) for content in kept if content != first_is_lost
    )
    assert len(kept) > 4, "the cut falls in different places"


def test_a_folder_whose_name_was_not_synced_may_be_gone_with_all_that_was_synced_in_it() -> None:
    outcomes: dict[tuple[bool, bool], None] = {}

    async def scenario(world: World) -> None:
        node = world.node(A)
        await node.boot(_nothing)
        disk = node.runtime.disk
        disk.make_directories("/kept")
        disk.sync_directory("/")
        for folder in ("/kept", "/fresh"):
            disk.make_directories(folder)
            disk.open(f"{folder}/file", create=True).sync()
            disk.sync_directory(folder)
        node.crash(power_cut=True)
        await node.boot(_nothing)
        disk = node.runtime.disk
        assert disk.exists("/kept/file")
        outcomes[disk.is_directory("/fresh"), disk.exists("/fresh/file")] = None

    for seed in range(30):
        run_world(seed, scenario)
    assert sorted(outcomes) == [(False, False), (True, True)]


def test_a_file_whose_folder_was_not_synced_may_be_gone_after_a_power_cut() -> None:
    outcomes: dict[bool, None] = {}

    async def scenario(world: World) -> None:
        node = world.node(A)
        await node.boot(_nothing)
        node.runtime.disk.open("/fresh", create=True).sync()
        node.crash(power_cut=True)
        await node.boot(_nothing)
        outcomes[node.runtime.disk.exists("/fresh")] = None

    for seed in range(30):
        run_world(seed, scenario)
    assert sorted(outcomes) == [False, True]


def test_a_full_disk_refuses_and_keeps_what_it_has() -> None:
    async def scenario(world: World) -> None:
        node = world.node(A)
        await node.boot(_nothing)
        file = node.runtime.disk.open("/log", create=True)
        file.pwrite(b"here", 0)
        node.disk.free_bytes = 2
        with pytest.raises(DiskFull):
            file.pwrite(b"more", 4)
        assert file.pread(10, 0) == b"here"

    run_world(1, scenario)


def test_reads_of_some_files_fail_while_others_go_on() -> None:
    async def scenario(world: World) -> None:
        node = world.node(A)
        await node.boot(_nothing)
        bad, good = (node.runtime.disk.open(path, create=True) for path in ("/bad", "/good"))
        for file in (bad, good):
            file.pwrite(b"here", 0)
        node.disk.fail_reads = "/bad"
        for read in (lambda: bad.pread(4, 0), bad.view, lambda: node.runtime.disk.read("/bad")):
            with pytest.raises(StorageError, match="reading /bad: Input/output error"):
                read()
        assert good.pread(4, 0) == b"here"
        node.disk.fail_reads = None
        assert bad.pread(4, 0) == b"here"

    run_world(1, scenario)


def test_a_bit_that_flips_while_a_node_lives_shows_in_its_views_and_stays() -> None:
    async def scenario(world: World) -> None:
        node = world.node(A)
        await node.boot(_nothing)
        node.runtime.disk.make_directories("/store")
        file = node.runtime.disk.open("/store/log", create=True)
        file.pwrite(b"x", 0)
        file.sync()
        for folder in ("/store", "/"):
            node.runtime.disk.sync_directory(folder)
        view = file.view()
        assert node.disk.flip_a_bit("/store") == ("/store/log", 0)
        flipped = bytes(view)
        assert (flipped[0] ^ ord("x")).bit_count() == 1
        node.crash(power_cut=True)
        await node.boot(_nothing)
        assert node.runtime.disk.read("/store/log") == flipped

    run_world(1, scenario)


def test_a_disk_that_stands_still_holds_up_syncs_and_nothing_else() -> None:
    async def scenario(world: World) -> None:
        node = world.node(A)
        await node.boot(_nothing)
        loop, disk = asyncio.get_running_loop(), node.runtime.disk
        file = disk.open("/log", create=True)
        node.disk.still_until_s = loop.time() + 40
        syncing = asyncio.ensure_future(file.sync_async())
        await asyncio.sleep(39)
        assert not syncing.done()
        assert file.pread(1, 0) == b""
        began_s = loop.time()
        await syncing
        assert 1 <= loop.time() - began_s < 1.1
        await disk.off_loop(lambda: None)
        assert loop.time() - began_s < 1.1, "and is as quick as before"

    run_world(1, scenario)


def test_a_view_shows_later_writes_even_after_the_file_has_grown() -> None:
    async def scenario(world: World) -> None:
        node = world.node(A)
        await node.boot(_nothing)
        file = node.runtime.disk.open("/log", create=True)
        file.allocate(8)
        view = file.view()
        file.pwrite(b"grown", 8)
        file.pwrite(b"late", 0)
        assert bytes(view[:4]) == b"late"

    run_world(1, scenario)


def test_the_same_seed_is_the_same_run_and_another_seed_another() -> None:
    async def scenario(world: World) -> None:
        near, far = await connect(world)
        for number in range(50):
            near.transport.write(b"%d" % number)
            await asyncio.sleep(world.random.uniform(0, 0.01))
        await world.until("all bytes", lambda: len(far.heard) == 90, within_s=60)

    assert run_world(7, scenario).trace == run_world(7, scenario).trace
    assert run_world(7, scenario).trace != run_world(8, scenario).trace
