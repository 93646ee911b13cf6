"""Row C1: a topic never loses queues with messages in them unasked, whichever tool changes it: the
refusal says what would be stranded and how to go about it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from engine.broker.removing.topic_changes import STRANDED_TOLD_MAX
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message_ids import parse_offset_message_id
from tests.integration.broker.cluster import (
    Cluster,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
)

TOPIC = "scaled"
GROUPS_LOOKED_AT = 3 * LOOP_STEP_ENTRIES_MAX


async def put(client: RawClient, read: int, write: int, **more: object) -> RemotingCommand:
    """UPDATE_AND_CREATE_TOPIC as Java's admin sends it."""
    fields = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": read,
        "writeQueueNums": write,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        "force": "false",
    }
    return await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **(fields | more))


async def numbers(client: RawClient) -> tuple[int, int]:
    answer = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic=TOPIC)
    config = json.loads(answer.body)
    return config["readQueueNums"], config["writeQueueNums"]


async def fill(client: RawClient, queues: Sequence[int]) -> None:
    for queue_id in queues:
        sent = await client.send(topic=TOPIC, queue_id=queue_id)
        assert sent.code == ResponseCode.SUCCESS


async def test_it_is_refused_until_every_group_has_consumed_what_is_there(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        assert (await put(client, 4, 4)).code == ResponseCode.SUCCESS
        await fill(client, (0, 2, 3, 3))
        for group, offsets in (("ready", (1, 0, 1, 2)), ("late", (1, 0, 1, 1))):
            for queue_id, offset in enumerate(offsets):
                await client.commit(offset, topic=TOPIC, group=group, queue_id=queue_id)
        refused = await put(client, 2, 2)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        remark = refused.remark or ""
        assert "1 messages of queue 3 that group late has not consumed" in remark
        assert "ready" not in remark
        for step in ("writeQueueNums=2", "readQueueNums=4", "readQueueNums=2", "queue.shrink"):
            assert step in remark
        assert await numbers(client) == (4, 4), "what is refused changes nothing"
        assert (await put(client, 4, 2)).code == ResponseCode.SUCCESS, "the first of two steps"
        assert (await put(client, 2, 2)).code == ResponseCode.INVALID_PARAMETER
        assert (await put(client, 3, 2)).code == ResponseCode.INVALID_PARAMETER
        await client.commit(2, topic=TOPIC, group="late", queue_id=3)
        assert (await put(client, 2, 2)).code == ResponseCode.SUCCESS, "nothing is stranded"
        assert await numbers(client) == (2, 2)


async def test_what_no_group_reads_is_stranded_too(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await put(client, 2, 2)
        await fill(client, (1, 1))
        refused = await put(client, 1, 1)
        assert "2 messages of queue 1, which no group reads" in (refused.remark or "")
        await client.heartbeat("reader", (TOPIC,))
        refused = await put(client, 1, 1)
        assert "2 messages of queue 1 that group reader has not consumed" in (refused.remark or "")


async def test_queues_that_are_still_written_to_stay_readable(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await put(client, 4, 4)
        refused = await put(client, 2, 4)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert "queues 2 to 3 would still be written to" in (refused.remark or "")
        assert (await put(client, 2, 2)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "how", [{"force": "true"}, {"attributes": "+message.type=NORMAL,+queue.shrink=forced"}]
)
async def test_forced_it_is_taken_and_says_what_it_stranded(
    tmp_path: Path, how: dict[str, str]
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        queues = STRANDED_TOLD_MAX + 3
        await put(client, queues, queues)
        await fill(client, range(1, queues))
        forced = await put(client, 1, 1, **how)
        assert forced.code == ResponseCode.SUCCESS
        assert "1 messages of queue 1, which no group reads" in (forced.remark or "")
        assert (forced.remark or "").endswith("and 2 more like these")
        assert await numbers(client) == (1, 1)
        answer = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic=TOPIC)
        attributes = json.loads(answer.body)["attributes"]
        assert "queue.shrink" not in attributes, "a word of one change is not kept"


async def test_of_a_list_none_is_changed_when_one_strands_messages(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await put(client, 2, 2)
        await fill(client, (1,))

        async def put_list(attributes: dict[str, str]) -> RemotingCommand:
            configs = [
                {"topicName": "another", "readQueueNums": 1, "writeQueueNums": 1},
                {
                    "topicName": TOPIC,
                    "readQueueNums": 1,
                    "writeQueueNums": 1,
                    "attributes": attributes,
                },
            ]
            body = json.dumps({"topicConfigList": configs}).encode()
            return await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)

        assert (await put_list({})).code == ResponseCode.INVALID_PARAMETER
        unknown = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic="another")
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
        assert (await put_list({"+queue.shrink": "forced"})).code == ResponseCode.SUCCESS
        assert await numbers(client) == (1, 1)


async def test_of_a_list_none_is_changed_when_one_is_no_topic_that_may_be(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        good = {"topicName": "good", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        for wrong in ({"perm": 99}, {"readQueueNums": 0}, {"attributes": {"+no.such": "1"}}):
            body = json.dumps({"topicConfigList": [good, good | {"topicName": "bad"} | wrong]})
            refused = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body.encode())
            assert refused.code != ResponseCode.SUCCESS
            unknown = await client.ask(RequestCode.GET_TOPIC_CONFIG, topic="good")
            assert unknown.code == ResponseCode.TOPIC_NOT_EXIST, wrong


async def test_what_comes_late_for_a_queue_that_was_taken_away_goes_where_it_can_be_read(
    tmp_path: Path,
) -> None:
    """A delayed message and half of a transaction wait elsewhere, so nothing was stranded."""
    async with cluster(broker_config(tmp_path, delay_levels_ms=(500,))) as running:
        client = running.client()
        await put(client, 4, 4)
        delayed = await client.send(b"delayed", topic=TOPIC, queue_id=3, DELAY="1")
        assert delayed.code == ResponseCode.SUCCESS
        half = await client.send(
            b"half", topic=TOPIC, queue_id=3, sysFlag=4, TRAN_MSG="true", PGROUP="p", UNIQ_KEY="u"
        )
        assert (await put(client, 2, 2)).code == ResponseCode.SUCCESS
        _, physical_offset = parse_offset_message_id(half.fields["msgId"])
        ended = await client.ask(
            RequestCode.END_TRANSACTION,
            producerGroup="p",
            tranStateTableOffset=half.fields["queueOffset"],
            commitLogOffset=physical_offset,
            commitOrRollback=8,
            fromTransactionCheck="false",
            msgId="u",
            transactionId="u",
        )
        assert ended.code == ResponseCode.SUCCESS

        async def both() -> bool:
            found = [bodies(await client.pull(0, topic=TOPIC, queue_id=one)) for one in (0, 1)]
            return sorted(body for some in found for body in some) == [b"delayed", b"half"]

        await eventually(both, "both are read")


async def _goes_back(running: Cluster) -> None:
    running.broker.state.offsets.place("g7", TOPIC, 3, 0)


async def _is_deleted_and_reads_on(running: Cluster) -> None:
    list(running.broker.state.offsets.forget_group("g7"))
    await running.client("newcomer").heartbeat("g7", (TOPIC,))


async def _comes(running: Cluster) -> None:
    await running.client("newcomer").heartbeat("newcomers", (TOPIC,))


async def _is_behind_a_new_message(running: Cluster) -> None:
    store = running.broker.state.store
    await fill(running.client(), [3])
    assert store.max_offset(TOPIC, 3) == 2


@pytest.mark.parametrize(
    "happens", [_goes_back, _is_deleted_and_reads_on, _comes, _is_behind_a_new_message]
)
async def test_what_happens_to_a_group_while_all_are_looked_at_counts(
    tmp_path: Path, happens: Callable[[Cluster], Awaitable[None]]
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client, state = running.client(), running.broker.state
        shrinking = running.broker.services.shrinking
        assert (await put(client, 4, 4)).code == ResponseCode.SUCCESS
        await fill(client, [3])
        for number in range(GROUPS_LOOKED_AT):
            state.offsets.commit(f"g{number}", TOPIC, 3, 1, now_ms=state.clock.steady_ms())
        assert state.topics.find(TOPIC) is not None
        fewer = TopicConfig(TOPIC, 2, 4, 6)
        looking = asyncio.ensure_future(shrinking.look_before(fewer))
        await asyncio.sleep(0)
        assert not looking.done(), "others have their turn meanwhile"
        look = await looking
        assert shrinking.check(look, TopicConfig(TOPIC, 2, 2, 6), forced=False) == ""
        await happens(running)
        with pytest.raises(RequestRefused, match="would strand messages"):
            shrinking.check(look, TopicConfig(TOPIC, 2, 2, 6), forced=False)
        look = await shrinking.look_before(fewer)
        with pytest.raises(RequestRefused, match="would strand messages"):
            shrinking.check(look, TopicConfig(TOPIC, 2, 2, 6), forced=False)
        assert (await put(client, 2, 2)).code == ResponseCode.INVALID_PARAMETER
