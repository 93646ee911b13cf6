"""The observer reports groups' progress in lite topics of a real Apache RocketMQ 5.5.

These are queues of a parent topic that no list names. How far a group is in each comes with the
answer about all groups.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.admin import Admin
from engine.admin.api.requests import AdminRequests
from engine.client import ClientConfig, Producer
from engine.foundation.errors import TidemarkError
from engine.protocol.codes import RequestCode as Code
from engine.protocol.message import Message
from engine.runtime import system_runtime
from engine.telemetry.shipper.shipper import Shipper
from pipelines.base.settings import Evaluation
from tests.integration.broker.cluster import eventually
from tests.integration.broker.spooled import spooled
from tests.integration.observer.played_cluster import PlayedCluster, observing
from tests.interop.real_rocketmq import RealRocketMQ, real_rocketmq
from tests.needed_steps import needed_for
from tests.pipelines.partition import bronze_of, run

GROUP, PARENT, CHILD = "lite-group", "parent", "child"
LITE = f"%LMQ%${PARENT}${CHILD}"
"""As the broker calls its queue."""
LISTED_AGAIN_MS = 8_000
"""Topics are listed each sixth look."""
SETTINGS = {"enableLmq": "true", "enableMultiDispatch": "true"}


async def with_three_messages_of_which_one_is_consumed(cluster: RealRocketMQ) -> None:
    config = ClientConfig(namesrv_addresses=(cluster.name_server,))
    asking = AdminRequests(system_runtime(), config)
    topic = {
        "topic": PARENT,
        "defaultTopic": "TBW102",
        "topicFilterType": "SINGLE_TAG",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "+message.type=LITE",
    }
    await asking.ask(cluster.broker, Code.UPDATE_AND_CREATE_TOPIC, topic)
    group = {"groupName": GROUP, "consumeEnable": True, "liteBindTopic": PARENT}
    body = json.dumps(group | {"attributes": {"+lite.bind.topic": PARENT}}).encode()
    await asking.ask(cluster.broker, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    sent = 0

    async def are_sent() -> bool:
        nonlocal sent
        producer = Producer(system_runtime(), config, "p")
        await producer.start()
        properties = {"__LITE_TOPIC": CHILD, "INNER_MULTI_DISPATCH": LITE}
        try:
            while sent < 3:
                await producer.send(Message(PARENT, b"x", properties=dict(properties)))
                sent += 1
        except TidemarkError:
            return False
        finally:
            await producer.stop()
        return True

    await eventually(are_sent, "the topic has a route", within_s=60)
    offset = {"consumerGroup": GROUP, "topic": LITE, "queueId": "0", "commitOffset": "1"}
    await asking.ask(cluster.broker, Code.UPDATE_CONSUMER_OFFSET, offset)
    await asking.connection.stop()
    async with Admin(system_runtime(), config) as admin:
        assert LITE not in await admin.topics.configs_at(cluster.broker), "no list names it"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_how_far_a_group_is_in_a_lite_topic_is_reported_as_of_any_queue(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    store = home / "DefaultCluster" / "broker-a" / "observer"

    def rows(table: str) -> list[dict[str, object]]:
        reported = spooled(store, table) if (store / "spool").exists() else []
        return [row for row in reported if row["topic"] == LITE]

    with real_rocketmq(tmp_path, SETTINGS) as cluster:
        await with_three_messages_of_which_one_is_consumed(cluster)
        seen = PlayedCluster(home, [], cluster.name_server)
        async with observing(seen, period_ms=500):

            async def is_reported() -> bool:
                return any(row["store_time_at_committed"] for row in rows("group_watermarks"))

            await eventually(
                is_reported, "how far it is, and since when a message waits", within_s=40
            )
            until_ms = system_runtime().clock.steady_ms() + LISTED_AGAIN_MS

            async def was_listed_again() -> bool:
                return system_runtime().clock.steady_ms() > until_ms

            await eventually(was_listed_again, "topics are listed again", within_s=40)
    assert not rows("lifecycle"), "it is not gone because no list names it"
    row = rows("group_watermarks")[-1]
    assert [row[name] for name in ("group", "committed", "max_offset")] == [GROUP, 1, 3]
    Shipper(system_runtime(), str(store / "spool"), str(tmp_path / "lake"), {}).ship_all()
    gold = run(needed_for("consumer_lag"), bronze_of(tmp_path / "lake"), Evaluation())
    lag = next(row for row in reversed(gold["consumer_lag"]) if row["topic"] == LITE)
    assert (lag["group"], lag["lag_messages"]) == (GROUP, 2)
