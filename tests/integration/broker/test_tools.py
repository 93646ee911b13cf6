"""What RocketMQ's tools ask of a broker: topics, groups, figures, whole tables."""

from __future__ import annotations

import json
from pathlib import Path

from engine.protocol import fastjson
from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.spooled import picked, spooled

TOPIC_FIELDS = {
    "defaultTopic": "TBW102",
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
}


async def make_topic(client: RawClient, topic: str, queue_nums: int) -> int:
    answer = await client.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        readQueueNums=queue_nums,
        writeQueueNums=queue_nums,
        **TOPIC_FIELDS,
    )
    return answer.code


async def test_a_topic_is_made_changed_listed_and_deleted(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client, names = running.client(), running.of_name_server()
        assert await make_topic(client, "made", 2) == ResponseCode.SUCCESS
        config = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic="made")
        assert json.loads(config.body)["readQueueNums"] == 2
        assert await make_topic(client, "made", 3) == ResponseCode.SUCCESS
        listed = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        table = json.loads(listed.body)["topicConfigTable"]
        assert table["made"]["writeQueueNums"] == 3
        assert listed.fields["totalTopicNum"] == str(len(table))
        await client.send(b"gone soon", topic="made")
        await client.commit(1, topic="made")
        deleted = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="made")
        assert deleted.code == ResponseCode.SUCCESS
        missing = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic="made")
        assert missing.code == ResponseCode.TOPIC_NOT_EXIST
        assert await make_topic(client, "made", 1) == ResponseCode.SUCCESS
        assert bodies(await client.pull(0, topic="made")) == []
        begin = await client.committed(topic="made")
        assert begin.fields["offset"] == "0", "the group begins the new one at its beginning"

        async def routed() -> bool:
            route = await names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="made")
            return route.code == 0 and json.loads(route.body)["queueDatas"][0]["readQueueNums"] == 1

        await eventually(routed, "the name server knows the topic made again")


async def test_a_topic_that_was_made_is_known_to_the_name_server_at_once(tmp_path: Path) -> None:
    """Row C1: whoever asks after the answer finds it, as RocketMQ's tools expect."""
    async with cluster(broker_config(tmp_path)) as running:
        client, names = running.client(), running.of_name_server()
        for number in range(10):
            await make_topic(client, f"made{number}", 1)
            route = await names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=f"made{number}")
            assert route.code == ResponseCode.SUCCESS


async def test_the_brokers_own_topics_cannot_be_changed_or_deleted(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for topic in ("SCHEDULE_TOPIC_XXXX", "TBW102", "broker-a", "DefaultCluster"):
            assert await make_topic(client, topic, 1) == ResponseCode.INVALID_PARAMETER
            deleted = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
            assert deleted.code == ResponseCode.INVALID_PARAMETER
        own = await client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert "SCHEDULE_TOPIC_XXXX" in json.loads(own.body)["topicList"]


async def test_more_queues_are_notified_to_the_groups_that_read_them(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        await make_topic(client, TOPIC, 1)
        await client.heartbeat()
        await make_topic(client, TOPIC, 2)
    (reported,) = [
        row
        for row in spooled(tmp_path / "store", "rebalance_events")
        if row["kind"] == "QUEUES_CHANGED"
    ]
    assert picked(reported, "group", "client_id") == (GROUP, None)
    assert (reported["before"], reported["after"]) == (["orders:0"], ["orders:0", "orders:1"])


async def test_a_group_is_made_listed_and_deleted_with_its_offsets(tmp_path: Path) -> None:
    config = broker_config(tmp_path, auto_create_subscription_group=False)
    async with cluster(config) as running:
        client = running.client()
        await client.send()
        wish = json.dumps({"groupName": GROUP, "retryMaxTimes": 3, "groupRetryPolicy": {}})
        made = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, wish.encode())
        assert made.code == ResponseCode.SUCCESS
        listed = await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = json.loads(listed.body)["subscriptionGroupTable"]
        assert table[GROUP]["retryMaxTimes"] == 3
        one = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=GROUP)
        assert json.loads(one.body) == table[GROUP]
        assert (await client.commit(1)).code == ResponseCode.SUCCESS
        await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, cleanOffset=True)
        assert (await client.commit(1)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert (await client.committed()).code == ResponseCode.QUERY_NOT_FOUND


async def test_settings_made_by_tools_survive_a_restart(tmp_path: Path) -> None:
    config = broker_config(tmp_path)
    async with cluster(config) as running:
        client = running.client()
        await make_topic(client, "made", 3)
        wish = json.dumps({"groupName": "made-group", "retryMaxTimes": 3})
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, wish.encode())
    async with cluster(config) as running:
        client = running.client()
        topic = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic="made")
        assert json.loads(topic.body)["readQueueNums"] == 3
        group = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="made-group")
        assert json.loads(group.body)["retryMaxTimes"] == 3


async def test_the_ends_of_a_topic_and_the_brokers_tables_are_returned(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path, delay_levels_ms=(100,))) as running:
        client = running.client()
        await client.send(b"one", queue_id=1)
        await client.commit(1, queue_id=1)
        stats = await client.ask(RequestCode.GET_TOPIC_STATS_INFO, topic=TOPIC)
        ends = {
            dict(queue)["queueId"]: (end["minOffset"], end["maxOffset"])
            for queue, end in fastjson.loads(stats.body)["offsetTable"].items()
        }
        assert ends == {0: (0, 0), 1: (0, 1), 2: (0, 0), 3: (0, 0)}
        offsets = await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        table = json.loads(offsets.body)["offsetTable"]
        assert table == {f"{TOPIC}@{GROUP}": {"1": 1}}
        figures = json.loads((await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)
        assert int(figures["table"]["commitLogMaxOffset"]) > 0
        await client.send(b"later", DELAY=1)

        async def delivered() -> bool:
            cursors = await client.ask(RequestCode.GET_ALL_DELAY_OFFSET)
            return bool(json.loads(cursors.body)["offsetTable"] == {"1": 1})

        await eventually(delivered, "the delay cursor has moved")


async def test_a_consumers_own_words_are_forwarded_to_whoever_asks(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        consumer, tool = running.client("c1"), running.client("tool")
        await consumer.heartbeat()
        asked = {"consumerGroup": GROUP, "jstackEnable": False}
        answer = await tool.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, clientId="c1", **asked)
        assert fastjson.loads(answer.body)["mqTable"] == {}
        nobody = await tool.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, clientId="c9", **asked)
        assert nobody.code == ResponseCode.SYSTEM_ERROR
        assert "<c9> not online" in str(nobody.remark)


async def test_producers_of_a_group_are_listed(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("p1")
        data = {"clientID": "p1", "producerDataSet": [{"groupName": "pg"}]}
        await client.ask(RequestCode.HEART_BEAT, json.dumps(data).encode())
        listed = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="pg")
        (one,) = json.loads(listed.body)["connectionSet"]
        assert (one["clientId"], one["language"]) == ("p1", "PYTHON")
        await client.ask(RequestCode.UNREGISTER_CLIENT, clientID="p1", producerGroup="pg")
        gone = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup="pg")
        assert gone.code == ResponseCode.SYSTEM_ERROR
