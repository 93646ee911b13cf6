"""A reply waits for its asker, up to ten seconds, before it is stored; its topic may be deleted,
shrunk or closed meanwhile. And what is refused for the broker's own permission leaves nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer, RpcClient
from engine.runtime import system_runtime
from tests.integration.broker.cluster import Cluster, broker_config, cluster
from tests.integration.broker.transactor import Transactor

REPLIES = "replies"


class SlowAsker:
    """A client that takes a reply only when it is asked to."""

    def __init__(self) -> None:
        self.has_it, self.may_take = asyncio.Event(), asyncio.Event()

    async def take(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.has_it.set()
        await self.may_take.wait()
        return request.respond(ResponseCode.SUCCESS)


@asynccontextmanager
async def reply_under_way(
    folder: Path,
) -> AsyncIterator[tuple[Cluster, SlowAsker, asyncio.Task[RemotingCommand]]]:
    async with cluster(broker_config(folder, telemetry=False)) as running:
        client, asker, slow = running.client(), running.client("asker"), SlowAsker()
        asker.rpc = RpcClient(system_runtime(), {Code.PUSH_REPLY_MESSAGE_TO_CLIENT: slow.take})
        await Transactor(asker).register("askers")
        await make(running, 4)
        answer = asyncio.ensure_future(
            client.send(
                code=Code.SEND_REPLY_MESSAGE, topic=REPLIES, queue_id=3, REPLY_TO_CLIENT="asker"
            )
        )
        await asyncio.wait_for(slow.has_it.wait(), 5)
        yield running, slow, answer


async def make(running: Cluster, queue_nums: int, perm: int = 6) -> None:
    made = await running.client().ask(
        Code.UPDATE_AND_CREATE_TOPIC,
        topic=REPLIES,
        defaultTopic="TBW102",
        readQueueNums=queue_nums,
        writeQueueNums=queue_nums,
        perm=perm,
        topicFilterType="SINGLE_TAG",
        topicSysFlag=0,
        order=False,
    )
    assert made.code == ResponseCode.SUCCESS, made.remark


def queues_of_replies(running: Cluster) -> list[int]:
    return [number for topic, number in running.broker.state.store.queues() if topic == REPLIES]


async def test_a_reply_brings_no_deleted_topic_back(tmp_path: Path) -> None:
    async with reply_under_way(tmp_path) as (running, slow, answer):
        gone = await running.client().ask(Code.DELETE_TOPIC_IN_BROKER, topic=REPLIES)
        assert gone.code == ResponseCode.SUCCESS, gone.remark
        slow.may_take.set()
        reply = await answer
        assert not queues_of_replies(running), (reply.code, reply.remark)
        assert reply.code == ResponseCode.TOPIC_NOT_EXIST, reply.remark


async def test_a_reply_goes_into_no_queue_that_was_taken_away(tmp_path: Path) -> None:
    async with reply_under_way(tmp_path) as (running, slow, answer):
        await make(running, 1)
        slow.may_take.set()
        reply = await answer
        assert reply.code == ResponseCode.SUCCESS, reply.remark
        assert queues_of_replies(running) == [0]
        assert reply.fields["queueId"] == "0"


async def test_a_reply_is_not_stored_where_writing_was_forbidden_meanwhile(tmp_path: Path) -> None:
    async with reply_under_way(tmp_path) as (running, slow, answer):
        await make(running, 4, perm=4)
        slow.may_take.set()
        reply = await answer
        assert not queues_of_replies(running), (reply.code, reply.remark)
        assert reply.code == ResponseCode.NO_PERMISSION, reply.remark


async def test_what_is_refused_for_the_brokers_permission_makes_no_topic(tmp_path: Path) -> None:
    config = broker_config(tmp_path, telemetry=False, broker_permission=4)
    async with cluster(config) as running:
        refused = await running.client().send(topic="never-made")
        assert refused.code == ResponseCode.NO_PERMISSION, refused.remark
        assert running.broker.state.topics.find("never-made") is None
