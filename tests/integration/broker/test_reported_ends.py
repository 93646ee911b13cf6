"""The end of a topic, a group or queues is a fact of its own, reported before the answer to who
deleted them; what is made again under the name afterwards is another life, and nothing of the first
one is reported in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    RawClient,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.spooled import picked, spooled, spooled_in_order

OTHER = "shipments"
QUICK = {"sample_interval_ms": 50, "full_sample_interval_ms": 100_000}
ENDS = {"TOPIC_GONE", "GROUP_GONE", "GROUP_DELETED", "QUEUES_REMOVED"}


def ends(folder: Path) -> list[tuple[Any, ...]]:
    """(kind, group, topic, queue_id_from) of every end that was reported."""
    rows = spooled(folder / "store", "lifecycle")
    return [
        picked(row, "kind", "group", "topic", "queue_id_from")
        for row in rows
        if row["kind"] in ENDS
    ]


async def delete_group(client: RawClient, group: str = GROUP, *, offsets: bool) -> None:
    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    answer = await client.ask(code, groupName=group, cleanOffset=offsets)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def delete_topic(client: RawClient, topic: str = TOPIC) -> None:
    answer = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_a_deleted_topic_is_reported_gone_and_what_comes_after_is_its_next_life(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, **QUICK)) as running:
        client = running.client()
        for _ in range(3):
            await client.send()
        await client.commit(2)

        async def is_reported() -> bool:
            return bool(spooled(tmp_path / "store", "group_watermarks"))

        await eventually(is_reported, "the group is reported")
        await delete_topic(client)
        assert ends(tmp_path) == [("TOPIC_GONE", None, TOPIC, None)], "reported before the answer"
        await client.send()

        async def is_taken() -> bool:
            return (await client.pull(0)).code == ResponseCode.SUCCESS

        await eventually(is_taken, "its message is there to be consumed")
        await client.commit(1)

        async def is_reported_again() -> bool:
            return any(
                row["committed"] == 1 for row in spooled(tmp_path / "store", "group_watermarks")
            )

        await eventually(is_reported_again, "the group's new offset is reported")
    rows = spooled_in_order(tmp_path / "store")
    gone = next(seq for seq, _, row in rows if row.get("kind") == "TOPIC_GONE")
    marks = [
        (seq > gone, table, row["max_offset"])
        for seq, table, row in rows
        if table in {"queue_watermarks", "group_watermarks"} and row["topic"] == TOPIC
    ]
    assert {largest for after, _, largest in marks if not after} >= {3}
    after_it = {largest for after, _, largest in marks if after}
    assert 1 in after_it
    assert after_it <= {0, 1}, "placed, then consumed"


async def test_a_topic_nobody_knows_is_not_reported_gone(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        await delete_topic(running.client(), "no-such-topic")
        await delete_group(running.client(), "no-such-group", offsets=True)
    assert ends(tmp_path) == []


async def test_a_group_deleted_with_its_offsets_is_reported_gone_and_without_them_not(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, **QUICK)) as running:
        client = running.client()
        await client.send()
        await client.pull(0)
        await client.commit(1)
        await delete_group(client, offsets=False)
        assert ends(tmp_path) == [("GROUP_DELETED", GROUP, None, None)]
        await client.pull(0)  # Makes its settings again.
        await delete_group(client, offsets=True)
        assert ends(tmp_path)[1:] == [("GROUP_GONE", GROUP, None, None)]
        await client.send(topic=OTHER)

        async def other_is_reported() -> bool:
            rows = spooled(tmp_path / "store", "queue_watermarks")
            return any(row["topic"] == OTHER for row in rows)

        await eventually(other_is_reported, "a later sample")
    rows = spooled_in_order(tmp_path / "store")
    gone = next(seq for seq, _, row in rows if row.get("kind") == "GROUP_GONE")
    after = [row for seq, table, row in rows if table == "group_watermarks" and seq > gone]
    assert after == []


async def test_a_group_known_by_its_offsets_alone_is_gone_with_the_last_of_them(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, **QUICK)) as running:
        client = running.client()
        for topic in (TOPIC, OTHER):
            await client.send(topic=topic)
            running.broker.state.offsets.commit("alone", topic, 0, 1, now_ms=1)
            await client.commit(1, topic=topic)
        await delete_topic(client)
        assert ends(tmp_path) == [("TOPIC_GONE", None, TOPIC, None)]
        await delete_topic(client, OTHER)
        assert ends(tmp_path)[1:] == [
            ("TOPIC_GONE", None, OTHER, None),
            ("GROUP_GONE", "alone", None, None),
        ]
        assert running.broker.state.group_configs.known(GROUP), "this one has its settings"


async def test_a_group_whose_settings_were_deleted_is_gone_when_its_last_member_leaves(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client, tool = running.client("c1"), running.client("tool")
        await client.send()
        await client.heartbeat()
        await delete_group(tool, offsets=False)
        assert ends(tmp_path) == [("GROUP_DELETED", GROUP, None, None)]
        await client.close()

        async def is_gone() -> bool:
            return len(ends(tmp_path)) == 2

        await eventually(is_gone, "the group is gone")
    assert ends(tmp_path)[1] == ("GROUP_GONE", GROUP, None, None)


async def test_a_member_that_leaves_a_group_with_settings_ends_nothing(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        await heard_and_lost(running)
    assert ends(tmp_path) == []


async def heard_and_lost(running: Cluster) -> None:
    client = running.client("c1")
    await client.send()
    await client.heartbeat()
    await client.close()

    async def has_left() -> bool:
        return running.broker.state.groups.of(GROUP) is None

    await eventually(has_left, "the member has left")


async def test_queues_that_nobody_may_read_any_more_are_reported_removed(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        for queue_nums in (4, 2, 3):
            fields = {"topic": TOPIC, "defaultTopic": "TBW102", "perm": 6, "topicSysFlag": 0}
            fields |= {"readQueueNums": queue_nums, "writeQueueNums": queue_nums}
            answer = await client.ask(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                **fields,
                topicFilterType="SINGLE_TAG",
                order=False,
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert ends(tmp_path) == [("QUEUES_REMOVED", None, TOPIC, 2)]
