"""A broker that was taken out for good is reported gone, and nothing of it stays open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.admin import Admin
from engine.client.config import ClientConfig
from engine.foundation.errors import ConfigError
from engine.observer.home_folder import ask_for_retirement, noted_in, take_home
from engine.observer.observation import Observation
from engine.observer.retiring import retire, retired_brokers
from engine.runtime import SystemDisk, system_runtime
from engine.telemetry.shipper.shipper import Shipper
from engine.telemetry.telemetry import SPOOL_DIRECTORY
from pipelines.base.settings import Evaluation
from pipelines.marts.declared import steps
from tests.integration.broker.cluster import eventually
from tests.integration.observer.played_cluster import (
    PlayedBroker,
    PlayedCluster,
    observing,
    played_cluster,
)
from tests.pipelines.partition import bronze_of, run

SOON_MS = 200


def kinds(cluster: PlayedCluster, broker: PlayedBroker) -> list[str]:
    return [row["kind"] for row in cluster.reported(broker, "lifecycle")]


async def watched(cluster: PlayedCluster, broker: PlayedBroker) -> None:
    """Wait for an answered look."""

    async def is_reported() -> bool:
        return bool(cluster.reported(broker, "group_watermarks"))

    await eventually(is_reported, f"a look at {broker.name}")


async def reported_gone(cluster: PlayedCluster, broker: PlayedBroker) -> None:
    async def is_reported() -> bool:
        return any(one.broker == broker.name for one in cluster.gone)

    await eventually(is_reported, f"{broker.name} is reported gone")
    assert kinds(cluster, broker)[-1:] == ["BROKER_GONE"]


def gold_of(folder: Path, broker: PlayedBroker) -> dict[str, list[dict[str, Any]]]:
    """Gold of all that was reported of a broker."""
    spool = folder / broker.cluster / broker.name / "observer" / SPOOL_DIRECTORY
    lake = folder.parent / "lake"
    Shipper(system_runtime(), str(spool), str(lake), {}).ship_all()
    return run(steps(), bronze_of(lake), Evaluation())


async def test_a_broker_that_is_listed_no_more_and_refuses_is_gone_and_comes_back(
    tmp_path: Path,
) -> None:
    stays, goes = PlayedBroker("stays"), PlayedBroker("goes")
    async with played_cluster(tmp_path, stays, goes) as cluster:  # noqa: SIM117
        async with observing(cluster, gone_after_ms=SOON_MS):
            await watched(cluster, goes)
            await goes.stop()
            cluster.brokers = [stays]
            await reported_gone(cluster, goes)
            assert [one.broker for one in cluster.gone] == ["goes"]
            ended = cluster.reported(goes, "lifecycle")
            assert [row["kind"] for row in ended[-4:]] == [
                *("TOPIC_GONE", "GROUP_GONE", "SNAPSHOT", "BROKER_GONE")
            ]
            assert "BROKER_GONE" not in kinds(cluster, stays)
            back = PlayedBroker("goes")
            await back.start()
            cluster.brokers = [stays, back]

            async def is_followed() -> bool:
                return kinds(cluster, goes)[-1] != "BROKER_GONE"

            await eventually(is_followed, "it is followed again")
            await back.stop()


async def test_one_that_answers_or_is_listed_or_whose_name_servers_are_silent_is_not_gone(
    tmp_path: Path,
) -> None:
    answers, listed = PlayedBroker("answers"), PlayedBroker("listed")
    async with played_cluster(tmp_path, answers, listed) as cluster:  # noqa: SIM117
        async with observing(cluster, gone_after_ms=SOON_MS):
            await watched(cluster, answers)
            await watched(cluster, listed)
            await listed.stop()
            cluster.brokers = [listed]
            count = cluster.listed_count

            async def has_waited() -> bool:
                return cluster.listed_count > count + 4 * SOON_MS // 50

            await eventually(has_waited, "the name server was asked again and again")
            assert cluster.gone == []


async def test_one_that_went_while_no_observer_ran_is_reported_by_the_next(tmp_path: Path) -> None:
    goes = PlayedBroker("goes")
    async with played_cluster(tmp_path, goes) as cluster:
        async with observing(cluster):
            await watched(cluster, goes)
        await goes.stop()
        cluster.brokers = []
        async with observing(cluster, gone_after_ms=SOON_MS):
            await reported_gone(cluster, goes)
        assert kinds(cluster, goes).count("BROKER_GONE") == 1
        assert kinds(cluster, goes).count("BOOT") == 1, "it is said of the life that was seen"
        reported = [one for one in cluster.reported(goes, "lifecycle") if one["kind"] == "BOOT"]
        assert [(one["first_seen"], one["detail"]) for one in reported] == [
            (True, "seen from outside")
        ]
        heard = len(cluster.heard)
        async with observing(cluster, gone_after_ms=SOON_MS):
            count = cluster.listed_count

            async def was_asked() -> bool:
                return cluster.listed_count > count + 5

            await eventually(was_asked, "the name server was asked")
        assert len(cluster.heard) == heard, "what was reported gone is not asked again"


async def retired(cluster: PlayedCluster, name: str, listed: set[str]) -> list[str] | None:
    observation = Observation(frozenset(), "observer", str(cluster.folder), 1000)
    runtime = system_runtime()
    config = ClientConfig(namesrv_addresses=(cluster.namesrv,))
    async with Admin(runtime, config) as admin:
        brokers = retired_brokers(runtime, observation, [name], listed)
        return await retire(runtime, admin, observation, brokers)


async def test_a_broker_is_retired_by_hand_at_once_and_nothing_of_it_stays_in_gold(
    tmp_path: Path,
) -> None:
    goes = PlayedBroker("goes")
    goes.members = {"g": {"client": {}}}
    async with played_cluster(tmp_path / "home", goes) as cluster:
        async with observing(cluster):
            await watched(cluster, goes)
        with pytest.raises(ConfigError, match="do not list any more"):
            await retired(cluster, "goes", {"goes"})
        with pytest.raises(ConfigError, match=r"of which .* has a spool: goes"):
            await retired(cluster, "other", set())
        (folder,) = await retired(cluster, "goes", set()) or []
    noted = noted_in(SystemDisk(), folder)
    assert noted is not None
    assert not noted.is_watched
    assert kinds(cluster, goes)[-2:] == ["SNAPSHOT", "BROKER_GONE"]
    gold = gold_of(tmp_path / "home", goes)
    assert [(row["group"], row["topic"]) for row in gold["ended_queues"]] == [("g", "orders")]
    newest = {row["group"]: row["state"] for row in gold["group_state"]}
    assert newest == {"g": "GONE"}
    assert [row for row in gold["stalled_windows"] if row["closed_at"] is None] == []


async def test_an_observer_that_runs_is_asked_to_retire_it(tmp_path: Path) -> None:
    goes, stays = PlayedBroker("goes"), PlayedBroker("stays")
    async with played_cluster(tmp_path, goes, stays) as cluster:
        lock = take_home(SystemDisk(), str(tmp_path), "observer")
        assert lock is not None
        async with observing(cluster):
            await watched(cluster, goes)
            await goes.stop()
            cluster.brokers = [stays]
            assert await retired(cluster, "goes", set()) is None
            await reported_gone(cluster, goes)
        lock.close()


async def test_it_is_retired_by_a_list_that_was_asked_for_later(tmp_path: Path) -> None:
    goes, stays = PlayedBroker("goes"), PlayedBroker("stays")
    async with played_cluster(tmp_path, goes, stays) as cluster, observing(cluster):
        await watched(cluster, goes)
        await goes.stop()
        [home] = [one.home for one in cluster.heard if one.broker == "goes"]

        def leaves_and_is_retired() -> None:
            cluster.brokers = [stays]
            ask_for_retirement(SystemDisk(), home)

        cluster.on_listed = leaves_and_is_retired
        await reported_gone(cluster, goes)
