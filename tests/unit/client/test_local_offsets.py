"""A broadcast consumer's offset file: RocketMQ's form, merged writes, a .bak that helps, crashes
that lose nothing known.

Feature rows: A2.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from engine.client.consuming.offset_store import CommitTrigger, LocalOffsetStore, ReadOffset
from engine.foundation.errors import CorruptRecord
from engine.protocol.message import MessageQueue
from engine.runtime import Runtime
from engine.runtime.disk import Disk, SystemDisk
from tests.asynchronous import run_by
from tests.failing_disk import FailingDisk, WatchedDisk
from tests.simulation.world import World, run_world
from tests.unit.client.consuming_parts import HOST, Q0, Q1, in_virtual_time

FOLDER = "/offsets/10.0.0.1@DEFAULT/g"
FILE = f"{FOLDER}/offsets.json"
TIMER = CommitTrigger.TIMER
JAVA_FILE = (
    '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":1,\n\t\t\t"topic":'
    '"T"\n\t\t}:34,{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n'
    "\t\t}:12\n\t}\n}"
)


def store_on(disk: Disk) -> LocalOffsetStore:
    return LocalOffsetStore(disk, "/offsets", client_id="10.0.0.1@DEFAULT", group="g")


def put_file(disk: Disk, path: str, content: bytes) -> None:
    disk.make_directories(FOLDER)
    disk.write(path, content)


@run_by(in_virtual_time)
async def test_a_file_of_the_java_client_is_understood(world: World, runtime: Runtime) -> None:
    put_file(runtime.disk, FILE, JAVA_FILE.encode())
    store = store_on(runtime.disk)
    await store.load()
    assert store.clone() == {Q0: 12, Q1: 34}


@run_by(in_virtual_time)
async def test_without_a_file_nothing_is_known(world: World, runtime: Runtime) -> None:
    store = store_on(runtime.disk)
    await store.load()
    for where in ReadOffset:
        assert await store.read(Q0, where) is None


@run_by(in_virtual_time)
async def test_what_is_written_is_the_given_queues_and_what_the_file_had(
    world: World, runtime: Runtime
) -> None:
    first = store_on(runtime.disk)
    first.update(Q0, 5, increase_only=True)
    first.update(Q1, 6, increase_only=True)
    await first.persist_all([Q0, Q1], TIMER)

    second = store_on(runtime.disk)
    second.update(Q0, 9, increase_only=True)
    second.update(Q1, 1, increase_only=True)
    await second.persist(Q0, TIMER)

    third = store_on(runtime.disk)
    await third.load()
    assert third.clone() == {Q0: 9, Q1: 6}


@run_by(in_virtual_time)
async def test_memory_comes_first_and_the_file_when_asked_for(
    world: World, runtime: Runtime
) -> None:
    store = store_on(runtime.disk)
    store.update(Q0, 5, increase_only=True)
    await store.persist(Q0, TIMER)
    store.update(Q0, 8, increase_only=True)
    assert await store.read(Q0, ReadOffset.MEMORY_FIRST_THEN_STORE) == 8
    assert await store.read(Q0, ReadOffset.READ_FROM_STORE) == 5
    assert store.in_memory(Q0) == 5


@pytest.mark.parametrize("damage", [b"", b"  \n", b'{"offsetTable":{{"brok', b"\x00\xff"])
@run_by(in_virtual_time)
async def test_a_damaged_file_is_replaced_by_its_bak(
    world: World, runtime: Runtime, *, damage: bytes
) -> None:
    store = store_on(runtime.disk)
    for offset in (5, 6):
        store.update(Q0, offset, increase_only=True)
        await store.persist(Q0, TIMER)
    put_file(runtime.disk, FILE, damage)
    again = store_on(runtime.disk)
    await again.load()
    assert again.clone() == {Q0: 5}
    good = runtime.disk.read(f"{FILE}.bak")
    again.update(Q0, 7, increase_only=True)
    await again.persist(Q0, TIMER)
    assert runtime.disk.read(f"{FILE}.bak") == good, "a damaged file never replaces it"
    assert await store_on(runtime.disk).read(Q0, ReadOffset.READ_FROM_STORE) == 7


LOCAL_CASES = [
    case
    for case in json.loads((Path(__file__).parents[2] / "cases/offset_store.json").read_text())[
        "read_offset"
    ]
    if case["store"] == "local" and "file" in case
]


@pytest.mark.parametrize("case", LOCAL_CASES, ids=lambda case: f"file: {case['file']}")
@run_by(in_virtual_time)
async def test_a_store_that_cannot_answer_has_no_offset_as_in_rocketmq(
    world: World, runtime: Runtime, *, case: dict[str, Any]
) -> None:
    assert (case["type"], case["expected"]) == ("READ_FROM_STORE", -1)
    if case["file"] is not None:
        put_file(runtime.disk, FILE, b"{{{")
    store = store_on(runtime.disk)
    assert await store.read(Q0, ReadOffset.READ_FROM_STORE) is None
    await store.load()
    assert store.clone() == {}


@run_by(in_virtual_time)
async def test_two_damaged_files_refuse_the_start_and_name_them(
    world: World, runtime: Runtime
) -> None:
    put_file(runtime.disk, FILE, b"{{{")
    put_file(runtime.disk, f"{FILE}.bak", b"}}}")
    store = store_on(runtime.disk)
    with pytest.raises(CorruptRecord, match=r"offsets\.json and its \.bak are both damaged"):
        await store.load()
    assert await store.read(Q0, ReadOffset.READ_FROM_STORE) is None


@run_by(in_virtual_time)
async def test_a_full_disk_is_survived_and_the_next_round_writes(
    world: World, runtime: Runtime
) -> None:
    store = store_on(runtime.disk)
    store.update(Q0, 5, increase_only=True)
    await store.persist(Q0, TIMER)
    world.node(HOST).disk.free_bytes = 0
    store.update(Q0, 6, increase_only=True)
    await store.persist(Q0, TIMER)
    world.node(HOST).disk.free_bytes = 1 << 20
    assert await store_on(runtime.disk).read(Q0, ReadOffset.READ_FROM_STORE) == 5
    await store.persist(Q0, TIMER)
    assert await store_on(runtime.disk).read(Q0, ReadOffset.READ_FROM_STORE) == 6


async def test_a_file_that_cannot_be_read_for_a_while_is_written_by_the_next_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = LocalOffsetStore(SystemDisk(), str(tmp_path), client_id="c", group="g")
    store.update(Q0, 5, increase_only=True)
    in_its_place = tmp_path / "c" / "g" / "offsets.json"
    in_its_place.mkdir(parents=True)
    await store.persist_all([Q0], TIMER)
    assert "offsets not written, the next round tries again: reading" in caplog.text
    in_its_place.rmdir()
    await store.persist_all([Q0], TIMER)
    assert await store.read(Q0, ReadOffset.READ_FROM_STORE) == 5


def test_a_power_cut_at_any_time_leaves_an_offset_that_was_persisted() -> None:
    """At least the offset before the last one: the file or its .bak is always whole."""
    found: dict[int | None, None] = {}

    def run(seed: int) -> None:
        async def scenario(world: World) -> None:
            node = world.node(HOST)

            async def write(runtime: Runtime) -> None:
                store = store_on(runtime.disk)
                for offset in range(1, 4):
                    store.update(Q0, offset, increase_only=True)
                    await store.persist(Q0, TIMER)

            await node.boot(write)
            unsynced = store_on(node.runtime.disk)
            unsynced._disk.write(f"{FILE}.tmp", b'{"offsetTable":{')  # Torn in the next write.
            node.crash(power_cut=True)

            async def read(runtime: Runtime) -> int | None:
                store = store_on(runtime.disk)
                await store.load()
                return store.in_memory(Q0)

            found[await node.boot(read)] = None

        run_world(seed, scenario)

    for seed in range(30):
        run(seed)
    assert set(found) == {3}


@run_by(in_virtual_time)
async def test_queue_names_are_kept_apart(world: World, runtime: Runtime) -> None:
    store = store_on(runtime.disk)
    queues = [MessageQueue("T", "b", 1), MessageQueue("T", "b-1", 1), MessageQueue("U", "b", 1)]
    for number, queue in enumerate(queues):
        store.update(queue, number, increase_only=True)
    await store.persist_all(queues, TIMER)
    again = store_on(runtime.disk)
    await again.load()
    assert [again.in_memory(queue) for queue in queues] == [0, 1, 2]
    await asyncio.sleep(0)


async def test_nobody_else_waits_while_offsets_are_written(tmp_path: Path) -> None:
    disk = WatchedDisk()
    store = LocalOffsetStore(disk, str(tmp_path / "deep" / "er"), client_id="c", group="g")
    store.update(Q0, 5, increase_only=True)
    await store.persist(Q0, TIMER)
    assert disk.held_the_loop == []
    synced = [line for line in disk.log if line.startswith("sync_directory")]
    assert {"sync_directory deep/er", "sync_directory er/c", "sync_directory c/g"} <= {*synced}


async def test_who_is_cancelled_while_it_persists_leaves_the_next_one_a_whole_file(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    store = LocalOffsetStore(disk, str(tmp_path), client_id="c", group="g")
    store.update(Q0, 5, increase_only=True)
    disk.hold_syncs = asyncio.Event()
    first = asyncio.create_task(store.persist(Q0, TIMER))
    await asyncio.sleep(0)
    store.update(Q0, 6, increase_only=True)
    second = asyncio.create_task(store.persist(Q0, CommitTrigger.SHUTDOWN))
    await asyncio.sleep(0.01)
    first.cancel()
    disk.hold_syncs.set()
    await asyncio.gather(first, second, return_exceptions=True)
    assert first.cancelled()
    assert await store.read(Q0, ReadOffset.READ_FROM_STORE) == 6
