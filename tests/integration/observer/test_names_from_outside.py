"""Names that a name server lists become folders and parts of an emitter's name: those that are
none are left alone, and the brokers beside them are watched.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.broker.cluster import eventually
from tests.integration.observer.played_cluster import PlayedBroker, observing, played_cluster

HOSTILE = (
    *("..", ".", "../../../hostile", "a/b", "/hostile", "a\\b", "hostile\n", "hos tile", "", "\0"),
    *("h" * 128, "😀" * 100, "hostile\u2028"),
)


async def test_a_name_that_is_no_plain_word_makes_no_folder_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, home = PlayedBroker("broker-a"), tmp_path / "home"
    async with played_cluster(home, good) as cluster:
        for name in HOSTILE:
            cluster.named.setdefault("c1", {})[name] = good.address
            cluster.named.setdefault(name, {})[f"in-{len(cluster.named)}"] = good.address
        async with observing(cluster):

            async def is_reported() -> bool:
                return cluster.listed_count > 3 and bool(cluster.reported(good, "group_watermarks"))

            await eventually(is_reported, "the broker with a name is watched")
    assert [(one.cluster, one.broker) for one in cluster.heard] == [("c1", "broker-a")]
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*/*")] == [
        "home/c1/broker-a"
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    lines = [record.message for record in caplog.records if "is not watched" in record.message]
    assert len(lines) == len(set(lines)) == 2 * len(HOSTILE)
    assert "\n" not in "".join(lines)


@pytest.mark.parametrize(
    "address",
    ["", "nowhere", "127.0.0.1:", "127.0.0.1:\u00b2", "127.0.0.1:99999", "\0:1", "é" * 99 + ":1"],
)
async def test_an_address_that_is_none_costs_that_broker_alone(
    tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    good = PlayedBroker("broker-a")
    async with played_cluster(tmp_path, good) as cluster:
        cluster.named["c1"] = {"odd": address}
        async with observing(cluster):

            async def is_reported() -> bool:
                return cluster.listed_count > 3 and bool(cluster.reported(good, "group_watermarks"))

            await eventually(is_reported, "the broker beside it is watched")
    silent = [record.message for record in caplog.records if "does not answer" in record.message]
    assert len(silent) == 1
    assert silent[0].startswith("c1/odd does not answer")


async def test_a_broker_that_moved_is_asked_where_it_is_now(tmp_path: Path) -> None:
    moving, elsewhere = PlayedBroker("broker-a"), PlayedBroker("broker-a")
    elsewhere.groups = {"later": {("orders", 0): 5}}
    async with played_cluster(tmp_path, moving, elsewhere) as cluster:
        cluster.brokers = [moving]
        async with observing(cluster):

            async def reported_of(group: str) -> bool:
                reported = cluster.reported(moving, "group_watermarks")
                return any(row["group"] == group for row in reported)

            await eventually(lambda: reported_of("g"), "it is watched")
            cluster.brokers = [elsewhere]
            await eventually(lambda: reported_of("later"), "it is watched where it is now")
    assert len(cluster.heard) == 1
