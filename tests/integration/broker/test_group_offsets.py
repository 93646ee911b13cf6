"""Rows A4, A5, A6: offsets that tools move or compare. A broker over TCP, restarted where the file
matters; the members are our own consumers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.admin import Admin
from engine.client import PushConsumer
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.fastjson import loads
from engine.runtime import system_runtime
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    RawClient,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.spooled import picked, spooled
from tests.integration.client.cluster_users import Seen, client_config, consumer_config, consuming
from tests.integration.client.cluster_users import eventually as until

OTHER = "auditors"
ROCKETMQ_FILE = """{
\t"dataVersion":{
\t\t"counter":0,
\t\t"stateVersion":0,
\t\t"timestamp":1795324301351
\t},
\t"groupTopicMap":{"%s":["%s"]},
\t"offsetTable":{
\t\t"%s@%s":{
\t\t\t0:-5,1:1
\t\t},"%%RETRY%%%s@%s":{0:2}
\t}
}"""
"""As a RocketMQ 5.5 wrote it after a pull had brought -5, for a group on a topic."""


async def reset(client: RawClient, **header: object) -> RemotingCommand:
    defaults: dict[str, object] = {"topic": TOPIC, "group": GROUP, "timestamp": 0, "isForce": True}
    return await client.ask(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, **(defaults | {"queueId": -1} | header)
    )


async def send(client: RawClient, count: int, queue_id: int = 0) -> None:
    for number in range(count):
        answer = await client.send(f"m{number}".encode(), queue_id=queue_id)
        assert answer.code == ResponseCode.SUCCESS


def moved_to(answer: RemotingCommand) -> dict[int, int]:
    """Queue id → new offset, of an answered reset."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    table: dict[Any, int] = loads(answer.body)["offsetTable"]
    return {dict(key)["queueId"]: offset for key, offset in table.items()}


async def test_a_reset_survives_a_restart_as_the_offset_to_begin_at(tmp_path: Path) -> None:
    config = broker_config(tmp_path)
    async with cluster(config) as running:
        client = running.client()
        await send(client, 5)
        await client.commit(5)
        assert moved_to(await reset(client, queueId=0, offset=2)) == {0: 2}
    async with cluster(config) as running:
        client = running.client()
        assert (await client.committed()).fields["offset"] == "2"
        assert (await client.commit(3)).code == ResponseCode.SUCCESS, "nothing waits any more"


@pytest.mark.parametrize(
    ("header", "code", "complaint"),
    [
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "nowhere"),
        ({"group": "typo"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group typo does not exist"),
        ({"queueId": 9}, ResponseCode.INVALID_PARAMETER, "4 read queues"),
        ({"queueId": 0, "offset": 6}, ResponseCode.SYSTEM_ERROR, "not in consume queue range"),
    ],
)
async def test_a_reset_that_cannot_be_is_refused_and_moves_nothing(
    tmp_path: Path, header: dict[str, object], code: ResponseCode, complaint: str
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await send(client, 5)
        await client.commit(4)
        refused = await reset(client, **header)
        assert (refused.code, complaint in (refused.remark or "")) == (code, True)
        assert (await client.committed()).fields["offset"] == "4"


async def test_without_force_a_reset_goes_back_only(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for queue_id in (0, 1):
            await send(client, 4, queue_id)
        await client.commit(3, queue_id=0)
        await client.commit(4, queue_id=1)
        back = await reset(client, timestamp=0, isForce=False)
        assert moved_to(back)[0] == 0
        assert moved_to(await reset(client, timestamp=-1, isForce=False, queueId=1)) == {}
        assert moved_to(await reset(client, timestamp=-1, queueId=1)) == {1: 4}


async def test_a_cloned_group_begins_where_the_other_one_is_also_after_a_restart(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path)
    async with cluster(config) as running:
        client = running.client()
        for queue_id in (0, 1):
            await send(client, 4, queue_id)
            await client.commit(2 + queue_id, queue_id=queue_id)
        await client.commit(1, topic=TOPIC, group=OTHER)
        header = {"srcGroup": GROUP, "destGroup": OTHER, "offline": False}
        cloned = await client.ask(RequestCode.CLONE_GROUP_OFFSET, **header)
        assert cloned.code == ResponseCode.SUCCESS
    async with cluster(config) as running:
        client = running.client()
        for queue_id in (0, 1):
            answer = await client.committed(group=OTHER, queue_id=queue_id)
            assert answer.fields["offset"] == str(2 + queue_id)
    rows = spooled(tmp_path / "store", "consume_offsets")
    reported = [picked(row, "queue_id", "offset", "previous_offset") for row in rows
            if (row["group"], row["path"]) == (OTHER, "RESET")]  # fmt: skip
    assert reported == [(0, 2, 1), (1, 3, None)]


async def test_an_online_group_is_cloned_only_for_what_it_reads(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await send(client, 2)
        await client.commit(2)
        await client.heartbeat(topics=("another",))
        header = {"srcGroup": GROUP, "destGroup": OTHER, "topic": TOPIC}
        await client.ask(RequestCode.CLONE_GROUP_OFFSET, **header, offline=False)
        assert (await client.committed(group=OTHER)).code == ResponseCode.QUERY_NOT_FOUND
        await client.ask(RequestCode.CLONE_GROUP_OFFSET, **header, offline=True)
        assert (await client.committed(group=OTHER)).fields["offset"] == "2"


async def test_a_correction_returns_the_lowest_offset_of_the_other_groups(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for queue_id in (0, 1):
            await send(client, 9, queue_id)
        for group, offsets in {"a": (5, 7), "b": (3, 9), "noise": (1, 1)}.items():
            for queue_id, offset in enumerate(offsets):
                await client.commit(offset, group=group, queue_id=queue_id)
        header = {"filterGroups": "noise", "compareGroup": "b", "topic": TOPIC}
        answer = await client.ask(RequestCode.QUERY_CORRECTION_OFFSET, **header)
        assert json.loads(answer.body) == {"correctionOffsets": {"0": 3, "1": 7}}
        header = {"filterGroups": "noise,b", "compareGroup": "noise", "topic": TOPIC}
        answer = await client.ask(RequestCode.QUERY_CORRECTION_OFFSET, **header)
        longest = 2**63 - 1
        assert json.loads(answer.body) == {"correctionOffsets": {"0": longest, "1": longest}}
        assert (await client.committed(group="noise")).fields["offset"] == "1", "kept"


async def consumed_by(running: Cluster, consumer: PushConsumer, seen: Seen, count: int) -> None:
    """Wait until the consumer has taken up every queue and seen `count` messages."""
    await until(lambda: len(consumer.windows) >= 5, "all queues taken up")
    await until(lambda: len(seen.messages) >= count, f"{count} messages consumed")
    await until(
        lambda: sum(running.broker.state.offsets.queues(GROUP, TOPIC).values()) == 8, "reported"
    )


async def test_an_older_brokers_reset_is_pushed_to_the_members_who_report_it(
    tmp_path: Path,
) -> None:
    """RESET_CONSUMER_CLIENT_OFFSET (220): a reset, though a member's report brings it."""
    config = broker_config(tmp_path, use_server_side_reset_offset=False)
    async with cluster(config) as running:
        client, seen = running.client(), Seen()
        offline = await reset(client)
        assert offline.code in (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.TOPIC_NOT_EXIST)
        for queue_id in range(4):
            await send(client, 2, queue_id)
        assert (await reset(client)).code == ResponseCode.CONSUMER_NOT_ONLINE
        async with consuming(running.name_server_address, GROUP, {TOPIC: seen}) as consumer:
            await consumed_by(running, consumer, seen, 8)
            assert moved_to(await reset(client)) == dict.fromkeys(range(4), 0)
            await until(lambda: len(seen.messages) == 16, "everything once more")
    rows = spooled(tmp_path / "store", "consume_offsets")
    resets = [row for row in rows if row["path"] == "RESET"]
    assert sorted(picked(row, "queue_id", "offset", "previous_offset") for row in resets) == [
        (queue_id, 0, 2) for queue_id in range(4)
    ]


async def test_members_report_what_their_memory_holds(tmp_path: Path) -> None:
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), asked of each member by 221."""
    async with cluster(broker_config(tmp_path)) as running:
        client, seen = running.client(), Seen()
        for queue_id in range(4):
            await send(client, 2, queue_id)
        header = {"topic": TOPIC, "group": GROUP}
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        nobody = await client.ask(code, **header)
        assert nobody.code == ResponseCode.SYSTEM_ERROR
        async with consuming(running.name_server_address, GROUP, {TOPIC: seen}) as consumer:
            await consumed_by(running, consumer, seen, 8)
            answer = await client.ask(code, **header)
            decoded = loads(answer.body)["consumerTable"][consumer.client_id]
            assert {dict(key)["queueId"]: n for key, n in decoded.items()} == dict.fromkeys(
                range(4), 2
            )
            other = await client.ask(code, **header, clientAddr="somebody@else")
            assert loads(other.body)["consumerTable"] == {}


async def test_a_clients_reset_by_the_broker_ends_exactly_where_it_was_sent(tmp_path: Path) -> None:
    """OFFSET_ILLEGAL at the client: drop the queue, freeze, persist, remove, take it up anew."""
    async with cluster(broker_config(tmp_path)) as running:
        client, seen = running.client(), Seen()
        for queue_id in range(4):
            await send(client, 2, queue_id)
        address = running.name_server_address
        config = consumer_config(piggyback_commit=False)
        async with (
            consuming(address, GROUP, {TOPIC: seen}, config=config) as consumer,
            Admin(system_runtime(), client_config(address)) as admin,
        ):
            await consumed_by(running, consumer, seen, 8)
            moved = await admin.offsets.reset(GROUP, TOPIC, -1)
            assert set(moved.values()) == {2}, "to the end"

            async def is_reported() -> bool:
                await send(client, 1, 0)  # Wakes the pull that is held.
                return not running.broker.state.offsets.reset_pending(GROUP, TOPIC, 0)

            await eventually(is_reported, "the held pull of queue 0 gets its reset")
            end = running.broker.state.store.max_offset(TOPIC, 0)
            committed = running.broker.state.offsets.committed
            await until(lambda: committed(GROUP, TOPIC, 0) == end, "it goes on from there")
        rows = spooled(tmp_path / "store", "consume_offsets")
        falls = [row for row in rows if row["accepted"] and row["previous_offset"] is not None
                 and row["offset"] < row["previous_offset"]]  # fmt: skip
        assert falls == []


@pytest.mark.parametrize(("resident_bytes", "begins_at"), [(1, None), (1 << 30, "0")])
async def test_a_group_without_an_offset_gets_zero_only_while_the_queues_begin_is_near(
    tmp_path: Path, resident_bytes: int, begins_at: str | None
) -> None:
    """Row A8: else a new group reads an old topic whole, wherever it wants to begin."""
    config = broker_config(tmp_path)
    config = replace(config, store=replace(config.store, resident_bytes=resident_bytes))
    for _ in range(2):  # The second time in the broker's next life.
        async with cluster(config) as running:
            client = running.client()
            await send(client, 2, queue_id=0)
            asked = {"consumerGroup": OTHER, "topic": TOPIC}
            answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **asked, queueId=0)
            assert answer.fields.get("offset") == begins_at
            young = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **asked, queueId=1)
            assert young.code == ResponseCode.QUERY_NOT_FOUND, "nothing was ever sent there"


async def test_a_file_of_rocketmq_is_taken_over_and_a_negative_offset_in_it_is_none(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path)
    text = ROCKETMQ_FILE % (GROUP, TOPIC, TOPIC, GROUP, GROUP, GROUP)
    folder = Path(config.config_folder)
    async with cluster(config) as running:
        client = running.client()
        await client.heartbeat(GROUP, (TOPIC,))
        await send(client, 3, queue_id=1)
        for _ in range(2):
            sent = await client.send(b"again", topic=f"%RETRY%{GROUP}")
            assert sent.code == ResponseCode.SUCCESS, sent.remark
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (folder / name).write_text(text)
    asked = {"consumerGroup": GROUP, "setZeroIfNotFound": False}
    for _ in range(2):  # The second time from the file that our broker wrote.
        async with cluster(config) as running:
            client = running.client()
            found = []
            for topic, queue_id in ((TOPIC, 0), (TOPIC, 1), (f"%RETRY%{GROUP}", 0)):
                answer = await client.ask(
                    *(RequestCode.QUERY_CONSUMER_OFFSET,),
                    **(asked | {"topic": topic, "queueId": queue_id}),
                )
                found.append((answer.code, answer.fields.get("offset")))
            assert found == [
                (ResponseCode.QUERY_NOT_FOUND, None),
                (ResponseCode.SUCCESS, "1"),
                (ResponseCode.SUCCESS, "2"),
            ]
            commit = {"commitOffset": 3, "topic": TOPIC, "queueId": 2, **asked}
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **commit)


@pytest.mark.parametrize(
    ("raised_to", "begins_at"),
    [(6, 6), (12, 10)],
    ids=["below what was pulled", "beyond its queue, which ends at 10"],
)
async def test_an_offset_raised_by_hand_is_reported_with_what_it_passes_over(
    tmp_path: Path, raised_to: int, begins_at: int
) -> None:
    """Row A10: pulled is not consumed, so the last report counts, and it is reported once."""
    config = broker_config(tmp_path)
    path = Path(config.config_folder) / "consumerOffset.json"
    for life in range(3):
        async with cluster(config) as running:
            client = running.client()
            await client.heartbeat(GROUP, (TOPIC,))
            if life == 0:
                await send(client, 10)
                assert (await client.pull(0, maxMsgNums=10)).code == ResponseCode.SUCCESS
                await client.commit(2)
                await client.commit(1, queue_id=1)
        if life == 1:
            path.write_text(path.read_text().replace('"0":2', f'"0": {raised_to}'))
    reported = spooled(Path(config.store.root), "consume_offsets")
    assert [
        picked(row, "queue_id", "previous_offset", "offset", "max_offset")
        for row in reported
        if row["path"] == "RESTORE"
    ] == [(0, 2, begins_at, 10)]
