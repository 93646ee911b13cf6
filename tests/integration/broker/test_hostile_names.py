"""Names that try to leave the store's folder, at every request a broker or name server serves.

RocketMQ made folders outside its store for a topic named `../../../../x`. Here each such name is
put into every field and body that may hold a topic or a group, for every code, by an administrator;
afterwards no file, folder or table knows it, also not after a restart.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from engine.namesrv import NameServer, NameServerConfig
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.runtime import system_runtime
from tests.integration.broker.cluster import RawClient, broker_config, cluster
from tests.steps import outcome

STEPS = ("..", "../", "..\\", "....//", "%2e%2e/", "..%00/", "．．／", "..;/")
HOSTILE = (
    *STEPS,
    *(step * 6 + "hostile" for step in STEPS),
    *("/tmp/hostile", "\\\\host\\hostile", "C:\\hostile", "file:///tmp/hostile", "~/hostile"),
    *("a/hostile", "a/../hostile", "./hostile", ".", ".hostile", "hostile.", "a\\hostile"),
    *("%RETRY%../hostile", "%DLQ%/hostile", "%DLQ%../../hostile", "..%RETRY%hostile"),
    *(
        "hostile\0",
        "\0hostile",
        "hostile\n",
        "hostile\r\nx: y",
        "hos tile",
        " ",
        "\t",
        "\u202ehostile",
    ),
    *("hostile" * 40, "h" * 256, "hostilé", "ｈostile", "hostile😀", "'; DROP TABLE hostile; --"),
    *("$(hostile)", "`hostile`", "<b>hostile</b>", "hostile@group", "{hostile}", "*hostile*"),
)
ILLEGAL = re.compile(r"[^%|a-zA-Z0-9_@\[\]-]|\.\.|hostile")
KEPT_FILES = re.compile(r"[a-zA-Z0-9_%|.-]+")


def fields_with(topic: str, group: str) -> dict[str, object]:
    """Every field that any code reads, the names among them as given."""
    letters = dict(zip("abcdefghij", (group, topic, topic, 4, 0, 0, 7, 0, "", 0), strict=True))
    names = {
        **dict.fromkeys(("topic", "originTopic", "defaultTopic", "topicName"), topic),
        **dict.fromkeys(("consumerGroup", "producerGroup", "group", "groupName"), group),
        **dict.fromkeys(("srcGroup", "destGroup", "compareGroup", "filterGroups"), group),
        **dict.fromkeys(("clientID", "clientId", "brokerName", "clusterName", "cluster"), group),
    }
    numbers = dict.fromkeys(
        (
            "queueId",
            "offset",
            "commitOffset",
            "queueOffset",
            "sysFlag",
            "flag",
            "timestamp",
            "brokerId",
        ),
        0,
    ) | dict.fromkeys(("subVersion", "bornTimestamp", "tranStateTableOffset"), 1)
    more = {
        "maxMsgNums": 1,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "delayLevel": 0,
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
        "defaultTopicQueueNums": 1,
        "key": "k",
        "maxNum": 1,
        "isForce": "true",
        "beginTimestamp": 0,
        "endTimestamp": 1,
        "commitOrRollback": 8,
        "commitLogOffset": 0,
        "msgId": "m",
        "brokerAddr": "127.0.0.1:1",
        "haServerAddr": "127.0.0.1:2",
    }
    return letters | names | numbers | more


def body_with(topic: str, group: str) -> bytes:
    """Every member that any body has, the names among them as given."""
    subscription = {"topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription],
    }
    topic_config = {
        "topicName": topic,
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    body: dict[str, Any] = {
        "clientID": "c",
        "clientId": "c",
        "consumerGroup": group,
        "group": group,
        "groupName": group,
        "topic": topic,
        "consumerDataSet": [consumer],
        "producerDataSet": [{"groupName": group}],
        "mqSet": [{"topic": topic, "brokerName": "broker-a", "queueId": 0}],
        "subscriptionData": subscription,
        "topicConfigList": [topic_config],
        "groupConfigList": [{"groupName": group}],
        "topicConfigSerializeWrapper": {
            "topicConfigTable": {topic: topic_config},
            "dataVersion": {"stateVersion": 0, "timestamp": 1, "counter": 1},
        },
        "filterServerList": [],
    }
    return json.dumps(body).encode()


async def served_codes(client: RawClient) -> list[Code]:
    """The codes that are not answered as unknown."""
    unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    return [code for code in Code if (await client.ask(code)).code != unknown]


async def throw_all_at(client: RawClient) -> int:
    """Each name as topic and as group, at each code; return how many were accepted."""
    accepted = 0
    for code in await served_codes(client):
        await client.ask(code, body_with("fine", "fine"), **fields_with("fine", "fine"))
        for name in HOSTILE:
            for topic, group in ((name, "fine"), ("fine", name)):
                answer = await client.ask(
                    code, body_with(topic, group), **fields_with(topic, group)
                )
                accepted += answer.code == ResponseCode.SUCCESS
    return accepted


def hostile_traces(root: Path) -> list[str]:
    """Files, folders and entries of tables below `root` that have such a name."""
    found = [
        str(path)
        for path in root.rglob("*")
        if "hostile" in path.name or not KEPT_FILES.fullmatch(path.name)
    ]
    for path in (root / "store" / "config").glob("*.json"):
        text = path.read_text()
        found += [f"{path.name}: {hit.group()!r}" for hit in re.finditer("hostile|\\.\\./", text)]
    return found


async def test_no_hostile_name_gets_into_a_broker(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        assert (await client.send(topic="fine")).code == ResponseCode.SUCCESS
        await throw_all_at(client)
        topics = json.loads((await client.ask(Code.GET_ALL_TOPIC_CONFIG)).body)
        known = list(topics["topicConfigTable"])
        assert not [topic for topic in known if ILLEGAL.search(topic)], known
    async with cluster(broker_config(tmp_path)) as running:
        assert (await running.client().send(topic="fine")).code == ResponseCode.SUCCESS
    assert not hostile_traces(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


async def test_no_hostile_name_gets_into_a_name_server(tmp_path: Path) -> None:
    config = NameServerConfig(port=0, kv_path=str(tmp_path / "kv" / "kvConfig.json"))
    server = NameServer(system_runtime(), config)
    client = RawClient(f"127.0.0.1:{await server.start()}")
    assert await throw_all_at(client) > 0
    registered = body_with("fine", "fine"), fields_with("fine", "fine")
    await client.ask(Code.REGISTER_BROKER, registered[0], **registered[1])
    assert outcome(server.routes.topics()) == ["fine"], "a legal one is taken"
    for name in HOSTILE:
        fields = fields_with(name, "fine")
        await client.ask(Code.REGISTER_BROKER, body_with(name, "fine"), **fields)
        await client.ask(Code.REGISTER_BROKER, body_with("fine", name), **fields_with(name, name))
    known = outcome(server.routes.topics())
    assert not [topic for topic in known if ILLEGAL.search(topic)], known
    brokers = server.routes.cluster_info().broker_addr_table
    assert not [name for name in brokers if re.search(r"[\s/\\\0]", name)], brokers
    await client.close()
    await server.stop()
    assert not hostile_traces(tmp_path)
