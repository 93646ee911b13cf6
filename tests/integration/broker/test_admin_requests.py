"""Questions and orders of tools, over TCP: queue entries, time spans, clients, cleaning, replies.

Rows C2, C5 and B1, as RocketMQ's tools see them.
"""

from __future__ import annotations

import json
from pathlib import Path

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message_record import decode_record
from engine.remoting import Peer, RpcClient
from engine.runtime import system_runtime
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    RawClient,
    bodies,
    broker_config,
    cluster,
    java_code,
    messages,
)

REPLIES = "DefaultCluster_REPLY_TOPIC"


async def be_producer(client: RawClient, group: str) -> None:
    data = {"clientID": client.client_id, "producerDataSet": [{"groupName": group}]}
    await client.ask(RequestCode.HEART_BEAT, json.dumps(data).encode())


async def test_entries_of_a_queue_are_returned_up_to_its_ends(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for tag in ("a", "b", "c"):
            await client.send(tag.encode(), TAGS=tag)
        asked = {"topic": TOPIC, "queueId": 0, "index": 1}
        answer = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, count=9, **asked)
        decoded = json.loads(answer.body)
        assert (decoded["minQueueIndex"], decoded["maxQueueIndex"]) == (0, 3)
        entries = decoded["queueData"]
        assert [entry["tagsCode"] for entry in entries] == [java_code("b"), java_code("c")]
        assert entries[1]["physicOffset"] == (entries[0]["physicOffset"] + entries[0]["physicSize"])
        one = await client.ask(RequestCode.QUERY_CONSUME_QUEUE, count=1, **asked)
        assert len(json.loads(one.body)["queueData"]) == 1
        await client.heartbeat(expression="b")
        filtered = await client.ask(
            RequestCode.QUERY_CONSUME_QUEUE, count=1, consumerGroup=GROUP, **asked
        )
        assert json.loads(filtered.body)["subscriptionData"]["subString"] == "b"
        nobody = await client.ask(
            RequestCode.QUERY_CONSUME_QUEUE, count=1, consumerGroup="nobody", **asked
        )
        assert json.loads(nobody.body)["filterData"] == f"nobody@{TOPIC} is not online!"
        missing = await client.ask(
            RequestCode.QUERY_CONSUME_QUEUE, topic="none", queueId=7, index=0, count=1
        )
        assert (missing.code, missing.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "7@none is not exist!",
        )


async def test_time_spans_say_where_a_group_is_and_since_when_messages_wait(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"first")
        await client.send(b"second")
        await client.commit(1)
        answer = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic=TOPIC, group=GROUP)
        spans = {
            span["messageQueue"]["queueId"]: span
            for span in json.loads(answer.body)["consumeTimeSpanSet"]
        }
        behind = spans[0]
        assert behind["minTimeStamp"] == behind["consumeTimeStamp"] <= behind["maxTimeStamp"]
        assert 0 <= behind["delayTime"] < 60_000
        assert spans[1]["minTimeStamp"] == spans[1]["maxTimeStamp"] == -1
        assert spans[1]["delayTime"] == 0
        await client.commit(2)
        answer = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic=TOPIC, group=GROUP)
        (done,) = [
            span
            for span in json.loads(answer.body)["consumeTimeSpanSet"]
            if span["messageQueue"]["queueId"] == 0
        ]
        assert (done["consumeTimeStamp"], done["delayTime"]) == (behind["maxTimeStamp"], 0)
        unknown = await client.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="none", group=GROUP)
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


async def test_clients_are_returned_by_group_and_by_topic(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        await be_producer(client, "pg")
        all_producers = await client.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        (producer,) = json.loads(all_producers.body)["data"]["pg"]
        assert (producer["clientId"], producer["language"]) == ("c1", "PYTHON")
        assert producer["remoteIP"].startswith("/127.0.0.1:")
        await client.send()
        await client.heartbeat(expression="a")
        asked = {"group": GROUP, "topic": TOPIC}
        answer = await client.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, **asked)
        assert json.loads(answer.body)["subscriptionData"]["subString"] == "a"
        other = await client.ask(
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="nobody", topic=TOPIC
        )
        assert json.loads(other.body)["subscriptionData"] is None
        await client.pull(0)
        await client.commit(1)
        topics = await client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group=GROUP)
        assert json.loads(topics.body)["topicList"] == [TOPIC]


async def test_a_consumer_is_given_a_stored_message_to_consume_now(tmp_path: Path) -> None:
    given: list[RemotingCommand] = []

    def consume(_peer: Peer, request: RemotingCommand) -> RemotingCommand:
        given.append(request)
        return request.respond(ResponseCode.SUCCESS, body=b'{"consumeResult":"CR_SUCCESS"}')

    async with cluster(broker_config(tmp_path)) as running:
        tool, member = running.client("tool"), running.client("c1")
        member.rpc = RpcClient(system_runtime(), {RequestCode.CONSUME_MESSAGE_DIRECTLY: consume})
        sent = await tool.send(b"this one")
        await member.heartbeat()
        asked = {"consumerGroup": GROUP, "topic": TOPIC, "msgId": sent.fields["msgId"]}
        answer = await tool.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, clientId="c1", **asked)
        assert json.loads(answer.body)["consumeResult"] == "CR_SUCCESS"
        assert decode_record(given[0].body).body == b"this one"
        assert given[0].fields["brokerName"] == "broker-a"
        nobody = await tool.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, clientId="c9", **asked)
        assert str(nobody.remark) == f"The Consumer <{GROUP}> <c9> not online"
        wrong = await tool.ask(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            clientId="c1",
            **asked | {"msgId": "F" * 32},
        )
        assert wrong.code == ResponseCode.SYSTEM_ERROR
        no_id = await tool.ask(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, clientId="c1", **asked | {"msgId": "x"}
        )
        assert no_id.code == ResponseCode.INVALID_PARAMETER


async def test_topics_and_groups_are_made_by_lists_or_not_at_all(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        topics = [{"topicName": name, "readQueueNums": 2, "writeQueueNums": 2} for name in "ab"]
        body = json.dumps({"topicConfigList": topics}).encode()
        made = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
        assert made.code == ResponseCode.SUCCESS
        shown = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic="b")
        assert json.loads(shown.body)["writeQueueNums"] == 2
        topics = [{"topicName": "fine"}, {"topicName": "TBW102"}]
        body = json.dumps({"topicConfigList": topics}).encode()
        refused = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        missing = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic="fine")
        assert missing.code == ResponseCode.TOPIC_NOT_EXIST

        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        groups = {"groupConfigList": [{"groupName": "g1", "retryMaxTimes": 2}]}
        assert (await client.ask(code, json.dumps(groups).encode())).code == 0
        one = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="g1")
        assert json.loads(one.body)["retryMaxTimes"] == 2
        groups = {"groupConfigList": [{"groupName": "g2"}, {"groupName": "../g3"}]}
        assert (await client.ask(code, json.dumps(groups).encode())).code == 29
        all_groups = await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert "g2" not in json.loads(all_groups.body)["subscriptionGroupTable"]
        for body in (b"[]", b"{}", b"nonsense"):
            assert (await client.ask(code, body)).code == ResponseCode.INVALID_PARAMETER


async def test_numbers_that_would_end_a_groups_heartbeats_are_refused(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for key, value in (
            ("retryQueueNums", 4097),
            ("retryQueueNums", -1),
            ("retryMaxTimes", 2**31),
            ("retryMaxTimes", -2),
            ("consumeTimeoutMinute", -1),
        ):
            body = json.dumps({"groupName": GROUP, key: value}).encode()
            refused = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
            assert refused.code == ResponseCode.INVALID_PARAMETER
            assert f"group {GROUP}: {key}={value} is not in" in str(refused.remark)
        body = json.dumps({"groupName": GROUP, "retryQueueNums": 4096}).encode()
        made = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
        assert made.code == (await client.heartbeat()).code == ResponseCode.SUCCESS


async def test_groups_are_pulled_for_and_cannot_be_made_to_pop(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()

        async def set_mode(topic: str, mode: str) -> RemotingCommand:
            wish = {"topic": topic, "consumerGroup": GROUP, "mode": mode}
            return await client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, json.dumps(wish).encode())

        assert (await set_mode(TOPIC, "PULL")).code == ResponseCode.SUCCESS
        popped = await set_mode(TOPIC, "POP")
        assert popped.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "set PULL" in str(popped.remark)
        retry = await set_mode(f"%RETRY%{GROUP}", "PULL")
        assert retry.code == ResponseCode.NO_PERMISSION


async def test_cleaning_by_hand_keeps_what_is_in_use_and_where_queues_stand(tmp_path: Path) -> None:
    config = broker_config(tmp_path)
    async with cluster(config) as running:
        client = running.client()
        await client.send(b"kept")
        await client.send(b"orphan", topic="gone")
        topics = running.broker.state.topics
        topics.delete("gone")  # Its queue stays, as after a crash between the two.
        for code in (
            RequestCode.CLEAN_UNUSED_TOPIC,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
            RequestCode.DELETE_EXPIRED_COMMITLOG,
        ):
            assert (await client.ask(code)).code == ResponseCode.SUCCESS
        assert bodies(await client.pull(0)) == [b"kept"]
        stored = {topic for topic, _ in running.broker.state.store.queues()}
        assert stored == {TOPIC}
    async with cluster(config) as running:
        assert bodies(await running.client().pull(0)) == [b"kept"]


async def test_a_master_without_slaves_says_so(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send()
        status = json.loads((await client.ask(RequestCode.GET_BROKER_HA_STATUS)).body)
        assert (status["master"], status["haConnectionInfo"]) == (True, [])
        assert status["masterCommitLogMaxOffset"] > 0


async def test_a_reply_reaches_whoever_asked_and_is_stored(tmp_path: Path) -> None:
    replies: list[RemotingCommand] = []

    def take(_peer: Peer, request: RemotingCommand) -> RemotingCommand:
        replies.append(request)
        return request.respond(ResponseCode.SUCCESS)

    async with cluster(broker_config(tmp_path)) as running:
        asker, replier = running.client("asker"), running.client("replier")
        asker.rpc = RpcClient(system_runtime(), {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: take})
        await be_producer(asker, "askers")
        properties = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "7"}
        answer = await replier.send(
            b"the reply", topic=REPLIES, code=RequestCode.SEND_REPLY_MESSAGE, **properties
        )
        assert (answer.code, answer.fields["queueOffset"]) == (ResponseCode.SUCCESS, "0")
        (pushed,) = replies
        assert (bytes(pushed.body), pushed.fields["topic"]) == (b"the reply", REPLIES)
        assert "CORRELATION_ID\x017\x02" in pushed.fields["properties"]
        assert "PUSH_REPLY_TIME\x01" in pushed.fields["properties"]
        nobody = await replier.send(
            b"too late",
            topic=REPLIES,
            code=RequestCode.SEND_REPLY_MESSAGE,
            REPLY_TO_CLIENT="left",
        )
        assert nobody.code == ResponseCode.SYSTEM_ERROR
        assert nobody.remark == "push reply message fail, channel of <left> not found."
        anonymous = await replier.send(
            b"to whom?", topic=REPLIES, code=RequestCode.SEND_REPLY_MESSAGE
        )
        assert "REPLY_TO_CLIENT" in str(anonymous.remark)
        stored = bodies(await replier.pull(0, topic=REPLIES))
        assert stored == [b"the reply", b"too late", b"to whom?"]
        unknown = await replier.send(
            b"?", topic="none", code=RequestCode.SEND_REPLY_MESSAGE, REPLY_TO_CLIENT="asker"
        )
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_reply_is_stored_by_the_rules_of_any_send(tmp_path: Path) -> None:
    """Bits of sysFlag that are the broker's own would hide it or mislead tag filters."""
    async with cluster(broker_config(tmp_path, broker_permission=6)) as running:
        replier = running.client("replier")
        await replier.send(
            b"a reply",
            topic=REPLIES,
            code=RequestCode.SEND_REPLY_MESSAGE,
            sysFlag=4 | 8 | 2,
            REPLY_TO_CLIENT="left",
        )
        (message,) = messages(await replier.pull(0, topic=REPLIES))
        assert (message.body, message.sys_flag) == (b"a reply", 0)
    async with cluster(broker_config(tmp_path, broker_permission=4)) as running:
        replier = running.client("replier")
        refused = await replier.send(
            b"not taken",
            topic=REPLIES,
            code=RequestCode.SEND_REPLY_MESSAGE,
            REPLY_TO_CLIENT="left",
        )
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "brokerPermission 4 has no write bit" in str(refused.remark)
        assert running.broker.state.store.max_offset(REPLIES, 0) == 1, "nothing was stored"
