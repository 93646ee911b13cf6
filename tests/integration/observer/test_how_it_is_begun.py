"""The command `tidemark observe`: what it refuses in one sentence, and what it does not share."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from engine.observer.broker_watch import UNREPORTED_REST_MS_MAX, BrokerWatch, Watched
from engine.observer.home_folder import folder_of, take_home
from engine.observer.observation import Observation
from engine.runtime import SystemDisk, system_runtime
from engine.telemetry.shipper.known_observers import known_observers
from engine.telemetry.shipper.shipper import Shipper
from engine.telemetry.telemetry import SPOOL_DIRECTORY, EmitterIdentity, Telemetry
from pipelines.lake.lake import Lake
from tests.integration.broker.cluster import eventually
from tests.integration.broker.spooled import spooled
from tests.integration.observer.played_cluster import (
    PlayedBroker,
    PlayedCluster,
    observing,
    played_cluster,
)


async def observed(cluster: PlayedCluster, *words: str) -> tuple[int, str]:
    """Exit code of `tidemark observe` and what it says."""
    command = [str(Path(sys.executable).parent / "tidemark"), "observe", "-n", cluster.namesrv]
    process = await asyncio.create_subprocess_exec(
        *(*command, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


def is_one_sentence(said: str) -> bool:
    return said.startswith("tidemark observe: ") and said.count("\n") == 1


async def test_a_cluster_that_is_not_there_is_refused_with_the_names_that_are(
    tmp_path: Path,
) -> None:
    async with played_cluster(tmp_path, PlayedBroker("a"), PlayedBroker("b", "c2")) as cluster:
        code, said = await observed(cluster, "--cluster", "Typo", "--home", str(tmp_path))
    assert (code, is_one_sentence(said)) == (1, True), said
    assert "'Typo'" in said
    assert "c1, c2" in said


async def test_a_cluster_that_is_gone_later_is_named_once_with_those_that_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, other = PlayedBroker("a"), PlayedBroker("b", "c2")
    observation = Observation(frozenset({"c2"}), "observer", str(tmp_path), 50)
    async with played_cluster(tmp_path, first, other) as cluster:
        cluster.brokers = [first]
        async with observing(cluster, observation=observation):
            count = cluster.listed_count

            async def was_asked() -> bool:
                return cluster.listed_count > count + 5

            await eventually(was_asked, "the name server was asked")
    sentences = [one.message for one in caplog.records if "know no cluster" in one.message]
    assert sentences == ["the name servers know no cluster c2; they know c1"]


async def test_a_home_that_another_one_has_or_that_cannot_be_written_is_refused(
    tmp_path: Path,
) -> None:
    async with played_cluster(tmp_path, PlayedBroker("a")) as cluster:
        lock = take_home(SystemDisk(), str(tmp_path / "home"), "observer")
        assert lock is not None
        code, said = await observed(cluster, "--home", str(tmp_path / "home"))
        assert (code, is_one_sentence(said)) == (1, True), said
        assert "another process observes with the home" in said
        lock.close()
        (tmp_path / "file").write_text("no folder")
        code, said = await observed(cluster, "--home", str(tmp_path / "file" / "home"))
        assert (code, is_one_sentence(said)) == (1, True), said
        assert "making folder" in said


async def test_two_observers_of_one_home_have_folders_of_their_own(tmp_path: Path) -> None:
    broker = PlayedBroker("a")
    async with played_cluster(tmp_path, broker) as cluster:
        second = Observation(frozenset(), "second", str(tmp_path), 50)
        async with observing(cluster), observing(cluster, observation=second):

            async def are_reported() -> bool:
                folders = [tmp_path / "c1" / "a" / name for name in ("observer", "second")]
                return all(
                    (one / "spool").exists() and spooled(one, "group_watermarks") for one in folders
                )

            await eventually(are_reported, "both report")


async def test_a_folder_of_an_earlier_version_is_used_on_by_its_own_observer_alone(
    tmp_path: Path,
) -> None:
    older = tmp_path / "c1" / "a"
    spool, identity = f"{older}/{SPOOL_DIRECTORY}", EmitterIdentity("c1", "a", "observer")
    await Telemetry.open(system_runtime(), spool, identity, broker_epoch=1).close()
    disk = SystemDisk()
    assert folder_of(disk, str(tmp_path), ("c1", "a", "observer")) == str(older)
    assert folder_of(disk, str(tmp_path), ("c1", "a", "second")) == f"{older}/second"
    broker = PlayedBroker("a")
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):

        async def is_reported() -> bool:
            return bool(spooled(older, "group_watermarks"))

        await eventually(is_reported, "it reports where it reported before")


async def test_a_spool_that_another_process_writes_costs_that_broker_alone_and_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = PlayedBroker("bad"), PlayedBroker("good")
    home = f"{tmp_path}/c1/bad/observer"
    identity = EmitterIdentity("c1", "bad", "observer")
    theirs = Telemetry.open(system_runtime(), f"{home}/{SPOOL_DIRECTORY}", identity)
    async with played_cluster(tmp_path, bad, good) as cluster, observing(cluster):

        async def is_reported() -> bool:
            said = [one.message for one in caplog.records if "is not reported" in one.message]
            return bool(said and cluster.reported(good, "group_watermarks"))

        await eventually(is_reported, "one is reported, and of the other that it is not")
        await theirs.close()

        async def is_back() -> bool:
            return bool(cluster.reported(bad, "group_watermarks"))

        await eventually(is_back, "it is tried again")
    said = [one.message for one in caplog.records if "reported" in one.message]
    assert said[0].startswith("c1/bad is not reported: spool ")
    assert said[1:] == ["c1/bad is reported again"]


async def test_a_spool_that_cannot_be_opened_is_tried_ever_more_seldom(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    broker = PlayedBroker("a")
    async with played_cluster(tmp_path, broker) as cluster:
        watched = Watched("c1", "a", "observer", str(tmp_path / "file" / "home"), 1_000)
        async with observing(cluster) as watch:
            tried = BrokerWatch(system_runtime(), watch.admin, watched, broker.address)
            rests = [tried.unreported_rest_ms for _ in range(8) if not await tried.look()]
    assert rests == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, UNREPORTED_REST_MS_MAX]


async def test_a_cluster_has_another_name_in_the_lake(tmp_path: Path) -> None:
    broker = PlayedBroker("a")
    observation = Observation(frozenset({"c1"}), "observer", str(tmp_path), 50, called="shop")
    async with (
        played_cluster(tmp_path, broker) as cluster,
        observing(cluster, observation=observation),
    ):
        await eventually(lambda: is_written(tmp_path / "shop" / "a"), "it is reported")
    assert [(one.cluster, one.identity.emitter) for one in cluster.heard] == [
        ("shop", "shop/a/observer")
    ]


async def is_written(folder: Path) -> bool:
    home = folder / "observer"
    return (home / "spool").exists() and bool(spooled(home, "lifecycle"))


async def test_a_lake_that_knows_another_cluster_of_that_name_is_refused(tmp_path: Path) -> None:
    first, second = PlayedBroker("a"), PlayedBroker("a")
    lake = str(tmp_path / "lake")
    async with played_cluster(tmp_path / "first", first) as cluster:
        observation = Observation(
            frozenset(), "observer", str(tmp_path / "first"), 50, name_servers=cluster.namesrv
        )
        async with observing(cluster, observation=observation):
            await eventually(lambda: is_written(tmp_path / "first/c1/a"), "it is reported")
        spool = str(tmp_path / "first/c1/a/observer/spool")
        Shipper(system_runtime(), spool, lake, {}).ship_all()
        (known,) = known_observers(lake, "c1")
        assert (known.emitter, known.address) == ("c1/a/observer", first.address)
        assert known_observers(lake, "it's") == []
    async with played_cluster(tmp_path / "second", second) as cluster:
        home = ("--home", str(tmp_path / "second"), "--lake", lake)
        code, said = await observed(cluster, *home)
        assert (code, is_one_sentence(said)) == (1, True), said
        assert "--as NAME" in said
        assert f"at {first.address}" in said
        code, said = await observed(cluster, *home, "--as", "c1")
        assert (code, is_one_sentence(said)) == (1, True), said


async def test_a_broker_is_retired_by_the_command_and_the_lake_hears_of_it(tmp_path: Path) -> None:
    broker, lake = PlayedBroker("a"), str(tmp_path / "lake")
    words = ("--home", str(tmp_path / "home"), "--lake", lake, "--retire")
    async with played_cluster(tmp_path / "home", broker) as cluster:
        async with observing(cluster):
            await eventually(lambda: is_written(tmp_path / "home/c1/a"), "it is reported")
        code, said = await observed(cluster, *words, "a")
        assert (code, is_one_sentence(said)) == (1, True), said
        cluster.brokers = []
        code, said = await observed(cluster, *words, "a")
        assert (code, said.rpartition("\n")[0].splitlines()[-1]) == (
            0,
            "a: gone for good, reported",
        )
    kinds = [row["kind"] for row in spooled(tmp_path / "home/c1/a/observer", "lifecycle")]
    assert kinds[-1] == "BROKER_GONE"
    reported = Lake.at(lake).table(Lake.at(lake).bronze("lifecycle"))
    assert "BROKER_GONE" in pa.table(reported.to_pyarrow_table())["kind"].to_pylist()
