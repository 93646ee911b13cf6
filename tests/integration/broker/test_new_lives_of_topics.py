"""A topic that was deleted and made again is a new life of it: what clients remember of the earlier
one counts for nothing there, and no message of the new one is passed over.

Clients of RocketMQ notice nothing of a deletion. Here they are raw commands: a member of GROUP has
consumed ten messages of TOPIC, remembers offset 10, and pulls and reports it, one-way, as they do.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.broker.state import BrokerState
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageQueue
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    RawClient,
    bodies,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.spooled import picked, spooled
from tests.integration.broker.transactor import COMMIT, Transactor, kept

CONSUMED = 10
PIGGYBACK = 1
QUEUE = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}


async def fill(client: RawClient, count: int, word: str = "new") -> list[bytes]:
    """Send so many messages to the topic's only queue; return their bodies."""
    sent = [b"%s %d" % (word.encode(), number) for number in range(count)]
    for body in sent:
        assert (await client.send(body)).code == ResponseCode.SUCCESS
    return sent


async def make_again(client: RawClient) -> None:
    """Delete the topic and make it again."""
    deleted = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
    assert deleted.code == ResponseCode.SUCCESS, deleted.remark
    assert (await client.make_topic(TOPIC)).code == ResponseCode.SUCCESS


async def report(client: RawClient, offset: int) -> None:
    """As RocketMQ's consumers do: nobody answers."""
    fields = {**QUEUE, "commitOffset": str(offset)}
    request = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    await client.rpc.invoke_oneway(client.address, request)
    await client.committed()  # Answered behind it, on the same connection.


def committed(running: Cluster) -> int | None:
    """Where the group is."""
    return running.broker.state.offsets.committed(GROUP, TOPIC, 0)


def where_to(answer: RemotingCommand) -> int:
    """Where an answer moves its client."""
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED, answer.code
    return int(answer.fields["nextBeginOffset"])


@asynccontextmanager
async def consumed(
    tmp_path: Path, *, is_new: bool = False, **settings: Any
) -> AsyncIterator[tuple[Cluster, RawClient]]:
    """A member that has consumed ten messages of the topic's first life."""
    async with cluster(broker_config(tmp_path, **settings), is_new=is_new) as running:
        member = running.client("127.0.0.1@member")
        await member.make_topic(TOPIC)
        await member.heartbeat()
        sent = await fill(member, CONSUMED, "old")
        assert bodies(await member.pull(0)) == sent
        await report(member, CONSUMED)
        assert committed(running) == CONSUMED
        yield running, member


async def overtaken(running: Cluster, member: RawClient) -> tuple[RawClient, list[bytes]]:
    """The member is cut off, the topic made again, and another one of its group has pulled all 14
    messages of the new life and reported four; returns that one, and their bodies.
    """
    await member.close()
    other = running.client("127.0.0.1@other")
    await other.heartbeat()
    await make_again(other)
    sent = await fill(other, 14)
    assert bodies(await other.pull(0)) == sent
    await report(other, 4)
    return other, sent


async def held_pull(running: Cluster, member: RawClient) -> asyncio.Task[RemotingCommand]:
    """A pull at the end of the queue, which the broker holds."""
    held = asyncio.create_task(member.pull(CONSUMED, wait_ms=15_000))

    async def is_held() -> bool:
        return running.broker.state.holds.count == 1

    await eventually(is_held, "the pull is held")
    return held


@pytest.mark.parametrize("sent_count", [6, 14], ids=["fewer than consumed", "more than consumed"])
async def test_a_member_that_keeps_running_gets_every_message_of_the_new_life(
    tmp_path: Path, sent_count: int
) -> None:
    async with consumed(tmp_path) as (running, member):
        await make_again(member)
        assert committed(running) == 0, "it is behind by all of it from the first moment"
        sent = await fill(member, sent_count)
        await report(member, CONSUMED)
        assert committed(running) == 0, "what it reports is of the earlier life"
        assert where_to(await member.pull(CONSUMED)) == 0
        await report(member, CONSUMED)
        assert committed(running) == 0, "so is what it reports until it has gone there"
        assert bodies(await member.pull(0)) == sent
        await report(member, sent_count)
        assert committed(running) == sent_count


async def test_a_report_that_is_refused_again_and_again_has_one_row_in_each_life(
    tmp_path: Path,
) -> None:
    async with consumed(tmp_path) as (running, member):
        for _ in range(2):
            await make_again(member)
            await fill(member, 14)
            for _ in range(5):
                await report(member, CONSUMED)
            assert committed(running) == 0
    rows = spooled(tmp_path / "store", "consume_offsets")
    refused = [(row["offset"], row["held_back"]) for row in rows if not row["accepted"]]
    assert refused == [(CONSUMED, 0), (CONSUMED, 0)]


async def test_a_report_that_a_pull_carries_does_not_count_either(tmp_path: Path) -> None:
    async with consumed(tmp_path) as (running, member):
        await make_again(member)
        await fill(member, 14)
        carried = {"commitOffset": CONSUMED, "sysFlag": 4 | PIGGYBACK}
        assert where_to(await member.pull(CONSUMED, **carried)) == 0
        assert committed(running) == 0
        assert bodies(await member.pull(0, **carried)), "it pulls from 0 and has consumed nothing"
        assert committed(running) == 0


async def test_a_member_that_was_away_begins_at_the_beginning(tmp_path: Path) -> None:
    async with consumed(tmp_path) as (running, member):
        await member.close()
        tool = running.client("127.0.0.1@tool")
        await make_again(tool)
        await fill(tool, 6)
        anew = running.client("127.0.0.1@anew")
        await anew.heartbeat()
        assert (await anew.committed()).fields["offset"] == "0"


@pytest.mark.parametrize("sent_count", [6, 14])
async def test_a_restart_in_the_new_life_forgets_nothing_of_it(
    tmp_path: Path, sent_count: int
) -> None:
    async with consumed(tmp_path) as (running, member):
        await make_again(member)
        sent = await fill(member, sent_count)
        shutil.copytree(tmp_path / "store", tmp_path / "killed" / "store")
    async with cluster(broker_config(tmp_path / "killed")) as running:
        member = running.client("127.0.0.1@member")
        await report(member, CONSUMED)
        assert where_to(await member.pull(CONSUMED, wait_ms=1000)) == 0, "before its heartbeat"
        await member.heartbeat()
        assert committed(running) == 0
        assert bodies(await member.pull(0)) == sent


async def test_after_a_restart_who_was_away_goes_back_to_where_its_group_is(
    tmp_path: Path,
) -> None:
    async with consumed(tmp_path) as (running, member):
        other, sent = await overtaken(running, member)
    async with cluster(broker_config(tmp_path)) as running:
        back = running.client(member.client_id)
        await back.heartbeat()
        await report(back, CONSUMED)
        assert where_to(await back.pull(CONSUMED)) == 4
        assert bodies(await back.pull(4)) == sent[4:]
        await report(back, CONSUMED)
        assert committed(running) == CONSUMED
        goes_on = running.client(other.client_id)
        await goes_on.heartbeat()
        await fill(goes_on, 1, "more")
        assert bodies(await goes_on.pull(14)) == [b"more 0"], "who pulled last is known"


async def test_an_emptied_store_is_new_after_its_next_start_as_well(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path), is_new=True) as running:
        tool = running.client("127.0.0.1@tool")
        await tool.make_topic(TOPIC)
        sent = await fill(tool, 14)
    async with cluster(broker_config(tmp_path), is_new=True) as running:
        member = running.client("127.0.0.1@member")
        await member.heartbeat()
        await report(member, CONSUMED)
        assert committed(running) is None
        assert where_to(await member.pull(CONSUMED)) == 0
        assert bodies(await member.pull(0, maxMsgNums=8)) == sent[:8]
        await report(member, 8)
    async with cluster(broker_config(tmp_path), is_new=True) as running:
        member = running.client("127.0.0.1@member")
        await member.heartbeat()
        assert bodies(await member.pull(8)) == sent[8:], "who pulled last is not sent back"
        away = running.client("127.0.0.1@away")
        await away.heartbeat()
        assert where_to(await away.pull(CONSUMED)) == 8


async def test_the_topic_made_again_after_a_restart_begins_anew_for_its_readers(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path)
    async with consumed(tmp_path) as (_, member):
        await member.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
    async with cluster(config) as running:
        tool = running.client("127.0.0.1@tool")
        await tool.make_topic(TOPIC)
        await fill(tool, 6)
        assert committed(running) == 0
    rows = list(spooled(Path(config.store.root), "consume_offsets"))
    assert rows[-1]["path"] == "NEW_LIFE", rows[-1]
    kinds = [row["kind"] for row in spooled(Path(config.store.root), "lifecycle")]
    assert kinds.count("TOPIC_MADE_AGAIN") == 1


async def test_a_pull_that_is_held_ends_with_the_topic(tmp_path: Path) -> None:
    async with consumed(tmp_path) as (running, member):
        held = await held_pull(running, member)
        await make_again(running.client("127.0.0.1@tool"))
        answer = await asyncio.wait_for(held, timeout=5)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert answer.fields["nextBeginOffset"] == str(CONSUMED), "it asks again, and is judged"


@pytest.mark.parametrize("sent_count", [6, 14])
@pytest.mark.parametrize("tables", ["are gone too", "are kept"])
async def test_a_member_that_lived_through_an_emptied_store_gets_every_message(
    tmp_path: Path, sent_count: int, tables: str
) -> None:
    if tables == "are kept":
        async with consumed(tmp_path):
            pass
        for folder in ("commitlog", "consumequeue", "index", "spool"):
            shutil.rmtree(tmp_path / "store" / folder)
    async with cluster(broker_config(tmp_path), is_new=True) as running:
        tool = running.client("127.0.0.1@tool")
        await tool.make_topic(TOPIC)
        sent = await fill(tool, sent_count)
        member = running.client("127.0.0.1@member")
        await report(member, CONSUMED)
        assert where_to(await member.pull(CONSUMED, wait_ms=1000)) == 0, "before its heartbeat"
        await member.heartbeat()
        await report(member, CONSUMED)
        assert committed(running) == 0
        assert bodies(await member.pull(0)) == sent


async def test_who_asks_where_to_begin_begins_there(tmp_path: Path) -> None:
    async with consumed(tmp_path) as (running, member):
        await make_again(member)
        await fill(member, 6)
        newcomer = running.client("127.0.0.1@newcomer")
        await newcomer.heartbeat("newcomers")
        assert (await newcomer.committed(group="newcomers")).code == ResponseCode.QUERY_NOT_FOUND
        end = await newcomer.ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0)
        begin = int(end.fields["offset"])
        assert begin == 6
        await fill(member, 2)
        assert len(bodies(await newcomer.pull(begin, group="newcomers"))) == 2


async def test_where_a_group_begins_and_what_a_member_skips_later_is_shown(tmp_path: Path) -> None:
    async with consumed(tmp_path) as (running, member):
        await make_again(member)
        sent = await fill(member, 14)
        assert where_to(await member.pull(CONSUMED)) == 0
        for _ in range(2):
            assert bodies(await member.pull(0, maxMsgNums=8)) == sent[:8]
        await report(member, 8)
        await member.pull(8, maxMsgNums=0)
        seeker = running.client("127.0.0.1@seeker")
        await seeker.heartbeat(consume_type="CONSUME_ACTIVELY")
        end = await seeker.ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic=TOPIC, queueId=0, timestamp=1 << 60
        )
        await seeker.pull(int(end.fields["offset"]))
    rows = spooled(tmp_path / "store", "consume_offsets")
    shown = [
        picked(row, "offset", "previous_offset", "accepted")
        for row in rows
        if row["path"] == "PULL"
    ]
    assert shown == [(0, None, False), (14, 8, False)]


async def test_a_member_that_connects_anew_goes_on_once_it_has_said_who_it_is(
    tmp_path: Path,
) -> None:
    async with consumed(tmp_path) as (running, member):
        await make_again(member)
        sent = await fill(member, 14)
        assert where_to(await member.pull(CONSUMED)) == 0
        assert bodies(await member.pull(0, maxMsgNums=8)) == sent[:8]
        anew = running.client(member.client_id)
        unknown = await anew.pull(8, wait_ms=1000)
        assert unknown.code == ResponseCode.SUBSCRIPTION_NOT_EXIST, unknown.remark
        await anew.heartbeat()
        assert bodies(await anew.pull(8)) == sent[8:]


async def test_who_was_cut_off_when_the_topic_was_deleted_passes_over_nothing(
    tmp_path: Path,
) -> None:
    """Its registration ended with its connection: nobody knew it when the topic was deleted."""
    async with consumed(tmp_path) as (running, member):
        _, sent = await overtaken(running, member)
        back = running.client(member.client_id)
        await back.heartbeat()
        assert where_to(await back.pull(CONSUMED)) == 4
        await report(back, CONSUMED)
        assert committed(running) == 4
        assert bodies(await back.pull(4, commitOffset=CONSUMED, sysFlag=4 | PIGGYBACK)) == sent[4:]
        assert committed(running) == 4, "it has consumed nothing behind where it pulls from"


async def test_a_pull_that_is_held_ends_with_its_group(tmp_path: Path) -> None:
    async with consumed(tmp_path) as (running, member):
        held = await held_pull(running, member)
        tool = running.client("127.0.0.1@tool")
        await tool.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, cleanOffset=True)
        answer = await asyncio.wait_for(held, timeout=5)
        assert answer.code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_who_asks_where_a_queue_ends_has_not_read_its_present_life(
    tmp_path: Path, code: int
) -> None:
    """A gauge of the lag in the consumer's own process asks all the time, for both ends maybe."""
    async with consumed(tmp_path) as (_, member):
        await make_again(member)
        sent = await fill(member, CONSUMED)
        await member.ask(RequestCode.GET_MIN_OFFSET, topic=TOPIC, queueId=0)
        end = await member.ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0)
        assert end.fields["offset"] == str(CONSUMED), "by chance where it was before"
        pull = {**QUEUE, "queueOffset": CONSUMED, "maxMsgNums": 32, "sysFlag": 4}
        pull |= {"commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
        assert where_to(await member.ask(code, **pull)) == 0
        assert bodies(await member.pull(0)) == sent


async def test_no_consumer_is_sent_to_the_end_from_beyond_it(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path), is_new=True) as running:
        poller = running.client("127.0.0.1@poller")
        await poller.make_topic(TOPIC)
        await fill(poller, 6)
        assert where_to(await poller.pull(14)) == 0, "it polls, with offsets of its own"


async def test_a_poller_that_lived_through_a_deletion_and_a_restart_is_sent_back(
    tmp_path: Path,
) -> None:
    async with consumed(tmp_path) as (_, member):
        await make_again(member)
        await fill(member, 14)
    async with cluster(broker_config(tmp_path)) as running:
        poller = running.client(member.client_id)
        assert where_to(await poller.pull(CONSUMED)) == 0, "a restart knows who read it before"
        stranger = running.client("127.0.0.1@stranger")
        assert len(bodies(await stranger.pull(CONSUMED, group="strangers"))) == 4


async def test_every_group_that_read_the_topic_is_behind_by_all_of_its_new_life_at_once(
    tmp_path: Path,
) -> None:
    """However many they are, and though none has a member; the broker dies before it persists their
    places.
    """
    groups = [f"g{number:03}" for number in range(300)]
    settings = {"flush_consumer_offset_interval_ms": 60_000}
    async with consumed(tmp_path, **settings) as (running, member):
        state = running.broker.state
        for group in groups:
            state.group_configs.find(group)
            state.offsets.place(group, TOPIC, 0, 3)
        await make_again(member)
        await member.close()
        await fill(running.client(), 6)
        await eventually(lambda: are_at(state, groups, 0), "all are placed")
        shutil.copytree(tmp_path / "store", tmp_path / "killed" / "store")
    async with cluster(broker_config(tmp_path / "killed")) as running:
        state = running.broker.state
        await eventually(lambda: are_at(state, [GROUP, *groups], 0), "all are placed again")
        tool = running.client("127.0.0.1@tool")
        for group in (groups[0], groups[-1]):
            stats = await tool.ask(RequestCode.GET_CONSUME_STATS, consumerGroup=group, topic=TOPIC)
            assert b'"brokerOffset":6,"consumerOffset":0' in stats.body


async def are_at(state: BrokerState, groups: list[str], offset: int) -> bool:
    """Is each of the groups there?"""
    return all(state.offsets.committed(group, TOPIC, 0) == offset for group in groups)


async def test_readers_that_no_life_has_placed_yet_are_named_by_the_next_deletion(
    tmp_path: Path,
) -> None:
    async with consumed(tmp_path) as (running, member):
        state, waits = running.broker.state, True

        def other_work() -> Iterator[None]:
            while waits:
                yield

        state.group_configs.find("away")
        state.offsets.place("away", TOPIC, 0, 3)
        state.work.add(other_work())
        for _ in range(2):
            await make_again(member)
            assert state.offsets.committed("away", TOPIC, 0) is None
        waits = False
        await eventually(lambda: are_at(state, ["away"], 0), "it is placed")


async def test_no_report_counts_beyond_the_end_whoever_makes_it(tmp_path: Path) -> None:
    async with consumed(tmp_path) as (running, member):
        tool = running.client("127.0.0.1@tool")
        refused = await tool.commit(CONSUMED + 1)
        assert refused.remark is not None
        assert "lies beyond the end of queue 0 of orders, 10" in refused.remark
        assert committed(running) == CONSUMED
        await report(member, CONSUMED + 1)
        assert committed(running) == CONSUMED


async def test_an_order_lock_of_the_earlier_life_holds_nobody_up(tmp_path: Path) -> None:
    async with consumed(tmp_path) as (running, member):
        queue = MessageQueue(TOPIC, running.broker.state.node.config.broker_name, 0)
        locks, now_ms = running.broker.state.locks, running.broker.state.clock.steady_ms()
        assert locks.lock(GROUP, member.client_id, [queue], now_ms=now_ms) == [queue]
        await make_again(member)
        assert locks.lock(GROUP, "another", [queue], now_ms=now_ms) == [queue]
        assert not locks.was_held_by(GROUP, queue, member.client_id)


async def test_a_reset_that_waits_moves_nobody_in_the_new_life(tmp_path: Path) -> None:
    async with consumed(tmp_path) as (running, member):
        state = running.broker.state
        state.offsets.reset(GROUP, TOPIC, 0, 7)
        state.offsets.expect_reset(GROUP, TOPIC, 0, 7)
        await make_again(member)
        sent = await fill(member, 14)
        assert bodies(await member.pull(0)) == sent
        assert not state.offsets.is_expected_reset(GROUP, TOPIC, 0, 7)


@pytest.mark.parametrize("is_new", [False, True], ids=["an old store", "a new store"])
async def test_a_group_that_was_deleted_goes_on_in_the_topics_present_life(
    tmp_path: Path, *, is_new: bool
) -> None:
    async with consumed(tmp_path, is_new=is_new) as (running, member):
        gone = await member.ask(
            RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, cleanOffset=True
        )
        assert gone.code == ResponseCode.SUCCESS, gone.remark
        sent = await fill(member, 3)
        await member.close()
        back = running.client(member.client_id)
        await back.heartbeat()
        assert bodies(await back.pull(CONSUMED)) == sent, "its members have consumed the others"
        await report(back, CONSUMED + 3)
        assert committed(running) == CONSUMED + 3
        await make_again(back)
        sent = await fill(back, 14)
        assert where_to(await back.pull(CONSUMED + 3)) == 0, "that was another life"


async def test_a_transaction_of_the_earlier_life_never_appears_in_the_new_one(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.make_topic(TOPIC)
        producer = Transactor(client)
        half = await producer.begin("old")
        await make_again(client)
        answer = await producer.end(half, COMMIT)
        assert answer.code == ResponseCode.TRANSACTION_FAILED
        assert "its topic was deleted" in (answer.remark or "")
        assert await kept(client) == []
        assert (await producer.end(await producer.begin("new"), COMMIT)).code == 0
        assert [message.body for message in await kept(client)] == [b"new"]


async def test_a_commit_that_was_done_before_the_deletion_is_done_when_it_is_said_again(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.make_topic(TOPIC)
        producer = Transactor(client)
        half = await producer.begin("old")
        assert (await producer.end(half, COMMIT)).code == 0
        await make_again(client)
        assert (await producer.end(half, COMMIT)).code == 0, "who sends it again sends it twice"
        assert await kept(client) == []


async def test_a_send_back_never_takes_the_message_of_another_store(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.heartbeat()
        sent = await client.send(b"here", UNIQ_KEY="here")
        back = {"offset": 0, "group": GROUP, "delayLevel": 0}
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        refused = await client.ask(code, **back, originMsgId="of another")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "is here, not of another, which is of another store" in (refused.remark or "")
        for named in ("here", sent.fields["msgId"], ""):
            assert (await client.ask(code, **back, originMsgId=named)).code == 0, named


async def test_a_client_that_reports_the_end_of_the_earlier_life_amid_the_next_one_is_not_heard(
    tmp_path: Path,
) -> None:
    """As RocketMQ's C++ client does whenever it holds no message."""
    async with consumed(tmp_path) as (running, member):
        await make_again(member)
        sent = await fill(member, 14)
        assert where_to(await member.pull(CONSUMED)) == 0
        assert bodies(await member.pull(0, maxMsgNums=6)) == sent[:6]
        await report(member, CONSUMED)
        assert committed(running) == 0
        await report(member, 6)
        assert committed(running) == 6


async def test_an_end_never_commits_the_message_of_another_store(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path / "one")) as running:
        of_before = await Transactor(running.client()).begin("a")
    async with cluster(broker_config(tmp_path / "another")) as running:
        client = running.client()
        producer = Transactor(client)
        here = await producer.begin("b")
        assert (here.queue_offset, here.physical_offset) == (
            of_before.queue_offset,
            of_before.physical_offset,
        )
        answer = await producer.end(of_before, COMMIT)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "The message id wrong" in (answer.remark or "")
        assert await kept(client) == []


async def test_what_a_member_still_holds_of_the_earlier_life_is_not_reported_of_the_new_one(
    tmp_path: Path,
) -> None:
    settings = {"window_sample_interval_ms": 100}
    async with consumed(tmp_path, **settings) as (running, member):
        await make_again(member)
        await fill(member, 3)
        broker = running.broker.state.node.config.broker_name
        queue = f'{{"brokerName":"{broker}","queueId":0,"topic":"{TOPIC}"}}'
        held = {"cachedMsgCount": 2, "cachedMsgMinOffset": 8, "cachedMsgMaxOffset": 9}
        member.running_info = {queue: held}
        before = [member.asked_count]

        async def was_asked() -> bool:
            return member.asked_count > before[-1] + 1

        await eventually(was_asked, "the member says what it holds")
        member.running_info = {queue: held | {"cachedMsgMinOffset": 1, "cachedMsgMaxOffset": 2}}
        before.append(member.asked_count)
        await eventually(was_asked, "no answer of before is under way")
        await member.pull(0)

        async def is_reported() -> bool:
            return bool(spooled(tmp_path / "store", "client_windows"))

        await eventually(is_reported, "what it holds of the new life")
    rows = spooled(tmp_path / "store", "client_windows")
    assert {row["first_held"] for row in rows} <= {1, None}, [dict(row) for row in rows]
    assert 1 in {row["first_held"] for row in rows}
