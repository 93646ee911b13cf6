"""Another copy of a watched broker becomes its master: reported once, by the observer that sees it
in the name servers' list, and shown where events of brokers are.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dashboards.page_context import PageContext
from dashboards.pages import group, overview
from dashboards.reads.lake_data import LakeData
from engine.runtime import system_runtime
from engine.telemetry.shipper.shipper import Shipper
from engine.telemetry.telemetry import SPOOL_DIRECTORY
from pipelines.lake.lake import Lake
from tests.integration.broker.cluster import eventually
from tests.integration.observer.played_cluster import (
    BORN_MS,
    PlayedBroker,
    PlayedCluster,
    observing,
    played_cluster,
)
from tests.pipelines.gold_lake import compute


def copies() -> tuple[PlayedBroker, PlayedBroker]:
    """A master, and its slave, which began later."""
    master, slave = PlayedBroker("broker-a"), PlayedBroker("broker-a")
    slave.broker_id, slave.booted_ms = 1, BORN_MS + 60_000
    return master, slave


def changes(cluster: PlayedCluster) -> list[dict[str, Any]]:
    reported = cluster.reported(cluster.brokers[0], "lifecycle")
    return [row for row in reported if row["kind"] == "ROLE_CHANGE"]


async def looked(cluster: PlayedCluster, broker: PlayedBroker) -> None:
    """Wait until a copy was asked twice more, with the list that holds now."""
    listed = cluster.listed_count

    async def is_listed() -> bool:
        return cluster.listed_count > listed + 1

    await eventually(is_listed, "the name server was asked")
    asked = sum(broker.asked.values())

    async def is_asked() -> bool:
        return sum(broker.asked.values()) > asked + 20

    await eventually(is_asked, f"{broker.address} was asked")


async def test_a_slave_that_becomes_the_master_is_reported_once_in_the_life_that_begins_then(
    tmp_path: Path,
) -> None:
    first, second = copies()
    async with played_cluster(tmp_path, first, second) as cluster, observing(cluster):
        await looked(cluster, first)
        assert changes(cluster) == []
        first.broker_id, second.broker_id = 1, 0
        await looked(cluster, second)
        (row,) = changes(cluster)
        assert row["detail"] == (
            f"{second.address} is master, was slave 1; {first.address} is slave 1, was master"
        )
        assert row["address"] == second.address
        kinds = [one["kind"] for one in cluster.reported(first, "lifecycle")]
        life = [kind for kind in kinds if kind in {"BOOT", "OBSERVED", "ROLE_CHANGE"}]
        assert life[-3:] == ["BOOT", "OBSERVED", "ROLE_CHANGE"]
        boot = [one for one in cluster.reported(first, "lifecycle") if one["kind"] == "BOOT"][-1]
        assert (boot["first_seen"], boot["detail"]) == (False, "seen from outside")


async def test_a_master_that_steps_down_without_a_successor_is_known_by_its_next_answer(
    tmp_path: Path,
) -> None:
    first, second = copies()
    async with played_cluster(tmp_path, first, second) as cluster, observing(cluster):
        await looked(cluster, first)
        first.broker_id = 2
        await looked(cluster, first)
        (row,) = changes(cluster)
        words = f"{first.address} is slave 2, was master; none is master"
        assert (row["detail"], row["address"]) == (words, None)


async def test_slaves_that_come_and_go_and_a_master_elsewhere_are_no_change_of_role(
    tmp_path: Path,
) -> None:
    first, second = copies()
    async with played_cluster(tmp_path, first, second) as cluster, observing(cluster):
        for shown in ([first], [first, second]):
            cluster.brokers = shown
            await looked(cluster, first)
        second.broker_id = 5
        await looked(cluster, first)
        moved = PlayedBroker("broker-a")
        await moved.start()
        cluster.brokers = [moved, second]
        await looked(cluster, moved)
        assert changes(cluster) == []
        await moved.stop()


async def test_a_change_while_no_observer_ran_is_reported_by_the_next(tmp_path: Path) -> None:
    first, second = copies()
    async with played_cluster(tmp_path, first, second) as cluster:
        async with observing(cluster):
            await looked(cluster, first)
        first.broker_id, second.broker_id = 1, 0
        async with observing(cluster):
            await looked(cluster, second)
        (row,) = changes(cluster)
        assert row["detail"] == f"{first.address} is slave 1, was master"


async def test_it_is_in_the_feed_and_a_line_on_the_axes_of_time(tmp_path: Path) -> None:
    first, second = copies()
    async with played_cluster(tmp_path / "home", first, second) as cluster, observing(cluster):
        await looked(cluster, first)
        first.broker_id, second.broker_id = 1, 0
        began_us = cluster.horizon_us(first)

        async def has_grown() -> bool:
            return cluster.horizon_us(first) > began_us + 4_000_000

        await eventually(has_grown, "four seconds were seen")
    lake = shipped(tmp_path / "home", first, tmp_path / "lake")
    compute(lake)
    said = (
        f"Broker broker-a reports a role change ({second.address} is master, was slave 1; "
        f"{first.address} is slave 1, was master)"
    )
    context = PageContext(
        LakeData(Lake.at(str(lake))), lambda: datetime.now(UTC) + timedelta(seconds=1)
    )
    of_all = overview.content(context, "", "dark")
    assert said in plain(of_all[7]), "the feed"
    assert "broker: restart, role, silence" in plain(of_all)
    of_group = plain(group.content(context, "g", "", "dark")[3])
    assert said in of_group, "the axis of time"


def shipped(home: Path, broker: PlayedBroker, lake: Path) -> Path:
    """A lake with all that was reported of a broker."""
    spool = home / broker.cluster / broker.name / "observer" / SPOOL_DIRECTORY
    Shipper(system_runtime(), str(spool), str(lake), {}).ship_all()
    return lake


def plain(shown: Any) -> str:
    """What a page is sent, as text."""
    text = json.dumps(shown, default=_props, ensure_ascii=False)
    return re.sub(r"\s+", " ", text)


def _props(one: Any) -> Any:
    to_plain = getattr(one, "to_plotly_json", None)
    return to_plain() if to_plain is not None else str(one)
