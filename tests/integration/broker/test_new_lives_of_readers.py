"""A topic that was made again, for groups that keep their offsets themselves: who poll, and who
broadcast; and for those that were deleted before it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol.codes import RequestCode
from tests.integration.broker.cluster import GROUP, TOPIC, bodies, broker_config, cluster
from tests.integration.broker.test_new_lives_of_topics import (
    CONSUMED,
    committed,
    fill,
    make_again,
    report,
    where_to,
)


@pytest.mark.parametrize("restarts", [False, True], ids=["at once", "after a restart"])
async def test_a_group_that_only_polls_begins_a_new_life_at_its_beginning(
    tmp_path: Path, *, restarts: bool
) -> None:
    """Its offsets are its own, and it subscribes to nothing: only its pulls show that it reads."""
    async with cluster(broker_config(tmp_path)) as running:
        poller = running.client("127.0.0.1@poller")
        await poller.make_topic(TOPIC)
        await poller.heartbeat(topics=(), consume_type="CONSUME_ACTIVELY")
        await fill(poller, CONSUMED, "old")
        await poller.pull(0)
        await make_again(poller)
        sent = await fill(poller, 14)
        assert committed(running) is None, "nobody knows how far it is"
        if not restarts:
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
                await poller.ask(code, topic=TOPIC, queueId=0)
            moved = await poller.pull(CONSUMED)
            assert where_to(moved) == 0, "whatever it asks, it was there when the topic was deleted"
            back = running.client("127.0.0.1@back")
            assert where_to(await back.pull(CONSUMED)) == 0, "it was away meanwhile"
            assert bodies(await poller.pull(0)) == sent
            assert bodies(await poller.pull(CONSUMED)) == sent[CONSUMED:]
    if restarts:
        async with cluster(broker_config(tmp_path)) as running:
            assert where_to(await running.client("127.0.0.1@back").pull(CONSUMED)) == 0


@pytest.mark.parametrize("model", ["CLUSTERING", "BROADCASTING"])
async def test_whoever_keeps_offsets_itself_chooses_its_own_unless_it_may_have_lived_before(
    tmp_path: Path, model: str
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        witness = running.client("127.0.0.1@witness")
        await witness.make_topic(TOPIC)
        await witness.heartbeat(model=model)
        await make_again(witness)
        sent = await fill(witness, 14)
        other = running.client("127.0.0.1@other")
        if model == "BROADCASTING":
            await other.heartbeat(model=model)
        group = GROUP if model == "BROADCASTING" else "another"
        assert where_to(await other.pull(20, group=group)) == 0, "that is beyond the end"
        if model == "BROADCASTING":  # It may have been away, and remember the earlier life.
            assert where_to(await other.pull(10)) == 0
            assert bodies(await other.pull(0)) == sent
        assert bodies(await other.pull(10, group=group)) == sent[10:]
        assert where_to(await witness.pull(10)) == 0
        assert bodies(await witness.pull(0)) == sent
        assert bodies(await witness.pull(10)) == sent[10:], "it knows the new life by now"


@pytest.mark.parametrize("restarts", [False, True], ids=["same broker", "restarted between"])
async def test_who_broadcasts_and_goes_on_over_a_deletion_gets_all_of_the_new_life(
    tmp_path: Path, *, restarts: bool
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        member = running.client("127.0.0.1@member")
        await member.make_topic(TOPIC)
        await fill(member, CONSUMED)
        await member.heartbeat(model="BROADCASTING")
        await member.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        if not restarts:
            await member.make_topic(TOPIC)
            sent = await fill(member, 14)
            assert where_to(await member.pull(CONSUMED)) == 0
    if restarts:
        async with cluster(broker_config(tmp_path)) as running:
            member = running.client("127.0.0.1@member")
            await member.heartbeat(model="BROADCASTING")
            await member.make_topic(TOPIC)
            sent = await fill(member, 14)
            assert where_to(await member.pull(CONSUMED)) == 0
            assert bodies(await member.pull(0)) == sent


@pytest.mark.parametrize("commits", [False, True], ids=["polls", "commits"])
async def test_a_group_deleted_before_its_topic_read_the_earlier_life_all_the_same(
    tmp_path: Path, *, commits: bool
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        member = running.client("127.0.0.1@member")
        await member.make_topic(TOPIC)
        await fill(member, CONSUMED)
        kind = "CONSUME_PASSIVELY" if commits else "CONSUME_ACTIVELY"
        await member.heartbeat(topics=(TOPIC,) if commits else (), consume_type=kind)
        await member.pull(0)
        if commits:
            await report(member, CONSUMED)
        tool = running.client("127.0.0.1@tool")
        await tool.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP, cleanOffset=True)
        await make_again(tool)
        sent = await fill(tool, 14)
        back = running.client("127.0.0.1@back")
        await back.heartbeat(topics=(TOPIC,) if commits else (), consume_type=kind)
        for one in (back, member):
            assert where_to(await one.pull(CONSUMED)) == 0
            assert bodies(await one.pull(0)) == sent


async def test_a_gauge_beside_a_poller_that_lived_through_the_deletion_has_it_not_believed(
    tmp_path: Path,
) -> None:
    """It asks for the end by time, which is by chance where the poller was before."""
    async with cluster(broker_config(tmp_path)) as running:
        member = running.client("127.0.0.1@member")
        await member.make_topic(TOPIC)
        await fill(member, CONSUMED)
        await member.heartbeat(topics=(), consume_type="CONSUME_ACTIVELY")
        await member.pull(0)
        await make_again(member)
        sent = await fill(member, CONSUMED)
        code, far = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, 1 << 60
        end = await member.ask(code, topic=TOPIC, queueId=0, timestamp=far)
        assert end.fields["offset"] == str(CONSUMED)
        assert where_to(await member.pull(CONSUMED)) == 0
        assert bodies(await member.pull(0)) == sent
