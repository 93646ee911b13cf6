"""A store that is new may stand where another was: nobody knows which offsets its clients remember
of that one, so an offset counts only of a client that read the new store, or that shows by what it
asks that it chose the offset.

REMEMBERED is of the earlier store; the new one holds fourteen messages, or just as many.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine.foundation.limits import QUEUE_KNOWERS_MAX
from engine.foundation.units import MIB
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    RawClient,
    bodies,
    broker_config,
    cluster,
)
from tests.integration.broker.test_new_lives_of_topics import (
    QUEUE,
    committed,
    fill,
    make_again,
    report,
    where_to,
)

REMEMBERED = 10
PUSH, LITE, POLL = "push", "lite", "poll"
KINDS = (PUSH, LITE, POLL)
PUSHING = "CONSUME_PASSIVELY"


@asynccontextmanager
async def new_store(
    tmp_path: Path, count: int = 14, *, resident_bytes: int = MIB
) -> AsyncIterator[tuple[Cluster, RawClient, list[bytes]]]:
    """A new store of so many messages, a client of it, and the bodies."""
    config = broker_config(tmp_path)
    config = replace(config, store=replace(config.store, resident_bytes=resident_bytes))
    async with cluster(config, is_new=True) as running:
        client = running.client("127.0.0.1@member")
        await client.make_topic(TOPIC)
        yield running, client, await fill(client, count)


async def pull(client: RawClient, kind: str, offset: int, group: str = GROUP) -> RemotingCommand:
    """As a push consumer, a lite consumer, or DefaultMQPullConsumer pulls."""
    if kind != LITE:
        return await client.pull(offset, group=group, wait_ms=1000 if kind == PUSH else 0)
    fields = {**QUEUE, "consumerGroup": group, "queueOffset": offset, "maxMsgNums": 32}
    fields |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0}
    return await client.ask(RequestCode.LITE_PULL_MESSAGE, subscription="*", subVersion=0, **fields)


async def ask(client: RawClient, *codes: RequestCode) -> None:
    """Ask these of the queue."""
    for code in codes:
        await client.ask(code, topic=TOPIC, queueId=0, timestamp=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [REMEMBERED, 14], ids=["at the end", "below the end"])
async def test_a_gauge_of_the_lag_in_a_clients_process_has_no_remembered_offset_believed(
    tmp_path: Path, kind: str, count: int
) -> None:
    async with new_store(tmp_path, count) as (_, client, sent):
        await client.committed()
        await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **QUEUE)
        await ask(client, RequestCode.GET_MAX_OFFSET)
        assert where_to(await pull(client, kind, REMEMBERED)) == 0
        assert bodies(await pull(client, kind, 0)) == sent


@pytest.mark.parametrize("kind", KINDS)
async def test_a_client_that_asks_nothing_begins_at_the_beginning(
    tmp_path: Path, kind: str
) -> None:
    async with new_store(tmp_path) as (_, client, sent):
        assert where_to(await pull(client, kind, REMEMBERED)) == 0
        assert bodies(await pull(client, kind, 0)) == sent
        assert bodies(await pull(client, kind, REMEMBERED)) == sent[REMEMBERED:], "it knows it now"


@pytest.mark.parametrize("kind", [LITE, POLL])
@pytest.mark.parametrize("before", [False, True], ids=["new", "topic made again"])
async def test_a_lite_consumer_that_seeks_goes_where_it_will_and_who_polls_cannot_seek(
    tmp_path: Path, kind: str, *, before: bool
) -> None:
    """RocketMQ's seek asks for both ends of the queue before it goes anywhere."""
    async with new_store(tmp_path) as (_, client, _):
        if before:
            await make_again(client)
            await fill(client, 14)
        await ask(client, RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        if kind == LITE:
            assert len(bodies(await pull(client, kind, REMEMBERED))) == 4
        else:
            assert where_to(await pull(client, kind, REMEMBERED)) == 0, "that was a gauge"


@pytest.mark.parametrize("kind", [LITE, POLL])
async def test_a_client_that_asks_for_an_offset_by_time_begins_there(
    tmp_path: Path, kind: str
) -> None:
    async with new_store(tmp_path) as (_, client, _):
        by_time = await client.ask(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic=TOPIC, queueId=0, timestamp=1 << 60
        )
        assert by_time.fields["offset"] == "14"
        assert (await pull(client, kind, 14)).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("kind", [LITE, POLL])
@pytest.mark.parametrize("model", ["CLUSTERING", "BROADCASTING"])
@pytest.mark.parametrize("is_anew", [False, True], ids=["new store", "topic made again"])
async def test_however_many_clients_read_one_queue_each_goes_on_where_it_is(
    tmp_path: Path, kind: str, model: str, *, is_anew: bool
) -> None:
    """They assign it, or broadcast: more than a queue has readers known by name where members
    share.
    """
    async with cluster(broker_config(tmp_path), is_new=not is_anew) as running:
        tool = running.client("127.0.0.1@tool")
        await tool.make_topic(TOPIC)
        if is_anew:
            running.broker.state.offsets.place(GROUP, TOPIC, 0, 0)
            await make_again(tool)
        sent = await fill(tool, 14)
        members = [running.client(f"127.0.0.1@{number}") for number in range(2 * QUEUE_KNOWERS_MAX)]
        for member in members:
            await member.heartbeat(model=model, consume_type="CONSUME_ACTIVELY")
            if model == "CLUSTERING" or not is_anew:
                assert where_to(await pull(member, kind, REMEMBERED)) == 0
            assert bodies(await pull(member, kind, 0)) == sent
        for member in members:
            assert bodies(await pull(member, kind, 8)) == sent[8:]
        back = running.client(members[0].client_id)
        if model == "BROADCASTING" and not is_anew:
            unknown = await pull(back, kind, 8)
            assert unknown.code == ResponseCode.SUBSCRIPTION_NOT_EXIST, "it says first who it is"
        await back.heartbeat(model=model, consume_type="CONSUME_ACTIVELY")
        assert bodies(await pull(back, kind, 8)) == sent[8:]


async def test_who_broadcasts_goes_on_once_it_has_said_who_it_is(tmp_path: Path) -> None:
    async with new_store(tmp_path) as (running, client, sent):
        await running.client("127.0.0.1@other").heartbeat(model="BROADCASTING")
        assert bodies(await pull(client, POLL, 0)) == sent
        await client.heartbeat(model="BROADCASTING", consume_type="CONSUME_ACTIVELY")
        assert bodies(await pull(client, POLL, 8)) == sent[8:]


async def test_who_is_one_too_many_to_be_known_is_believed(tmp_path: Path) -> None:
    """Else it would be sent back with each pull."""
    async with new_store(tmp_path) as (running, client, sent):
        running.broker.state.lives.listeners_max = 0
        running.broker.state.lives.watch({}, new_until_ms=1 << 60, is_first_start=True)
        assert bodies(await pull(client, POLL, REMEMBERED)) == sent[REMEMBERED:]


async def test_a_newcomer_that_hears_that_its_group_is_nowhere_may_begin_at_the_end(
    tmp_path: Path,
) -> None:
    """Only of a long queue it hears that; where the first message is near, it hears 0."""
    async with new_store(tmp_path, resident_bytes=100) as (_, client, _):
        nowhere = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **QUEUE)
        assert nowhere.code == ResponseCode.QUERY_NOT_FOUND
        await ask(client, RequestCode.GET_MAX_OFFSET)
        assert (await client.pull(14)).code == ResponseCode.PULL_NOT_FOUND


async def test_who_reads_the_new_store_reports_no_further_than_it_pulled(tmp_path: Path) -> None:
    """As RocketMQ's C++ client, which reports the end of the earlier life amid the present one."""
    async with new_store(tmp_path) as (running, client, sent):
        await client.heartbeat()
        assert bodies(await client.pull(0, maxMsgNums=6)) == sent[:6]
        await ask(client, RequestCode.GET_MAX_OFFSET)
        await report(client, REMEMBERED)
        assert committed(running) is None
        await report(client, 6)
        assert committed(running) == 6


@pytest.mark.parametrize("asks", [(), (RequestCode.GET_MAX_OFFSET,)], ids=["nothing", "the end"])
@pytest.mark.parametrize("offset", [REMEMBERED, 14], ids=["below the end", "the end"])
async def test_a_tool_sets_any_offset_without_a_look(
    tmp_path: Path, asks: tuple[RequestCode, ...], offset: int
) -> None:
    """As a program does that calls DefaultMQAdminExt.updateConsumeOffset."""
    async with new_store(tmp_path) as (running, tool, _):
        await ask(tool, *asks)
        assert (await tool.commit(offset)).remark is None
        assert committed(running) == offset
        assert (await tool.commit(3)).remark is None
        assert committed(running) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_known", [False, True], ids=["no heartbeat", "a heartbeat after it"])
@pytest.mark.parametrize("before", [None, 2], ids=["new group", "group at 2"])
async def test_who_set_an_offset_and_pulls_after_it_was_no_tool(
    tmp_path: Path, kind: str, *, is_known: bool, before: int | None
) -> None:
    """NewLife.RocketMQ for one waits for the answer to its reports, before its first heartbeat as
    well. What it remembers is taken back, and what another reported is left as it is.
    """
    async with new_store(tmp_path) as (running, client, sent):
        if before is not None:
            running.broker.state.offsets.place(GROUP, TOPIC, 0, before)
        await client.commit(REMEMBERED)
        await client.commit(REMEMBERED)
        if is_known:
            await client.heartbeat(consume_type="CONSUME_ACTIVELY" if kind == POLL else PUSHING)
        assert where_to(await pull(client, kind, REMEMBERED)) == (before or 0)
        assert committed(running) == (before or 0)
        if not is_known:
            refused = await client.commit(REMEMBERED)
            assert f"offset {REMEMBERED} of queue 0 of {TOPIC} is none of" in (refused.remark or "")
        assert bodies(await pull(client, kind, before or 0)) == sent[before or 0 :]


async def test_what_others_reported_is_not_taken_back_from_who_set_an_offset_once(
    tmp_path: Path,
) -> None:
    async with new_store(tmp_path) as (running, tool, sent):
        await tool.commit(3)
        member = running.client("127.0.0.1@another")
        await member.heartbeat()
        assert bodies(await member.pull(3)) == sent[3:]
        await report(member, 12)
        assert bodies(await tool.pull(12)) == sent[12:]
        assert committed(running) == 12


async def test_a_tool_that_sets_what_cannot_be_hears_so(tmp_path: Path) -> None:
    async with new_store(tmp_path) as (running, tool, _):
        refused = await tool.commit(15)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert "lies beyond the end of queue 0" in (refused.remark or "")
        assert committed(running) is None


async def test_who_seeks_sets_an_offset_and_goes_on_there(tmp_path: Path) -> None:
    async with new_store(tmp_path) as (running, client, sent):
        await ask(client, RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        await client.commit(REMEMBERED)
        assert bodies(await pull(client, LITE, REMEMBERED)) == sent[REMEMBERED:]
        assert committed(running) == REMEMBERED


@pytest.mark.parametrize("kind", KINDS)
async def test_what_another_group_of_the_process_was_answered_is_no_offset_of_this_one(
    tmp_path: Path, kind: str
) -> None:
    """Consumers of one process share a connection."""
    async with new_store(tmp_path) as (running, client, sent):
        running.broker.state.offsets.place("another", TOPIC, 0, REMEMBERED)
        at = await client.committed(group="another")
        assert at.fields["offset"] == str(REMEMBERED)
        assert where_to(await pull(client, kind, REMEMBERED)) == 0
        assert bodies(await pull(client, kind, 0)) == sent


async def test_what_a_client_set_itself_is_no_answer_and_no_ground_for_a_report(
    tmp_path: Path,
) -> None:
    async with new_store(tmp_path) as (running, client, sent):
        await client.commit(REMEMBERED)
        assert (await client.committed()).fields["offset"] == str(REMEMBERED), "a tool looks"
        await report(client, REMEMBERED - 1)
        assert committed(running) == REMEMBERED
        assert where_to(await pull(client, POLL, REMEMBERED)) == 0
        assert bodies(await pull(client, POLL, 0)) == sent


@pytest.mark.parametrize("kind", KINDS)
async def test_tools_look_at_any_message_of_a_new_store(tmp_path: Path, kind: str) -> None:
    async with new_store(tmp_path) as (_, tool, sent):
        answer = await pull(tool, kind, REMEMBERED, group="TOOLS_CONSUMER")
        assert bodies(answer) == sent[REMEMBERED:]


@pytest.mark.parametrize(
    ("offset", "expected"), [(20, None), (50, 12)], ids=["of this store", "of what it is a copy of"]
)
async def test_who_read_a_store_before_it_was_put_back_has_nothing_beyond_its_end_at_boot(
    tmp_path: Path, offset: int, expected: int | None
) -> None:
    """A copy after a clean stop, of twenty messages: thirty more went to the store after it was
    made, and forty others to the copy since it was put back.
    """
    async with new_store(tmp_path, 20) as (running, client, _):
        await client.heartbeat()
        assert len(bodies(await pull(client, PUSH, 0))) == 20
        await report(client, 12)
        assert committed(running) == 12
    async with cluster(broker_config(tmp_path), is_new=True) as running:
        client = running.client("127.0.0.1@member")
        await client.heartbeat()
        sent = await fill(client, 40)
        answer = await pull(client, PUSH, offset)
        if expected is None:
            assert bodies(answer) == sent[:32]
        else:
            assert where_to(answer) == expected
            await report(client, offset)
            assert committed(running) == expected
        await pull(client, PUSH, 20)
        assert len(bodies(await pull(client, PUSH, 50))) == 10, "it knows the store now"


@pytest.mark.parametrize("is_new", [True, False])
async def test_however_often_a_broker_starts_an_offset_of_messages_that_are_gone_does_not_count(
    tmp_path: Path, *, is_new: bool
) -> None:
    """Of thirty messages a power cut takes the last ten, which one client had pulled; it comes back
    when twenty others lie in their place and the broker has started again.
    """
    store, cut = tmp_path / "store", tmp_path / "cut"
    async with new_store(tmp_path, 20) as (_, client, _):
        await client.heartbeat()
        await pull(client, PUSH, 0)
        await report(client, 12)
    shutil.copytree(store, cut)
    async with cluster(broker_config(tmp_path), is_new=is_new) as running:
        client = running.client("127.0.0.1@member")
        await client.heartbeat()
        await fill(client, 10)
        await pull(client, PUSH, 20)
    shutil.rmtree(cut / "spool")
    (store / "spool").rename(cut / "spool")
    shutil.rmtree(store)
    cut.rename(store)
    (store / "abort").touch()
    for _ in range(2):
        async with cluster(broker_config(tmp_path), is_new=is_new) as running:
            await fill(running.client(), 20)
    async with cluster(broker_config(tmp_path), is_new=is_new) as running:
        client = running.client("127.0.0.1@member")
        await client.heartbeat()
        assert where_to(await pull(client, PUSH, 30)) == 12
        await report(client, 30)
        assert committed(running) == 12


async def test_who_was_away_over_two_starts_has_nothing_beyond_what_its_group_had_pulled(
    tmp_path: Path,
) -> None:
    """A copy of twenty messages was put back, and got others since, beyond what was remembered."""
    async with new_store(tmp_path, 20) as (_, client, _):
        await client.heartbeat()
        await pull(client, PUSH, 0)
        await report(client, 12)
    async with cluster(broker_config(tmp_path), is_new=True) as running:
        await fill(running.client(), 20)
    async with cluster(broker_config(tmp_path), is_new=True) as running:
        client = running.client("127.0.0.1@member")
        await client.heartbeat()
        assert where_to(await pull(client, PUSH, 30)) == 12
