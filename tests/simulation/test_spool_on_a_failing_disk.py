"""The spool on a virtual disk: power cuts, a full disk, a failed sync.

The record is kept outside the node: what was emitted, and what a sync had returned for.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from engine.foundation.limits import SPOOL_ROWS_KEPT_MAX
from engine.foundation.observing import LifecycleEvent
from engine.runtime import Disk, Runtime
from engine.telemetry import EmitterIdentity, Telemetry
from engine.telemetry.frames import Frame, Turn, decode_frames
from engine.telemetry.segments import segment_names
from engine.telemetry.tables import TABLES
from tests.seeds import seeded
from tests.simulation.world import World, run_world
from tests.unit.telemetry.lives import DETAIL, missing_in, report

HOST = "10.0.0.1"
SPOOL = "/store/spool"
MASTER = EmitterIdentity("cluster-1", "broker-a", 0)
LIVES = 6


async def boot(world: World, *, segment_bytes: int = 2_000) -> Telemetry:
    async def start(runtime: Runtime) -> Telemetry:
        return Telemetry.open(runtime, SPOOL, MASTER, segment_bytes=segment_bytes)

    telemetry = await world.node(HOST).boot(start)
    assert isinstance(telemetry, Telemetry)
    return telemetry


def spooled(disk: Disk) -> dict[int, tuple[str, tuple[Any, ...]]]:
    """seq -> (table, own values) of every row on the disk; a seq twice fails."""
    rows: dict[int, tuple[str, tuple[Any, ...]]] = {}
    for frame in frames(disk):
        if isinstance(frame, Turn):
            for seq, (number, _, values) in enumerate(frame.rows, frame.first_seq):
                assert seq not in rows, f"seq {seq} twice"
                rows[seq] = TABLES[number].name, values
    return rows


def frames(disk: Disk) -> list[Frame]:
    """Every frame on the disk."""
    return [
        placed.frame
        for name in segment_names(disk, SPOOL)
        for placed in decode_frames(disk.read(f"{SPOOL}/{name}"))[0]
    ]


def details(disk: Disk, kind: str) -> list[str]:
    """Details of the lifecycle rows of one kind, in the order of seq."""
    return [
        str(values[DETAIL])
        for _, (table, values) in sorted(spooled(disk).items())
        if table == "lifecycle" and values[0] == kind
    ]


@seeded(40)
def test_a_power_cut_costs_at_most_what_was_not_synced_and_never_tears_seq(seed: int) -> None:
    async def scenario(world: World) -> None:
        reported = 0
        for _ in range(LIVES):
            telemetry = await boot(world)
            synced_to = reported
            for _ in range(world.random.randint(1, 60)):
                for _ in range(world.random.randint(0, 4)):
                    reported += 1
                    telemetry.observe(LifecycleEvent("BOOT", f"fact {reported}"))
                telemetry.pulled("g", "orders", 0, reported, "client@1")
                telemetry.write_turn()
                choice = world.random.random()
                if choice < 0.1:
                    telemetry.tick()
                elif choice < 0.2:
                    before = reported
                    await world.node(HOST).run(telemetry.sync())
                    synced_to = before
            world.node(HOST).crash(power_cut=True)
            survivor = await boot(world)
            survivor.write_turn()
            disk = world.node(HOST).runtime.disk
            assert missing_in(frames(disk)) == []
            facts = details(disk, "BOOT")
            assert facts == [f"fact {number}" for number in range(1, len(facts) + 1)]
            assert synced_to <= len(facts) <= reported, "what sync returned for is there"
            if synced_to:
                assert survivor.pulled_marks()["g", "orders", 0].offset >= synced_to
            reported = len(facts)
            world.node(HOST).crash(power_cut=False)

    run_world(seed, scenario)


@seeded(10)
def test_a_killed_process_loses_nothing_it_had_written(seed: int) -> None:
    async def scenario(world: World) -> None:
        reported = 0
        for _ in range(LIVES):
            telemetry = await boot(world)
            for _ in range(world.random.randint(1, 80)):
                reported += 1
                telemetry.observe(LifecycleEvent("BOOT", f"fact {reported}"))
                telemetry.write_turn()
            telemetry.observe(LifecycleEvent("BOOT", "emitted in a turn that never ended"))
            world.node(HOST).crash(power_cut=False)
        await boot(world)
        disk = world.node(HOST).runtime.disk
        assert details(disk, "BOOT") == [f"fact {number}" for number in range(1, reported + 1)]
        assert details(disk, "SPOOL_LOSS") == []

    run_world(seed, scenario)


def test_a_full_disk_costs_rows_that_are_counted_and_no_seq() -> None:
    async def scenario(world: World) -> None:
        telemetry = await boot(world)
        node = world.node(HOST)
        telemetry.observe(LifecycleEvent("BOOT", "before"))
        telemetry.observe(replace(report(3), queue_id=1))
        telemetry.write_turn()
        node.disk.free_bytes = 3
        for number in range(7):
            telemetry.observe(report(number))
            telemetry.pulled("g", "orders", 0, number, "client@1")
            telemetry.write_turn()
        telemetry.tick()
        node.disk.free_bytes = 1_000_000
        telemetry.observe(LifecycleEvent("BOOT", "after"))
        telemetry.write_turn()
        telemetry.tick()
        disk = node.runtime.disk
        assert details(disk, "BOOT") == ["before", "after"]
        (loss,) = details(disk, "SPOOL_LOSS")
        assert loss.startswith("7 facts were not written and have no seq")
        assert "no space left" in loss
        assert missing_in(frames(disk)) == []
        assert len(spooled(disk)) == 4
        node.crash(power_cut=False)
        again = await boot(world)
        assert again.pulled_marks()["g", "orders", 0].offset == 6, "marks wait for room"
        assert again.reported_offsets() == {}, "the lost reports may have been of any queue"

    run_world(1, scenario)


def test_what_happened_to_the_broker_itself_waits_for_room_in_its_order() -> None:
    """Row C7: that the disk was full is reported, though it was full."""

    async def scenario(world: World) -> None:
        telemetry = await boot(world)
        node = world.node(HOST)
        node.disk.free_bytes = 3
        for number in range(SPOOL_ROWS_KEPT_MAX + 5):
            telemetry.observe(LifecycleEvent("DISK_FULL", f"{number}"))
            telemetry.observe(report(number))
            telemetry.write_turn()
        telemetry.tick()
        node.disk.free_bytes = 1_000_000
        telemetry.observe(LifecycleEvent("BOOT", "after"))
        telemetry.tick()
        telemetry.tick()
        disk = node.runtime.disk
        assert details(disk, "DISK_FULL") == [f"{n}" for n in range(SPOOL_ROWS_KEPT_MAX)]
        (loss,) = details(disk, "SPOOL_LOSS")
        lost = SPOOL_ROWS_KEPT_MAX + 5 + 5
        assert loss.startswith(f"{lost} facts were not written and have no seq")
        assert missing_in(frames(disk)) == []
        assert len(spooled(disk)) == SPOOL_ROWS_KEPT_MAX + 2
        times = [
            time
            for placed in decode_frames(disk.read(f"{SPOOL}/{segment_names(disk, SPOOL)[-1]}"))[0]
            if isinstance(placed.frame, Turn)
            for _, time, _ in placed.frame.rows
        ]
        assert times == sorted(times)

    run_world(1, scenario)


@pytest.mark.parametrize("room_bytes", [0, 1, 40])
def test_a_life_that_begins_on_a_full_disk_reports_when_there_is_room(room_bytes: int) -> None:
    async def scenario(world: World) -> None:
        node = world.node(HOST)
        earlier = await boot(world)
        earlier.observe(LifecycleEvent("BOOT", "earlier life"))
        earlier.pulled("g", "orders", 0, 5, "client@1")
        earlier.write_turn()
        before = segment_names(node.runtime.disk, SPOOL)
        node.crash(power_cut=False)
        node.disk.free_bytes = room_bytes
        telemetry = await boot(world)
        disk = node.runtime.disk
        assert segment_names(disk, SPOOL) == before, "nothing half-made is left behind"
        assert telemetry.pulled_marks()["g", "orders", 0].offset == 5
        telemetry.observe(LifecycleEvent("BOOT", "this life"))
        telemetry.observe(report(1))
        telemetry.pulled("g", "orders", 0, 6, "client@1")
        telemetry.write_turn()
        telemetry.tick()
        await node.run(telemetry.sync())
        node.disk.free_bytes = 1_000_000
        telemetry.tick()
        telemetry.tick()
        assert details(disk, "BOOT") == ["earlier life", "this life"]
        (loss,) = details(disk, "SPOOL_LOSS")
        assert loss.startswith("1 facts were not written and have no seq")
        assert missing_in(frames(disk)) == []
        assert len(spooled(disk)) == 3
        await node.run(telemetry.sync())
        node.crash(power_cut=True)
        again = await boot(world)
        assert again.pulled_marks()["g", "orders", 0].offset == 6
        assert missing_in(frames(node.runtime.disk)) == []

    run_world(1, scenario)


@seeded(30)
def test_lives_that_begin_with_and_without_room_leave_no_gap_and_no_half_segment(seed: int) -> None:
    async def scenario(world: World) -> None:
        node, reported, loss_free = world.node(HOST), 0, True
        for _ in range(LIVES):
            node.disk.free_bytes = world.random.choice([None, None, 0, 30, 90, 150, 400])
            telemetry = await boot(world)
            for _ in range(world.random.randint(1, 12)):
                if world.random.random() < 0.3:
                    node.disk.free_bytes = world.random.choice([None, 0, 60, 500])
                reported += 1
                telemetry.observe(LifecycleEvent("BOOT", f"fact {reported}"))
                telemetry.pulled("g", "orders", 0, reported, "client@1")
                telemetry.write_turn()
                telemetry.tick()
                if world.random.random() < 0.3:
                    await node.run(telemetry.sync())
            has_room = node.disk.free_bytes is None
            if has_room:
                telemetry.tick()
            loss_free = loss_free and has_room
            node.crash(power_cut=not loss_free and world.random.random() < 0.5)
        node.disk.free_bytes = None
        survivor = await boot(world)
        survivor.tick()
        disk = node.runtime.disk
        assert missing_in(frames(disk)) == []
        facts = [int(detail.split()[1]) for detail in details(disk, "BOOT")]
        assert facts == sorted(set(facts)), "in order, none twice"
        if loss_free:
            assert facts == list(range(1, reported + 1)), "what waited for room was reported"

    run_world(seed, scenario)


def test_a_failed_sync_is_reported_and_not_tried_again_on_the_same_file() -> None:
    async def scenario(world: World) -> None:
        telemetry = await boot(world)
        node = world.node(HOST)
        telemetry.observe(LifecycleEvent("BOOT", "one"))
        telemetry.write_turn()
        node.disk.fail_syncs = True
        await node.run(telemetry.sync())
        node.disk.fail_syncs = False
        telemetry.write_turn()
        await node.run(telemetry.sync())
        disk = node.runtime.disk
        assert len(segment_names(disk, SPOOL)) == 2, "a new file: the old one's sync proves nothing"
        (loss,) = details(disk, "SPOOL_LOSS")
        first, second = sorted(spooled(disk))
        assert f"a power cut could lose rows before seq {second}" in loss
        assert second == first + 1

    run_world(1, scenario)


def test_the_horizon_moves_each_second_while_nothing_happens() -> None:
    async def scenario(world: World) -> None:
        telemetry = await boot(world)
        node = world.node(HOST)

        async def start() -> None:
            telemetry.start()

        await node.run(start())
        vouched: list[int] = []
        await asyncio.sleep(0.5)  # Between two ticks, so that each look sees the last one.
        for _ in range(5):
            await asyncio.sleep(1)
            disk = node.runtime.disk
            (name,) = segment_names(disk, SPOOL)
            frames, _ = decode_frames(disk.read(f"{SPOOL}/{name}"))
            vouched.append(frames[-1].frame.as_of)
        assert all(later - earlier >= 900_000 for earlier, later in pairwise(vouched))
        await node.run(telemetry.close())

    run_world(1, scenario)
