"""A broker and its clients live, their facts shipped and judged: what a stalled queue is said to
be, and what is known of a broker on which nothing moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from engine.foundation.observing import OffsetReport
from engine.runtime import system_runtime
from engine.telemetry.shipper.shipper import IDLE_SHIPMENT_S, Shipper
from pipelines.base.settings import Evaluation
from tests.integration.broker.cluster import TOPIC, RawClient, broker_config, cluster
from tests.integration.broker.spooled import picked, spooled, spooled_in_order
from tests.integration.client.cluster_users import SUCCESS, Seen, consuming, eventually
from tests.integration.client.test_stacks_of_frozen_heads import Freezer
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.partition import bronze_of, run

QUICK = Evaluation(window_ms=6000, slide_ms=1000, allowed_lag=0)
Gold = Mapping[str, list[dict[str, Any]]]


def shipped(folder: Path) -> Shipper:
    """The shipper of a broker's spool, into a lake beside it."""
    return Shipper(system_runtime(), str(folder / "store" / "spool"), str(folder / "lake"), {})


def judged(folder: Path) -> Gold:
    """Rows per mart, of everything that is in the lake."""
    return run(JUDGES, bronze_of(folder / "lake"), QUICK)


async def test_a_frozen_head_is_reported_with_its_stack_and_a_paused_consumer_as_paused(
    tmp_path: Path,
) -> None:
    freezer = Freezer(SUCCESS)
    listener = {TOPIC: freezer.on_the_loop}
    async with cluster(broker_config(tmp_path, window_sample_interval_ms=300)) as running:
        client, names = running.client(), running.name_server_address
        sent = await client.send(queue_id=2)
        async with (
            consuming(names, "frozen", listener),
            consuming(names, "pausing", {TOPIC: Seen()}) as pausing,
        ):
            await eventually(lambda: freezer_holds(tmp_path), "a head stands")
            pausing.pause()
            for _ in range(5):
                await client.send(queue_id=2)
            await asyncio.sleep(12)
            frozen_client = client_of(tmp_path, "frozen")
            await asyncio.to_thread(shipped(tmp_path).ship_all)
            freezer.thaw()
    gold = await asyncio.to_thread(judged, tmp_path)
    frozen = [row for row in gold["stalled_windows"] if row["group"] == "frozen"][-1]
    assert (frozen["rule"], frozen["kind"], frozen["state"]) == ("STALLED", "FROZEN_HEAD", "OPEN")
    assert (frozen["topic"], frozen["queue_id"], frozen["head_offset"]) == (TOPIC, 2, 0)
    assert frozen["client_id"] == frozen_client
    assert frozen["stands_since"] is not None
    assert "wait_for_the_bank" in frozen["stack"], sent
    paused = [row for row in gold["stalled_windows"] if row["group"] == "pausing"]
    assert {(row["rule"], row["kind"]) for row in paused} == {("PAUSED", "PAUSED")}
    assert paused[-1]["client_id"] == client_of(tmp_path, "pausing")
    states = {row["group"]: row["state"] for row in gold["group_state"]}
    assert (states["frozen"], states["pausing"]) == ("STALLED", "PAUSED")


async def test_what_a_client_holds_is_reported_behind_how_far_its_group_is(tmp_path: Path) -> None:
    """A judge knows the queues of groups from there; a window that came before would be lost, and
    is not reported again until it changes.
    """
    async with cluster(
        broker_config(tmp_path, window_sample_interval_ms=50, sample_interval_ms=10_000)
    ) as running:
        await running.client().send(queue_id=1)
        async with consuming(running.name_server_address, "early", {TOPIC: Seen()}):
            await eventually(lambda: len(windows_of(tmp_path, "early")) >= 4, "all are reported")
    known, reported = set(), 0
    for _, table, row in spooled_in_order(tmp_path / "store"):
        if table == "group_watermarks":
            known.add(picked(row, "group", "topic", "queue_id"))
        if table == "client_windows" and row["last_pull_time"] is not None:
            reported += 1
            assert picked(row, "group", "topic", "queue_id") in known, row
    assert reported


def windows_of(folder: Path, group: str) -> list[dict[str, Any]]:
    """What its clients were said to hold."""
    rows = spooled(folder / "store", "client_windows")
    return [row for row in rows if row["group"] == group and row["topic"] == TOPIC]


def freezer_holds(folder: Path) -> bool:
    """Was a message in the frozen listener when it was asked?"""
    return any(row["held_count"] for row in windows_of(folder, "frozen"))


def client_of(folder: Path, group: str) -> str:
    """The one client of the group."""
    (client,) = {str(row["client_id"]) for row in windows_of(folder, group)}
    return client


async def commit(client: RawClient) -> None:
    """A group that has consumed one message of one."""
    await client.send()
    await client.heartbeat()
    await client.commit(1)


async def test_a_broker_on_which_nothing_moves_is_judged_on_by_its_signs_of_life(
    tmp_path: Path,
) -> None:
    """Snapshots come each ten minutes; its horizon is shipped each few seconds all the same."""
    async with cluster(broker_config(tmp_path)) as running:
        await commit(running.client())
        shipper = shipped(tmp_path)
        for _ in range(int(2 * IDLE_SHIPMENT_S) + 4):
            await asyncio.sleep(1)
            await asyncio.to_thread(shipper.ship)
        bronze = bronze_of(tmp_path / "lake")
    shipments = bronze["shipments"].sort_by("seq").to_pylist()
    shipped_to = [row["event_time_to"] for row in shipments]
    assert all(later > earlier for earlier, later in pairwise(shipped_to))
    assert (shipped_to[-1] - shipped_to[0]).total_seconds() >= 2 * IDLE_SHIPMENT_S - 2
    assert any(row["seq_to"] < row["seq_from"] for row in shipments), "only time went on"
    snapshots = pc.equal(pc.cast(bronze["lifecycle"]["kind"], "string"), "SNAPSHOT")
    assert pc.sum(snapshots).as_py() == 1, "the one at its boot"


async def test_after_a_loss_all_is_known_again_within_seconds(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await commit(client)
        await asyncio.sleep(2)
        impossible = OffsetReport(
            "g", TOPIC, 0, 2**70, None, "COMMIT_RPC", "TIMER", "c", True, 0, 1
        )
        running.broker.state.observer.observe(impossible)
        await asyncio.sleep(10)
        await asyncio.to_thread(shipped(tmp_path).ship_all)
        bronze = bronze_of(tmp_path / "lake")
    events = bronze["lifecycle"].sort_by("seq").to_pylist()
    [lost] = [row for row in events if row["kind"] == "SPOOL_LOSS"]
    after = [
        row for row in events if row["kind"] == "SNAPSHOT" and (row["seq_from"] or 0) > lost["seq"]
    ]
    assert after, [row["kind"] for row in events]
    assert (after[0]["event_time"] - lost["event_time"]).total_seconds() < 3
    states = run(JUDGES, bronze, QUICK)["group_state"]
    assert states[-1]["state"] == "OK"
