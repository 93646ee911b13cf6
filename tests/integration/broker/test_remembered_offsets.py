"""After an unclean stop under ASYNC_FLUSH a client may remember offsets of messages that are gone.

Others get these offsets then, and it would pass over them. Somebody who chooses an offset, a tool
or a reset, remembers nothing and is heard. Here the queue ends at 5 at boot and at 10 when it is
reported: GROUP was at 3.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.admin import Admin
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageQueue
from engine.runtime import system_runtime
from engine.store import FlushDiskType
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    RawClient,
    bodies,
    broker_config,
    cluster,
)
from tests.integration.client.cluster_users import client_config

QUEUE = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}


@asynccontextmanager
async def after_an_unclean_stop(
    tmp_path: Path, flush: FlushDiskType = FlushDiskType.ASYNC_FLUSH, **settings: Any
) -> AsyncIterator[Cluster]:
    """A broker that booted with five messages, and has five more by now."""
    config = broker_config(tmp_path, flush=flush, **settings)
    async with cluster(config) as running:
        client = running.client()
        await client.heartbeat()
        for number in range(5):
            await client.send(b"%d" % number)
        await client.pull(0)
        await client.commit(3)
    (Path(config.store.root) / "abort").write_bytes(b"1")
    async with cluster(config) as running:
        sender = running.client("127.0.0.1@sender")
        for number in range(5, 10):
            await sender.send(b"%d" % number)
        yield running


def committed(running: Cluster) -> int | None:
    """Where the group is."""
    return running.broker.state.offsets.committed(GROUP, TOPIC, 0)


async def report_one_way(client: RawClient, offset: int) -> None:
    """As RocketMQ's consumers do."""
    fields = {**QUEUE, "commitOffset": str(offset)}
    request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    await client.rpc.invoke_oneway(client.address, request)
    await client.committed()  # Answered behind it, on the same connection.


async def test_a_consumer_that_reports_before_it_is_a_member_again_passes_over_nothing(
    tmp_path: Path,
) -> None:
    async with after_an_unclean_stop(tmp_path) as running:
        consumer = running.client()
        await report_one_way(consumer, 8)
        assert committed(running) == 3


@pytest.mark.parametrize("more", [{}, {"trigger": "TIMER"}], ids=["unsaid", "by a timer"])
async def test_a_member_that_waits_for_the_answer_passes_over_nothing_either(
    tmp_path: Path, more: dict[str, str]
) -> None:
    async with after_an_unclean_stop(tmp_path) as running:
        consumer = running.client()
        await consumer.heartbeat()
        answer = await consumer.commit(8, **more)
        assert answer.code == (ResponseCode.SUCCESS if more else ResponseCode.INVALID_PARAMETER)
        assert answer.remark is not None
        assert "offset 8 counts messages of queue 0" in answer.remark
        assert committed(running) == 3


async def test_a_consumer_of_ours_that_is_no_member_yet_passes_over_nothing(
    tmp_path: Path,
) -> None:
    async with after_an_unclean_stop(tmp_path) as running:
        answer = await running.client().commit(8, trigger="SHUTDOWN")
        assert answer.remark is not None
        assert committed(running) == 3


async def test_a_tool_sets_an_offset_behind_what_the_queue_held_at_boot(tmp_path: Path) -> None:
    async with after_an_unclean_stop(tmp_path) as running:
        answer = await running.client("127.0.0.1@tool").commit(8)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert committed(running) == 8
        consumer = running.client()
        await consumer.heartbeat()
        assert bodies(await consumer.pull(8)) == [b"8", b"9"]


async def test_our_admin_sets_an_offset_behind_what_the_queue_held_at_boot(tmp_path: Path) -> None:
    async with after_an_unclean_stop(tmp_path) as running:
        async with Admin(system_runtime(), client_config(running.name_server_address)) as admin:
            queue = MessageQueue(TOPIC, running.broker.state.node.config.broker_name, 0)
            await admin.offsets.commit(GROUP, queue, 8)
        assert committed(running) == 8


async def test_behind_a_tools_offset_a_client_still_passes_over_nothing(tmp_path: Path) -> None:
    async with after_an_unclean_stop(tmp_path) as running:
        await running.client("127.0.0.1@tool").commit(7)
        consumer = running.client()
        await consumer.heartbeat()
        await report_one_way(consumer, 9)
        assert committed(running) == 7
        moved = await consumer.pull(9)
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        assert moved.fields["nextBeginOffset"] == "7"
        assert bodies(await consumer.pull(7)) == [b"7", b"8", b"9"]


async def test_members_that_are_sent_a_reset_report_the_offset_that_they_were_sent(
    tmp_path: Path,
) -> None:
    async with after_an_unclean_stop(tmp_path, use_server_side_reset_offset=False) as running:
        consumer = running.client()
        await consumer.heartbeat()
        tool = running.client("127.0.0.1@tool")
        for queue_id in range(1, 4):  # Such a reset is for groups that have an offset everywhere.
            await tool.commit(0, queue_id=queue_id)
        to_the_end = {"topic": TOPIC, "group": GROUP, "timestamp": -1, "isForce": True}
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        assert (await tool.ask(code, queueId=-1, **to_the_end)).code == ResponseCode.SUCCESS
        await report_one_way(consumer, 9)
        assert committed(running) == 3, "not what it was sent"
        await report_one_way(consumer, 10)
        assert committed(running) == 10


async def test_once_the_group_has_pulled_its_reports_count(tmp_path: Path) -> None:
    async with after_an_unclean_stop(tmp_path) as running:
        consumer = running.client()
        await consumer.heartbeat()
        assert len(bodies(await consumer.pull(3))) == 7
        await report_one_way(consumer, 10)
        assert committed(running) == 10


async def test_under_sync_flush_nothing_was_lost_and_every_report_counts(tmp_path: Path) -> None:
    async with after_an_unclean_stop(tmp_path, FlushDiskType.SYNC_FLUSH) as running:
        await report_one_way(running.client(), 8)
        assert committed(running) == 8


async def test_who_was_just_sent_where_to_go_on_is_not_heard_with_what_it_remembers(
    tmp_path: Path,
) -> None:
    """RocketMQ 4 goes there only ten seconds after it was asked to; its timer reports meanwhile."""
    async with after_an_unclean_stop(tmp_path) as running:
        consumer = running.client()
        await consumer.heartbeat()
        moved = await consumer.pull(9, commitOffset=9, sysFlag=4 | 1)
        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        await report_one_way(consumer, 9)
        assert committed(running) == 3
        again = await consumer.pull(9, commitOffset=9, sysFlag=4 | 1)
        assert again.fields["nextBeginOffset"] == "3", "as often as it asks"
        assert committed(running) == 3
        assert len(bodies(await consumer.pull(3))) == 7
        await report_one_way(consumer, 10)
        assert committed(running) == 10
