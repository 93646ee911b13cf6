"""A name server over TCP: brokers register in both forms, clients find them, settings are kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from engine.broker.broker import Broker
from engine.foundation.limits import REGISTRATION_TOPICS_MAX
from engine.namesrv import NameServer, NameServerConfig
from engine.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.hashes import body_crc
from engine.protocol.headers_admin import RegisterBrokerRequestHeader
from engine.remoting import Peer, RpcServer
from engine.runtime import system_runtime
from tests.integration.broker.cluster import TOPIC, RawClient, broker_config, cluster, eventually

BODY = RegisterBrokerBody(
    DataVersion(0, 1, 1),
    {"orders": TopicConfig("orders", 4, 4, 6), "payments": TopicConfig("payments", 1, 1, 6)},
)


@asynccontextmanager
async def name_server(**settings: object) -> AsyncIterator[RawClient]:
    """A name server on a free port, and a client of it."""
    party = NameServer(system_runtime(), NameServerConfig(port=0, **settings))  # type: ignore[arg-type]
    client = RawClient(f"127.0.0.1:{await party.start()}")
    try:
        yield client
    finally:
        await client.close()
        await party.stop()


async def register(
    client: RawClient, *, compressed: bool = False, **more: object
) -> RemotingCommand:
    body = BODY.encode(compressed=compressed)
    header: dict[str, object] = {
        "brokerName": "broker-a",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "c1",
        "haServerAddr": "10.0.0.1:10912",
        "brokerId": 0,
        "compressed": compressed,
        "bodyCrc32": body_crc(body),
    }
    return await client.ask(RequestCode.REGISTER_BROKER, body, **(header | more))


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_broker_is_found_by_its_topics_whichever_form_it_registered_in(
    compressed: bool,
) -> None:
    async with name_server() as client:
        unknown = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
        assert "No topic route info in name server for the topic: orders" in str(unknown.remark)
        assert (await register(client, compressed=compressed)).code == ResponseCode.SUCCESS
        route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
        assert json.loads(route.body)["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}
        assert json.loads(route.body)["queueDatas"][0]["readQueueNums"] == 4
        topics = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert json.loads(topics.body)["topicList"] == ["orders", "payments"]
        clusters = await client.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        assert json.loads(clusters.body)["clusterAddrTable"] == {"c1": ["broker-a"]}


async def test_a_registration_damaged_on_the_way_is_refused() -> None:
    async with name_server() as client:
        wrong_sum = await register(client, bodyCrc32=1)
        assert wrong_sum.code == ResponseCode.SYSTEM_ERROR
        assert "crc32 not match" in str(wrong_sum.remark)
        no_table = await register(client, compressed=True, bodyCrc32=0, brokerId="zero")
        assert no_table.code == ResponseCode.SYSTEM_ERROR
        topics = await client.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        assert json.loads(topics.body)["topicList"] == []


async def test_a_silent_broker_leaves_the_routes() -> None:
    async with name_server(scan_interval_ms=20) as client:
        await register(client, heartbeatTimeoutMillis=100)

        async def gone() -> bool:
            route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
            return route.code == ResponseCode.TOPIC_NOT_EXIST

        await eventually(gone, "the silent broker leaves the routes")


async def test_a_broker_whose_connection_ends_leaves_the_routes() -> None:
    async with name_server() as client:
        broker = RawClient(client.address)
        await register(broker)
        await broker.close()

        async def gone() -> bool:
            route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
            return route.code == ResponseCode.TOPIC_NOT_EXIST

        await eventually(gone, "the lost broker leaves the routes")


async def test_a_topic_made_later_is_reported_alone(tmp_path: Path) -> None:
    heard: list[list[str]] = []

    async def write_down_slowly(peer: Peer, request: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(0.2)
        header = RegisterBrokerRequestHeader.decode(request.fields)
        body = RegisterBrokerBody.decode(request.body, compressed=header.compressed)
        heard.append(list(body.topic_config_table))
        return request.respond(ResponseCode.SUCCESS)

    listener = RpcServer(system_runtime(), {RequestCode.REGISTER_BROKER: write_down_slowly})
    port = await listener.start("127.0.0.1", 0)
    config = broker_config(tmp_path, namesrv_addresses=(f"127.0.0.1:{port}",))
    broker = Broker(system_runtime(), config)
    client = RawClient(f"127.0.0.1:{await broker.start()}")
    for topic in ("orders", "payments"):
        await client.make_topic(topic)
        assert heard[-1] == [topic], "whoever made it may look for it at the name server"
    await client.close()
    await broker.stop()
    await listener.stop()
    (first, *later) = heard
    assert "TBW102" in first
    assert later == [["orders"], ["payments"]]


async def test_a_name_server_that_began_anew_and_heard_of_one_topic_alone_hears_of_all(
    tmp_path: Path,
) -> None:
    async def found(names: RawClient, topic: str) -> bool:
        route = await names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        return route.code == ResponseCode.SUCCESS

    async with cluster(broker_config(tmp_path, register_interval_ms=2000)) as running:
        await running.client().send(topic="before")
        port = int(running.name_server_address.rpartition(":")[2])
        await running.name_server.stop()
        fresh = NameServer(system_runtime(), NameServerConfig(port=port))
        await fresh.start()
        names = running.of_name_server()
        try:
            await running.client().send(topic="after")
            for topic in ("after", "before"):
                await eventually(partial(found, names, topic), f"{topic} is in the routes")
        finally:
            await fresh.stop()


async def test_a_topic_deleted_there_that_its_broker_has_made_again_is_routed_again(
    tmp_path: Path,
) -> None:
    """A tool deletes at the brokers first; with automatic creation a send comes between."""
    async with cluster(broker_config(tmp_path, register_interval_ms=300)) as running:
        client, names = running.client(), running.of_name_server()
        await client.send(topic="quiet")

        async def is_routed() -> bool:
            route = await names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="quiet")
            return route.code == ResponseCode.SUCCESS

        await eventually(is_routed, "the topic is in the routes")
        gone = await names.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="quiet")
        assert gone.code == ResponseCode.SUCCESS
        assert not await is_routed()
        await eventually(is_routed, "its broker has it, and no topic has changed")
        await names.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="quiet")
        for number in range(20):  # Each is sent at once, and never the whole table but on time.
            await client.send(topic=f"news-{number}")
            await asyncio.sleep(0.05)
        assert await is_routed()


def name(number: int) -> str:
    """So long that all topics together are more than one registration may say."""
    return f"t{number:05}" + "x" * 110


async def test_a_broker_with_very_many_topics_registers_in_parts_and_only_where_it_is_news(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, register_interval_ms=300)) as running:
        names, count = running.of_name_server(), 3 * REGISTRATION_TOPICS_MAX + 5
        topics = running.broker.state.topics
        for number in range(count):
            topics.put(TopicConfig(name(number), 1, 1, 6))
        running.broker.state.changes.of_topics()
        first, last = name(0), name(count - 1)

        async def perm(topic: str) -> int | None:
            route = await names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
            if route.code != ResponseCode.SUCCESS:
                return None
            (queues,) = json.loads(route.body)["queueDatas"]
            return int(queues["perm"])

        async def all_known() -> bool:
            return await perm(first) == await perm(last) == 6

        await eventually(all_known, "every part is heard", within_s=30)
        heard = None

        async def settled() -> bool:
            nonlocal heard
            await asyncio.sleep(0.5)
            before, heard = heard, running.name_server.routes.data_version(address)
            return before == heard == running.broker.state.node.data_version(topics.counter)

        address = running.broker.state.node.address
        await eventually(settled, "the version heard is that of the table", within_s=30)
        broker_name = running.broker.state.node.config.broker_name
        await names.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName=broker_name)
        await asyncio.sleep(1.2)  # Some rounds, that send nothing new.
        assert await perm(first) == await perm(last) == 4, "what was wiped stays wiped"
        topics.put(TopicConfig("another", 1, 1, 6))
        running.broker.state.changes.of_topics()

        async def one_known() -> bool:
            return await perm("another") == 6

        await eventually(one_known, "one more topic", within_s=30)


async def test_a_stopped_broker_says_farewell(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        await running.client().send()
        names = running.of_name_server()

        async def found() -> bool:
            route = await names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC)
            return route.code == ResponseCode.SUCCESS

        await eventually(found, "the new topic is in the routes")
        await running.broker.stop()
        assert not await found()


async def test_write_permission_can_be_taken_from_a_broker_and_given_back() -> None:
    async with name_server() as client:
        await register(client)

        async def perm() -> int:
            route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
            return int(json.loads(route.body)["queueDatas"][0]["perm"])

        wiped = await client.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
        assert (wiped.fields, await perm()) == ({"wipeTopicCount": "2"}, 4)
        given = await client.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
        assert (given.fields, await perm()) == ({"addTopicCount": "2"}, 6)


async def test_settings_are_kept_over_a_restart_and_order_settings_go_to_brokers(
    tmp_path: Path,
) -> None:
    kept = {"kv_path": str(tmp_path / "kvConfig.json")}
    async with name_server(**kept, order_message_enable=True) as client:
        await client.ask(
            RequestCode.PUT_KV_CONFIG,
            namespace="ORDER_TOPIC_CONFIG",
            key="orders",
            value="broker-a:4",
        )
        registered = await register(client)
        assert json.loads(registered.body)["table"] == {"orders": "broker-a:4"}
        route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
        assert json.loads(route.body)["orderTopicConf"] == "broker-a:4"

        async def saved() -> bool:
            return (tmp_path / "kvConfig.json").exists()

        await eventually(saved, "the settings are saved")
    async with name_server(**kept) as client:
        asked = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
        value = await client.ask(RequestCode.GET_KV_CONFIG, **asked)
        assert value.fields == {"value": "broker-a:4"}
        await register(client)
        route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders")
        assert json.loads(route.body)["orderTopicConf"] is None, "not sent unless asked for"
        table = await client.ask(
            RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ORDER_TOPIC_CONFIG"
        )
        assert json.loads(table.body)["table"] == {"orders": "broker-a:4"}
        await client.ask(RequestCode.DELETE_KV_CONFIG, **asked)
        missing = await client.ask(RequestCode.GET_KV_CONFIG, **asked)
        assert missing.code == ResponseCode.QUERY_NOT_FOUND


async def test_an_unknown_code_is_not_supported_here_either() -> None:
    async with name_server() as client:
        answer = await client.ask(RequestCode.SEND_MESSAGE)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
