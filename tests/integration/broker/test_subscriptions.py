"""Rows B1, B2 and B6: what heartbeats make of a group, and what the broker says when members of one
group subscribe differently.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from tests.integration.broker.cluster import GROUP, TOPIC, RawClient, bodies, broker_config, cluster
from tests.integration.broker.spooled import picked, spooled

PLAIN = {"sysFlag": 0, "subVersion": 1}
"""A pull that leaves the subscription to the group's, as push consumers do."""


async def create_group(client: RawClient, **settings: object) -> None:
    body = json.dumps({"groupName": GROUP} | settings).encode()
    answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def beat(
    client: RawClient, fingerprint: int, *, topic: str = TOPIC, without_sub: bool = False
) -> RemotingCommand:
    """A heartbeat of version 2: with a fingerprint, and with or without the subscription."""
    subscription = {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
    data = {
        "clientID": client.client_id,
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": GROUP,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [] if without_sub else [subscription],
                "unitMode": False,
            }
        ],
        "heartbeatFingerprint": fingerprint,
        "withoutSub": without_sub,
    }
    return await client.ask(RequestCode.HEART_BEAT, json.dumps(data).encode())


def says(answer: RemotingCommand) -> tuple[str | None, str | None]:
    assert answer.code == ResponseCode.SUCCESS
    return answer.fields.get("IS_SUPPORT_HEART_BEAT_V2"), answer.fields.get("IS_SUB_CHANGE")


async def test_a_heartbeat_of_version_2_may_leave_an_unchanged_subscription_out(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        await client.send(b"one")
        assert says(await client.heartbeat()) == ("true", "true"), "version 1 always sends all"
        assert says(await beat(client, 7)) == ("true", "true"), "another fingerprint"
        assert says(await beat(client, 7, without_sub=True)) == ("true", "false")
        assert bodies(await client.pull(0, **PLAIN)) == [b"one"], "the subscription is kept"
        other = running.client("c2")
        assert says(await beat(other, 8)) == ("true", "true")
        assert says(await beat(client, 7, without_sub=True)) == ("true", "true"), (
            "another member's fingerprint: send all, as RocketMQ asks for"
        )


async def test_a_restarted_broker_asks_for_the_subscription_it_does_not_know(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path)
    async with cluster(config) as running:
        client = running.client("c1")
        await client.send(b"one")
        await beat(client, 7)
    async with cluster(config) as running:
        client = running.client("c1")
        assert says(await beat(client, 7, without_sub=True)) == ("true", "true")
        await beat(client, 7)
        assert says(await beat(client, 7, without_sub=True)) == ("true", "false")
        assert bodies(await client.pull(0, **PLAIN)) == [b"one"]


async def test_an_unregistered_group_is_refused_when_groups_are_not_made_by_themselves(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, auto_create_subscription_group=False)
    async with cluster(config) as running:
        client = running.client("c1")
        await client.send()
        assert (await client.heartbeat()).code == ResponseCode.SUCCESS, "as RocketMQ answers"
        assert running.broker.state.groups.of(GROUP) is None
        assert running.broker.state.topics.find(f"%RETRY%{GROUP}") is None
        for refused in (await client.pull(0), await client.commit(0)):
            assert refused.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        await create_group(client, retryQueueNums=3)
        await client.heartbeat()
        assert running.broker.state.groups.of(GROUP) is not None
        retry = running.broker.state.topics.find(f"%RETRY%{GROUP}")
        assert retry is not None
        assert retry.read_queue_nums == 3
        assert len(bodies(await client.pull(0))) == 1
    async with cluster(config) as running:
        assert (await running.client("c1").pull(0)).code == ResponseCode.SUCCESS, "it is kept"


@pytest.mark.parametrize("notify", [True, False])
async def test_members_are_notified_unless_the_groups_settings_say_not(
    tmp_path: Path, notify: bool
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        first, second = running.client("c1"), running.client("c2")
        await create_group(first, notifyConsumerIdsChangedEnable=notify)
        await first.heartbeat()
        await second.heartbeat()
        await second.heartbeat(topics=(TOPIC, "another"))
        await second.ask(RequestCode.UNREGISTER_CLIENT, clientID="c2", consumerGroup=GROUP)
        await first.heartbeat(topics=(TOPIC, "another"))  # Answered after what was pushed.
        expected = 4 if notify else 0  # Two arrivals, one new topic, one farewell.
        assert len(first.pushed) == expected


async def test_broadcasting_is_refused_to_a_group_that_may_not(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        await create_group(client, consumeBroadcastEnable=False)
        await client.send()
        await client.heartbeat(model="BROADCASTING")
        refused = await client.pull(0)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "broadcast" in (refused.remark or "")


def conflicts(folder: Path) -> list[dict[str, Any]]:
    rows = spooled(folder / "store", "rebalance_events")
    return [row for row in rows if row["kind"] == "SUBSCRIPTION_CONFLICT"]


async def test_members_that_read_different_topics_are_named_with_the_fix(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The seed's experiment: c1 -> A, c2 -> B. Each heartbeat takes the other's topic away."""
    async with cluster(broker_config(tmp_path)) as running:
        first, second = running.client("c1"), running.client("c2")
        await first.send(topic="A")
        await first.send(topic="B")
        for _ in range(3):
            await first.heartbeat(topics=("A",))
            await second.heartbeat(topics=("B",))
            lost = await first.pull(0, topic="A", **PLAIN)
            assert lost.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
            assert len(bodies(await second.pull(0, topic="B", **PLAIN))) == 1
        await second.heartbeat(topics=("A",))
    reported, over = conflicts(tmp_path)
    assert picked(reported, "client_id", "before", "after") == (
        "c2",
        [],
        ["c1 reads A:*", "c2 reads B:*"],
    )
    assert reported["reason"].startswith("c1 reads A:*; c2 reads B:*; the broker keeps")
    assert reported["reason"].endswith(
        "are not read, about 2 of 4 of A and about 2 of 4 of B; "
        "fix: subscribe every member to A:* and B:*, or put c2 into a group of its own"
    )
    assert over["after"] == []
    assert sum("c1 reads A:*; c2 reads B:*" in line for line in caplog.messages) == 1, "logged once"


async def test_a_member_that_subscribes_to_nothing_takes_the_others_topics_away_and_is_named(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        first, second = running.client("c1"), running.client("c2")
        await first.heartbeat(topics=("A",))
        await second.heartbeat(topics=())
        refused = await first.pull(0, topic="A", **PLAIN)
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        await first.send(topic="A")
        refused = await first.pull(0, topic="A", **PLAIN)
        assert refused.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
    reported, _ = conflicts(tmp_path)
    assert reported["after"] == ["c1 reads A:*", "c2 reads nothing"]
    assert reported["reason"].endswith(
        "subscribe every member to A:*, or put c2 into a group of its own"
    )


async def test_a_connection_is_one_client_whatever_it_calls_itself(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client, other = running.client("c1"), running.client("d")
        await other.heartbeat()
        await client.heartbeat()
        client.client_id = "c2"
        await client.heartbeat()
        listed = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=GROUP)
        assert json.loads(listed.body) == {"consumerIdList": ["c2", "d"]}
    rows = spooled(tmp_path / "store", "rebalance_events")
    left = [row for row in rows if row["kind"] == "LEFT" and row["client_id"] == "c1"]
    assert [row["reason"] for row in left] == ["CLIENT_ID_CHANGED"]


async def test_members_with_different_tags_are_named_too(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        first, second, third = (running.client(name) for name in ("c1", "c2", "c3"))
        await first.heartbeat(expression="Tag:A")
        await second.heartbeat(expression="TagB || TagC", version=2)
        await third.heartbeat(expression="TagC||TagB", version=3)
        await first.ask(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup=GROUP)
    two, three, over = conflicts(tmp_path)
    assert len(two["after"]) == 2
    assert len(three["after"]) == 3
    assert three["reason"].endswith(
        "fix: give every member the same expression, or put c1 into a group of its own"
    )
    assert picked(over, "client_id", "after") == ("c1", [])
