"""The observer reports POP groups of a real Apache RocketMQ 5.5.0 as they are.

A SimpleConsumer of the Python SDK reads through a proxy and acknowledges all but each tenth
message, or none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.admin.api.requests import AdminRequests
from engine.client import ClientConfig
from engine.observer.observation import Observation
from engine.observer.pop_reading import IN_A_STORE
from engine.protocol.codes import RequestCode as Code
from engine.runtime import system_runtime
from engine.telemetry.shipper.shipper import Shipper
from pipelines.base.settings import Evaluation
from tests.integration.broker.cluster import eventually
from tests.integration.broker.spooled import spooled
from tests.integration.observer.played_cluster import PlayedCluster, observing
from tests.interop.real_rocketmq import RealRocketMQ, real_rocketmq
from tests.interop.rocketmq_proxy import Proxy, pop_client, rocketmq_proxy
from tests.needed_steps import needed_for
from tests.pipelines.partition import bronze_of, run

GROUP, TOPIC, COUNT, INVISIBLE_S = "g-pop", "pop_t", 40, 12
WITHIN_S = 60
SETTINGS = {
    "checkpoints in its log": {},
    "retry topics of V2": {"enableRetryTopicV2": "true"},
    "checkpoints in a store": {
        "popConsumerKVServiceInit": "true",
        "popConsumerKVServiceEnable": "true",
    },
}


@pytest.fixture(params=SETTINGS, scope="module")
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RealRocketMQ, Proxy, bool]]:
    """A cluster with a proxy; does it store checkpoints in its log?"""
    in_log = request.param != "checkpoints in a store"
    work = tmp_path_factory.mktemp("pop")
    settings = SETTINGS[request.param]
    with real_rocketmq(work, settings) as cluster, rocketmq_proxy(work, cluster) as proxy:
        yield cluster, proxy, in_log


async def make_topic(cluster: RealRocketMQ, topic: str) -> None:
    config = ClientConfig(namesrv_addresses=(cluster.name_server,))
    asking = AdminRequests(system_runtime(), config)
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "topicFilterType": "SINGLE_TAG",
        "perm": "6",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "+message.type=NORMAL",
    }
    await asking.ask(cluster.broker, Code.UPDATE_AND_CREATE_TOPIC, fields)
    await asking.connection.stop()


class Home:
    """What an observer has reported of the broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "DefaultCluster" / "broker-a" / "observer"

    def rows(self, table: str, group: str) -> list[dict[str, Any]]:
        """Of one group."""
        there = (self.store / "spool").exists()
        reported = spooled(self.store, table) if there else []
        return [row for row in reported if row["group"] == group]


def gold_of(
    home: Home, lake: Path, *names: str, evaluation: Evaluation | None = None
) -> dict[str, list[dict[str, Any]]]:
    """These tables, of all that was reported."""
    Shipper(system_runtime(), str(home.store / "spool"), str(lake), {}).ship_all()
    return run(needed_for(*names), bronze_of(lake), evaluation or Evaluation())


@asynccontextmanager
async def watched(folder: Path, cluster: RealRocketMQ, *proxies: str) -> AsyncIterator[Home]:
    """An observer of the cluster, each second."""
    home = Home(folder)
    seen = PlayedCluster(folder, [], cluster.name_server)
    observation = Observation(frozenset(), "observer", str(folder), 1_000, proxies=proxies)
    async with observing(seen, observation=observation):
        yield home


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_what_a_pop_consumer_leaves_unacknowledged_is_seen_as_it_is(
    served: tuple[RealRocketMQ, Proxy, bool], tmp_path: Path
) -> None:
    cluster, proxy, in_log = served
    await make_topic(cluster, TOPIC)
    async with watched(tmp_path / "home", cluster, proxy.remoting) as home:

        async def is_watched() -> bool:
            return (home.store / "spool").exists()

        await eventually(is_watched, "the first look", within_s=WITHIN_S)
        with pop_client(tmp_path, proxy, TOPIC, GROUP, COUNT, INVISIBLE_S, 90) as client:

            async def came_back_twice() -> bool:
                steps = home.rows("retry_dlq_flow", GROUP)
                return sum(row["reconsume_times"] == 2 for row in steps) >= 4

            await eventually(came_back_twice, "each tenth came back twice", within_s=WITHIN_S * 2)
            taken = client.taken()
    left = {one["id"] for one in taken if not one["acked"]}
    assert len(left) == COUNT // 10
    steps = home.rows("retry_dlq_flow", GROUP)
    assert {row["step"] for row in steps} == {"INVISIBLE_TIME_EXPIRED"}
    assert {row["message_id"] for row in steps} == left
    assert {row["origin_topic"] for row in steps} == {TOPIC}
    for name in (f"{GROUP}_{TOPIC}", f"{GROUP}+{TOPIC}"):
        assert not home.rows("retry_dlq_flow", name), "no group of that name exists"

    joined = [row for row in home.rows("rebalance_events", GROUP) if row["kind"] == "JOINED"]
    assert [(row["language"], row["proxy"]) for row in joined] == [("PYTHON", proxy.remoting)]
    assert joined[0]["subscription"] == [f"{TOPIC}:*"]
    marks = home.rows("group_watermarks", GROUP)
    assert {row["members"] for row in marks[-4:]} == {1}

    out = home.rows("pop_watermarks", GROUP)
    if in_log:
        first = [row for row in out if row["topic"] == TOPIC]
        most = {row["queue_id"]: row for row in first if row["popped"] == COUNT // 4}
        known = [row for row in first if row["unknown_reason"] is None]
        assert sum(row["acknowledged"] for row in known) == COUNT - len(left)
        assert sum(row["expired"] for row in known) == len(left)
        assert {row["invisible_ms"] for row in most.values()} == {INVISIBLE_S * 1_000}
    else:
        assert {row["unacknowledged"] for row in out} == {None}
        assert {row["unknown_reason"] for row in out} == {IN_A_STORE}

    gold = gold_of(home, tmp_path / "lake", "duplicate_risk_windows", "retry_flow")
    cause = "INVISIBLE_TIME_EXPIRED"
    windows = [row for row in gold["duplicate_risk_windows"] if row["cause"] == cause]
    assert {row["message_id"] for row in windows} == left
    assert {row["outcome"] for row in windows} == {"CONFIRMED"}
    assert {row["topic"] for row in windows} == {TOPIC}
    assert all(row["sent_back"] == 0 for row in gold["retry_flow"] if row["group"] == GROUP)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_consumer_that_never_acknowledges_is_seen_within_one_invisible_time_and_a_look(
    served: tuple[RealRocketMQ, Proxy, bool], tmp_path: Path
) -> None:
    cluster, proxy, in_log = served
    group, topic, count = "g-never", "never_t", 8
    await make_topic(cluster, topic)
    async with watched(tmp_path / "home", cluster) as home:
        with pop_client(tmp_path, proxy, topic, group, count, INVISIBLE_S, 60, "none"):

            async def is_seen() -> bool:
                rows = home.rows("pop_watermarks", group)
                # Those that were handed out again begin to run out as well.
                again = sum(row["expired"] for row in rows) > count
                return again or (not in_log and bool(home.rows("retry_dlq_flow", group)))

            await eventually(is_seen, "what ran out", within_s=WITHIN_S * 2)
    rows = home.rows("pop_watermarks", group)
    if in_log:
        short = Evaluation(window_ms=4_000, slide_ms=1_000)
        found = gold_of(home, tmp_path / "lake", "pop_progress", "group_state", evaluation=short)
        gold = found["pop_progress"]
        handed_out = min(row["handed_out_since"] for row in gold if row["handed_out_since"])
        seen = min(row["observed_at"] for row in gold if row["expired"])
        assert (seen - handed_out).total_seconds() <= INVISIBLE_S + 4
        states = [row for row in found["group_state"] if row["group"] == group]
        stalled = [row["observed_at"] for row in states if row["state"] == "STALLED"]
        assert (min(stalled) - handed_out).total_seconds() <= INVISIBLE_S + 4 + 4 + 1
    assert sum(row["acknowledged"] for row in rows) == 0
    reasons = {row["members_unknown_reason"] for row in home.rows("group_watermarks", group)}
    assert reasons == {"a proxy at 127.0.0.1 serves this cluster; give its port with --proxy"}
