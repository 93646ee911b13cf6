"""Brokers that hang, lie, answer late or die: each costs its own answers, and the one beside it is
watched as ever.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.foundation.limits import LOOSE_KEYS_MAX
from engine.protocol.bodies import DataVersion, TopicConfig, TopicConfigTable, TopicOffset
from engine.protocol.codes import RequestCode as Code
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer
from engine.runtime import SystemDisk
from tests.integration.broker.cluster import eventually
from tests.integration.broker.spooled import into_the_lake
from tests.integration.observer.played_cluster import (
    BORN_MS,
    PlayedBroker,
    PlayedCluster,
    observing,
    ok,
    played_cluster,
)


async def looked_at(cluster: PlayedCluster, broker: PlayedBroker) -> None:
    """Wait until an answered look has been written."""

    async def is_reported() -> bool:
        return bool(cluster.reported(broker, "group_watermarks"))

    await eventually(is_reported, f"a look at {broker.name}")


async def never(_peer: Peer, _request: RemotingCommand) -> Any:
    await asyncio.Event().wait()


async def test_the_horizon_stays_at_the_last_answered_look_when_the_observer_ends(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("broker-a")
    async with played_cluster(tmp_path, broker) as cluster:
        async with observing(cluster, request_timeout_ms=200):
            await looked_at(cluster, broker)
            broker.answers[Code.GET_BROKER_RUNTIME_INFO] = never
            asked = broker.asked[Code.GET_BROKER_RUNTIME_INFO]

            async def is_silent() -> bool:
                return broker.asked[Code.GET_BROKER_RUNTIME_INFO] > asked + 1

            await eventually(is_silent, "looks are not answered")
            horizon_us = cluster.horizon_us(broker)
        assert cluster.horizon_us(broker) == horizon_us


def late_by(seconds: float, usual: Any) -> Any:
    async def answer(peer: Peer, request: RemotingCommand) -> Any:
        await asyncio.sleep(seconds)  # It is slow.
        return usual(peer, request)

    return answer


def saying(body: bytes) -> Any:
    return lambda _peer, request: ok(request, body)


def warnings(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [record.message for record in caplog.records if words in record.message]


async def is_logged_once(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async def is_reported() -> bool:
        return bool(warnings(caplog, words))

    await eventually(is_reported, f"it is logged: {words}")
    assert len(warnings(caplog, words)) == 1


async def is_followed(cluster: PlayedCluster, broker: PlayedBroker, offset: int) -> None:
    """Wait until it was reported that the group of this broker has come so far."""
    broker.groups["g"] = {("orders", 0): offset}

    async def is_reported() -> bool:
        reported = cluster.reported(broker, "group_watermarks")
        return any(row["committed"] == offset for row in reported)

    await eventually(is_reported, f"offset {offset} of {broker.name}", within_s=30)


ALL = (
    *(Code.GET_BROKER_RUNTIME_INFO, Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_TOPIC_CONFIG),
    *(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_TOPIC_STATS_INFO, Code.GET_BROKER_CONFIG),
    *(Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_CONSUMER_RUNNING_INFO, Code.PULL_MESSAGE),
)
NEEDED = (Code.GET_BROKER_RUNTIME_INFO, Code.GET_BROKER_CONSUME_STATS)
"""Without these there is no look."""


@pytest.mark.parametrize("code", ALL)
async def test_a_broker_that_hangs_holds_up_nobody(
    tmp_path: Path, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = PlayedBroker("bad"), PlayedBroker("good")
    bad.members = {"g": {"client": {}}}
    bad.answers[code] = never
    async with (
        played_cluster(tmp_path, bad, good) as cluster,
        observing(cluster, request_timeout_ms=100),
    ):
        for offset in (11, 12, 13):
            await is_followed(cluster, good, offset)
        if code not in (*NEEDED, Code.GET_TOPIC_STATS_INFO):
            for offset in (11, 12):
                await is_followed(cluster, bad, offset)
            await is_logged_once(caplog, "bad, asked for")
        elif code in NEEDED:
            await is_logged_once(caplog, "bad does not answer")
            assert cluster.reported(bad, "lifecycle") == []


NONSENSE = (
    *(b"", b"null", b"[]", b"{}", b"0", b'"a"', b"\xff\xfe", b"{" * 5000, b'{"table":[]}'),
    *(b'{"offsetTable":{"a":1}}', b'{"offsetTable":{{"topic":1}:[]}}', b'{"table":{"a":[]}}'),
    *(b'{"consumeStatsList":{}}', b'{"consumeStatsList":[[]]}', b'{"consumeStatsList":[{"g":1}]}'),
    b'{"consumeStatsList":[{"g":[{"offsetTable":{1:{}}}]}]}',
    b'{"subscriptionGroupTable":{{"a":1}:{},"b":{}}}',
    b'{"subscriptionGroupTable":{"b":[]}}',
    b'{"topicConfigTable":{"t":{"perm":"x"}},"dataVersion":{}}',
    b'{"connectionSet":[{"clientId":1}],"messageModel":"ODD"}',
    b'{"mqTable":{{"brokerName":"bad","topic":"orders","queueId":0}:{"commitOffset":"x"}}}',
)


@pytest.mark.parametrize("code", ALL)
async def test_nonsense_costs_its_own_answer(
    tmp_path: Path, code: Code, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = PlayedBroker("bad"), PlayedBroker("good")
    bad.members = {"g": {"client": {}}}
    async with played_cluster(tmp_path, bad, good) as cluster, observing(cluster, period_ms=20):
        for offset, body in enumerate(NONSENSE, 1):
            bad.answers[code] = saying(body)
            asked = bad.asked[code]

            async def is_read(asked: int = asked) -> bool:
                return bad.asked[code] > asked

            bad.queues["orders", 0].max_offset += 1
            await eventually(is_read, f"{body[:80]!r} was read")
            await is_followed(cluster, good, offset)
        del bad.answers[code]
        await is_followed(cluster, bad, 19)
    lines = warnings(caplog, "bad, asked for")
    assert len(lines) == len(set(lines)) <= 3
    assert into_the_lake(SystemDisk(), str(tmp_path / "c1" / "bad" / "observer" / "spool"))


HUGE = 2**63 - 1


async def test_figures_that_cannot_be_are_left_out_and_what_is_reported_fits_the_lake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = PlayedBroker("broker-a")
    broker.queues |= {
        ("orders", 1): TopicOffset(-5, 20, 0),
        ("orders", 2): TopicOffset(30, 20, 0),
        ("orders", 3): TopicOffset(0, HUGE, HUGE),
        ("orders", HUGE): TopicOffset(0, 20, 0),
        ("orders", -1): TopicOffset(0, 20, 0),
        ("odd name\n", 0): TopicOffset(0, 20, 0),
        ("t" * 5000, 0): TopicOffset(0, 20, 0),
    }
    everywhere = dict.fromkeys(broker.queues, 5)
    broker.groups = {"g": everywhere, "odd\ngroup": everywhere, "g" * 5000: everywhere}
    broker.groups["far"] = {("orders", 0): HUGE}
    broker.members["g"] = {
        "good": {("orders", 0): {"commitOffset": 5, "cachedMsgCount": 1}},
        "bad": {("orders", 0): {"cachedMsgCount": HUGE, "cachedMsgSizeInMiB": HUGE}},
        "odd\nclient": {},
    }
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await is_followed(cluster, broker, 6)
        await looked_at(cluster, broker)
        rows_of = {
            table: cluster.reported(broker, table)
            for table in ("queue_watermarks", "group_watermarks", "client_windows", "lifecycle")
        }
    places = {(row["topic"], row["queue_id"]) for row in rows_of["queue_watermarks"]}
    assert places == {("orders", 0)}
    assert {row["group"] for row in rows_of["group_watermarks"]} == {"g"}
    assert {row["client_id"] for row in rows_of["client_windows"]} == {"good"}
    assert "SPOOL_LOSS" not in {row["kind"] for row in rows_of["lifecycle"]}
    assert into_the_lake(SystemDisk(), str(tmp_path / "c1" / "broker-a" / "observer" / "spool"))
    said = warnings(caplog, "are left out")
    assert len(said) == len(set(said)) == 6
    assert "\n" not in "".join(said)


async def test_more_than_may_be_is_logged_and_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = PlayedBroker("bad"), PlayedBroker("good")
    key = b'{"brokerName":"bad","queueId":%d,"topic":"orders"}:{}'
    rows = b",".join(key % number for number in range(LOOSE_KEYS_MAX + 1))
    async with played_cluster(tmp_path, bad, good) as cluster, observing(cluster):
        bad.answers[Code.GET_BROKER_CONSUME_STATS] = saying(
            b'{"consumeStatsList":[{"g":[{"offsetTable":{' + rows + b"}}]}]}"
        )
        await is_logged_once(caplog, "bad does not answer")
        for offset in (11, 12):
            await is_followed(cluster, good, offset)
    (line,) = warnings(caplog, "bad does not answer")
    assert "how far all groups are" in line


async def test_pages_of_topics_without_end_are_not_read_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = PlayedBroker("broker-a")

    def page(_peer: Peer, request: RemotingCommand) -> RemotingCommand:
        first = int(request.fields["topicSeq"])
        names = [f"t{number}" for number in range(first, first + 20_000)]
        table = {name: TopicConfig(name) for name in names}
        body = TopicConfigTable(DataVersion(), table).encode()
        return ok(request, body, totalTopicNum=str(2**31 - 1))

    broker.answers[Code.GET_ALL_TOPIC_CONFIG] = page
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await looked_at(cluster, broker)
        await is_followed(cluster, broker, 11)
    lines = warnings(caplog, "the list of topics")
    assert lines
    assert all("has more" in one or "took too long" in one for one in lines)


async def test_a_broker_that_dies_half_way_is_silent_and_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = PlayedBroker("bad"), PlayedBroker("good")
    async with played_cluster(tmp_path, bad, good) as cluster, observing(cluster):
        await looked_at(cluster, bad)

        dying = list[asyncio.Task[None]]()

        async def die(_peer: Peer, _request: RemotingCommand) -> Any:
            dying.append(asyncio.create_task(bad.stop()))
            await asyncio.Event().wait()

        bad.answers[Code.GET_TOPIC_STATS_INFO] = die
        await is_logged_once(caplog, "bad does not answer")
        await is_followed(cluster, good, 11)
        assert len(warnings(caplog, "bad does not answer")) == 1
        await asyncio.gather(*dying)


async def test_late_answers_count_when_they_come_within_the_time_of_a_question(
    tmp_path: Path,
) -> None:
    slow, good = PlayedBroker("slow"), PlayedBroker("good")
    slow.answers = {code: late_by(0.1, slow.usual[code]) for code in ALL}
    async with played_cluster(tmp_path, slow, good) as cluster, observing(cluster):
        for offset in (11, 12, 13):
            await is_followed(cluster, slow, offset)
            await is_followed(cluster, good, offset)


async def test_a_broker_that_comes_back_with_an_old_offset_table_is_reported_to_have_fallen(
    tmp_path: Path,
) -> None:
    """A restored backup: its group has gone from 15 to 9 while nobody could look."""
    broker = PlayedBroker("broker-a")
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):
        await is_followed(cluster, broker, 15)

        def boot(peer: Peer, request: RemotingCommand) -> Any:
            broker.booted_ms, broker.groups["g"] = BORN_MS + 60_000, {("orders", 0): 9}
            return broker.usual[Code.GET_BROKER_RUNTIME_INFO](peer, request)

        broker.answers[Code.GET_BROKER_RUNTIME_INFO] = boot

        async def is_reported() -> bool:
            return bool(cluster.reported(broker, "consume_offsets"))

        await eventually(is_reported, "the fall")
        (fall,) = cluster.reported(broker, "consume_offsets")
    assert (fall["path"], fall["previous_offset"], fall["offset"]) == ("RESTORE", 15, 9)
