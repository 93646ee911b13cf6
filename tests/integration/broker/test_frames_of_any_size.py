"""However much a frame claims to say, the party goes on with everybody else's: what is longer than
its request code allows is refused unread, and what connections make a party keep has an end.

Rows: Limits, B1.
"""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.broker.state import BrokerState
from engine.foundation.errors import ConnectionLost
from engine.foundation.limits import (
    BODY_ADMIN_ENTRIES_MAX,
    BROKER_ADDRESS_CHARS_MAX,
    CLIENT_SUBSCRIPTION_BYTES_MAX,
    GROUP_ATTRIBUTES_CHARS_MAX,
    KEY_VALUE_CHARS_MAX,
    KEY_VALUE_NAME_CHARS_MAX,
    KEY_VALUES_BYTES_MAX,
    LOCK_BATCH_QUEUES_MAX,
    REGISTERED_AT_ONCE,
    SUBSCRIPTION_TAGS_MAX,
)
from engine.foundation.units import MIB
from engine.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicList
from engine.protocol.body_limits import body_bytes_max
from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import RawClient, broker_config, cluster, eventually

SENDS = {
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
}


def heartbeat(groups: int, subscriptions: int = 0, text: str = "*") -> bytes:
    subscribed = [
        {"topic": f"t{number}", "subString": text, "subVersion": 1}
        for number in range(subscriptions)
    ]
    consumers = [
        {"groupName": f"g{number}", "subscriptionDataSet": subscribed} for number in range(groups)
    ]
    return json.dumps({"clientID": "c", "consumerDataSet": consumers}).encode()


async def test_a_body_longer_than_its_code_allows_is_refused_unread(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client, directory = running.client(), running.of_name_server()
        for code in RequestCode:
            if code in SENDS:
                continue
            one_too_long = b"[" * (body_bytes_max(code) + 1)
            for party in (client, directory):
                refused = await party.ask(code, one_too_long)
                assert refused.code == ResponseCode.INVALID_PARAMETER, (code, refused.remark)
                assert "send less at once" in (refused.remark or "")
        assert (await client.send(b"after all that")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"clientID":"c","a":[' + b"{0:1}," * (14 * MIB // 6), id="14 MiB loose"),
        pytest.param(heartbeat(30_000), id="30,000 groups"),
        pytest.param(heartbeat(1, 1, "a||" * (15 * MIB // 3)), id="15 MiB of tags"),
        pytest.param(heartbeat(4000), id="4,000 groups in little"),
        pytest.param(heartbeat(1, 1, "a||" * 10_000), id="10,000 tags"),
    ],
)
async def test_a_heartbeat_that_says_too_much_costs_next_to_nothing(
    tmp_path: Path, body: bytes
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        begun = time.process_time()
        answer = await client.ask(RequestCode.HEART_BEAT, body)
        cost_s = time.process_time() - begun
        assert answer.code in (
            ResponseCode.INVALID_PARAMETER,
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        )
        assert "at most" in (answer.remark or "")
        assert running.broker.state.groups.member_count == 0, "nothing of it counts"
        assert cost_s < 0.5, "to send and to receive it, above all"


async def test_what_heartbeats_of_many_connections_keep_is_bounded(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        groups = running.broker.state.groups
        body: dict[str, Any] = json.loads(heartbeat(1, 25, "x||" * 5000))
        tracemalloc.start()
        clients = [
            RawClient(running.broker.state.node.address, f"client {number}") for number in range(12)
        ]
        running.clients.extend(clients)
        for number, client in enumerate(clients):
            for part in range(8):
                body["clientID"] = client.client_id
                body["consumerDataSet"][0]["groupName"] = f"group-{number}-{part}"
                await client.ask(RequestCode.HEART_BEAT, json.dumps(body).encode())
        assert groups.member_count > 0
        assert groups.subscription_bytes <= 2 * 12 * CLIENT_SUBSCRIPTION_BYTES_MAX
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept < 2 * 12 * CLIENT_SUBSCRIPTION_BYTES_MAX + 16 * MIB
        for client in clients:
            await client.close()

        async def alone() -> bool:
            return groups.member_count == 0

        await eventually(alone, "members leave with their connections")
        assert groups.subscription_bytes == 0, "who is gone keeps nothing"


async def test_a_heartbeat_that_asks_for_too_much_memory_changes_nothing(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("member")
        await client.heartbeat("held")
        tags = [f"t{number}" for number in range(SUBSCRIPTION_TAGS_MAX)]
        dear = [
            {"topic": f"t{number}", "subString": "t0", "tagsSet": tags, "codeSet": [*range(1024)]}
            for number in range(24)
        ]
        asked = {"clientID": "other", "consumerDataSet": [{"groupName": "g"}]}
        asked["consumerDataSet"][0]["subscriptionDataSet"] = dear  # type: ignore[index]
        refused = await client.ask(
            RequestCode.HEART_BEAT, json.dumps(asked, separators=(",", ":")).encode()
        )
        assert refused.code == ResponseCode.INVALID_PARAMETER, refused.remark
        group = running.broker.state.groups.of("held")
        assert group is not None, "the client that was there is there"
        assert group.member_ids() == ["member"]


def lowered(table: object, limit: str, most: int) -> None:
    setattr(table, limit, most)


@pytest.mark.parametrize(
    "lower",
    [
        pytest.param(lambda state: lowered(state.groups._memberships, "_all_max", 3), id="members"),
        pytest.param(lambda state: lowered(state.groups._names, "_all_max", 3), id="groups"),
        pytest.param(
            lambda state: lowered(
                state.groups._bytes, "_all_max", state.groups.subscription_bytes + 1000
            ),
            id="memory of all groups",
        ),
        pytest.param(
            lambda state: lowered(state.producers._memberships, "_all_max", 2), id="producers"
        ),
        pytest.param(
            lambda state: lowered(
                state.group_configs, "_count_max", len(state.group_configs.names()) + 2
            ),
            id="settings of groups",
        ),
        pytest.param(
            lambda state: lowered(state.topics, "_count_max", len(state.topics._topics) + 2),
            id="retry topics",
        ),
    ],
)
async def test_a_heartbeat_for_which_a_broker_has_no_room_changes_nothing(
    tmp_path: Path, lower: Callable[[BrokerState], None]
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        state = running.broker.state
        await running.client("member").heartbeat("held")

        def known() -> tuple[object, ...]:
            groups, settings, topics = state.groups, state.group_configs, state.topics
            return (
                *(groups.member_count, groups.subscription_bytes, state.producers.member_count),
                *(sorted(settings.names()), sorted(topics._topics)),
                *(settings.counter, topics.counter, groups.take_moved()),
            )

        state.groups.take_moved()
        before = known()
        lower(state)
        asked = json.loads(heartbeat(4, 3))
        asked["producerDataSet"] = [{"groupName": f"p{number}"} for number in range(4)]
        other = running.client("c")
        for _ in range(2):
            refused = await other.ask(RequestCode.HEART_BEAT, json.dumps(asked).encode())
            assert refused.code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR)
            assert known() == before
        asked["consumerDataSet"], asked["producerDataSet"] = asked["consumerDataSet"][:1], []
        asked["consumerDataSet"][0]["subscriptionDataSet"] = []
        taken = await other.ask(RequestCode.HEART_BEAT, json.dumps(asked).encode())
        assert taken.code == ResponseCode.SUCCESS, "what there is room for is taken"


async def test_locks_topics_and_groups_are_asked_for_some_at_a_time(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        queues = [
            {"topic": "t", "brokerName": "b", "queueId": number}
            for number in range(LOCK_BATCH_QUEUES_MAX + 1)
        ]
        returned = list(queues)
        locks = {"consumerGroup": "g", "clientId": "c", "mqSet": queues}
        unlocks = locks | {"mqSet": returned}
        topics = [{"topicName": f"t{one}"} for one in range(BODY_ADMIN_ENTRIES_MAX + 1)]
        groups = [{"groupName": f"g{one}"} for one in range(BODY_ADMIN_ENTRIES_MAX + 1)]
        for code, body, entries in (
            (RequestCode.LOCK_BATCH_MQ, locks, queues),
            (RequestCode.UNLOCK_BATCH_MQ, unlocks, returned),
            (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": topics}, topics),
            (
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
                {"groupConfigList": groups},
                groups,
            ),
        ):
            encoded = json.dumps(body, separators=(",", ":")).encode()
            refused = await client.ask(code, encoded)
            assert refused.code == ResponseCode.INVALID_PARAMETER
            assert "at a time" in (refused.remark or ""), refused.remark
            entries.pop()
            encoded = json.dumps(body, separators=(",", ":")).encode()
            assert (await client.ask(code, encoded)).code == ResponseCode.SUCCESS


async def test_what_a_name_server_keeps_for_tools_has_an_end(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.of_name_server()

        async def put(namespace: str, key: str, value: str) -> int:
            answer = await client.ask(
                RequestCode.PUT_KV_CONFIG, namespace=namespace, key=key, value=value
            )
            return answer.code

        name, value = "n" * KEY_VALUE_NAME_CHARS_MAX, "v" * KEY_VALUE_CHARS_MAX
        assert await put(name, name, value) == ResponseCode.SUCCESS
        assert await put(name + "n", name, value) == ResponseCode.INVALID_PARAMETER
        assert await put(name, name + "n", value) == ResponseCode.INVALID_PARAMETER
        assert await put(name, name, value + "v") == ResponseCode.INVALID_PARAMETER
        codes = [await put("ns", f"{number}", value) for number in range(200)]
        assert codes.count(ResponseCode.SUCCESS) == KEY_VALUES_BYTES_MAX // len(value) - 2
        assert set(codes) == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
        assert await put("ns", "0", "short") == ResponseCode.SUCCESS
        whole = await client.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="ns")
        assert whole.code == ResponseCode.SUCCESS, "all of a namespace is one answer"


async def test_what_brokers_say_of_themselves_has_an_end(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.of_name_server()
        body = RegisterBrokerBody(DataVersion(0, 1, 1), {}).encode(compressed=False)
        fields = {"clusterName": "c", "brokerName": "b", "brokerId": 0}
        addresses = {"brokerAddr": "10.0.0.9:1", "haServerAddr": "10.0.0.9:2"}
        for name in addresses:
            long = addresses | {name: "1" * (BROKER_ADDRESS_CHARS_MAX + 1)}
            refused = await client.ask(RequestCode.REGISTER_BROKER, body, **fields, **long)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "at most" in (refused.remark or "")
        assert (
            await client.ask(RequestCode.REGISTER_BROKER, body, **fields, **addresses)
        ).code == ResponseCode.SUCCESS


async def test_what_a_tool_says_of_a_group_has_an_end(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for wrong in (
            {"attributes": {"note": "x" * GROUP_ATTRIBUTES_CHARS_MAX}},
            {"attributes": {"note": {"a": 1}}},
            {"brokerId": 2**63},
        ):
            config = {"groupName": "reported"} | wrong
            one = json.dumps(config).encode()
            refused = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, one)
            assert refused.code == ResponseCode.INVALID_PARAMETER, wrong
            some = json.dumps({"groupConfigList": [{"groupName": "good"}, config]}).encode()
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            assert (await client.ask(code, some)).code == ResponseCode.INVALID_PARAMETER
            assert not running.broker.state.group_configs.known("good")


@pytest.mark.parametrize("compressed", [False, True])
async def test_while_a_large_broker_registers_others_are_answered(
    tmp_path: Path, compressed: bool
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        directory, other = running.of_name_server(), running.of_name_server()
        names = [f"topic-{number}" for number in range(10 * REGISTERED_AT_ONCE)]
        table = {name: TopicConfig(name, 4, 4, 6) for name in names}
        table["no/name"] = TopicConfig("no/name", 4, 4, 6)

        def registration(counter: int, topics: dict[str, TopicConfig]) -> Any:
            return directory.ask(
                RequestCode.REGISTER_BROKER,
                RegisterBrokerBody(DataVersion(0, 1, counter), topics).encode(
                    compressed=compressed
                ),
                brokerName="large",
                brokerAddr="10.0.0.1:10911",
                clusterName="c",
                haServerAddr="10.0.0.1:10912",
                brokerId=0,
                compressed=compressed,
            )

        async def seen() -> int:
            topics = await other.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            return len(set(TopicList.decode(topics.body).topic_list) & set(names))

        async def knows(topic: str) -> bool:
            answer = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
            return bool(answer.code == ResponseCode.SUCCESS)

        await seen()  # Connected.
        whole = asyncio.ensure_future(registration(1, table))
        newer = asyncio.ensure_future(registration(2, {names[-1]: TopicConfig(names[-1], 1, 1, 6)}))
        answers = []
        while not whole.done():  # Both questions of a pair meet the routes at one instant.
            answers.append(await asyncio.gather(knows(names[0]), knows(names[-1])))
        assert (await whole).code == (await newer).code == ResponseCode.SUCCESS
        assert answers.count([False, False]) > 2, "others are answered while topics are read"
        assert [True, False] in answers, "and while they are put, piece by piece"
        assert await seen() == len(names)
        route = await other.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=names[-1])
        [queues] = json.loads(route.body)["queueDatas"]
        assert queues["readQueueNums"] == 1, "the newer registration counts"
        leaving = asyncio.ensure_future(registration(3, table))
        await other.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k")
        await directory.close()
        with pytest.raises(ConnectionLost):
            await leaving

        async def forgotten() -> bool:
            return await seen() == 0

        await eventually(forgotten, "a broker that is gone serves nothing")
