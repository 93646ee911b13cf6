"""A topic that many groups read is deleted in many steps of the loop, and so is a group that reads
many topics. Whatever comes between two of them finds nothing of what goes, makes nothing of it
again, and leaves nothing for what is made under the name afterwards.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from engine.broker.config import BrokerConfig
from engine.foundation.chunked_work import in_steps
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import DELETIONS_MAX, WATERMARKS_PER_SAMPLE_MAX
from engine.foundation.observing import GroupWatermark
from engine.protocol.bodies import TopicConfig
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
    eventually,
    watermarks_of,
)
from tests.integration.broker.spooled import spooled
from tests.store_support import Listener

GROUPS = 20_000
"""Of which each has an offset on the topic: some 160 steps."""
PASSES_MAX = 100_000
HOUR_MS = 3_600_000
OTHER = "shipments"


def quiet(folder: Path, **settings: object) -> BrokerConfig:
    """Nothing but what a test asks for."""
    return broker_config(
        folder,
        **{"flush_consumer_offset_interval_ms": HOUR_MS, "sample_interval_ms": HOUR_MS} | settings,
    )


def with_groups(running: Cluster, topic: str = TOPIC, count: int = GROUPS) -> None:
    """Groups with an offset on the topic, and their settings."""
    state = running.broker.state
    state.topics.ensure(topic, 4)
    for number in range(count):
        state.group_configs.find(f"g{number}")
        state.offsets.commit(f"g{number}", topic, 0, 1, now_ms=state.clock.now_ms())
        state.readers.arrived((f"g{number}", topic, 0), "c", now_ms=1)
        state.stats.got(f"g{number}", topic, 1, 100)


def with_topics(running: Cluster, count: int = GROUPS) -> None:
    """Topics on which GROUP has an offset."""
    state = running.broker.state
    state.group_configs.find(GROUP)
    for number in range(count):
        state.topics.put(TopicConfig(f"t{number}", 1, 1, 6))
        state.offsets.commit(GROUP, f"t{number}", 0, 1, now_ms=state.clock.now_ms())


async def deletion(client: RawClient, topic: str = TOPIC) -> RemotingCommand:
    return await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)


async def group_deletion(client: RawClient) -> RemotingCommand:
    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    return await client.ask(code, groupName=GROUP, cleanOffset=True)


async def creation(client: RawClient, topic: str = TOPIC) -> RemotingCommand:
    fields = {"topic": topic, "defaultTopic": "TBW102", "perm": 6, "topicSysFlag": 0}
    fields |= {"readQueueNums": 4, "writeQueueNums": 4, "topicFilterType": "SINGLE_TAG"}
    return await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, order=False)


def under_way(running: Cluster, topic: str = TOPIC) -> bool:
    """Is the topic gone, and not yet all that was kept of it?"""
    state = running.broker.state
    return state.topics.find(topic) is None and topic in state.topics.being_deleted


async def until(holds: Callable[[], bool]) -> None:
    """Look in each pass of the loop, and miss none."""
    for _ in range(PASSES_MAX):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError(f"not within {PASSES_MAX} passes of the loop")


@asynccontextmanager
async def amid_deletion(running: Cluster, topic: str = TOPIC) -> AsyncIterator[None]:
    """What is inside comes between two steps of the deletion of the topic."""
    task = asyncio.create_task(deletion(running.client(), topic))
    await until(lambda: under_way(running, topic))
    yield
    assert under_way(running, topic), "it ended before: nothing came between its steps"
    answer = await task
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@asynccontextmanager
async def amid_group_deletion(running: Cluster) -> AsyncIterator[None]:
    being_deleted = running.broker.state.group_configs.being_deleted
    task = asyncio.create_task(group_deletion(running.client()))
    await until(lambda: GROUP in being_deleted)
    yield
    assert GROUP in being_deleted, "it ended before: nothing came between its steps"
    answer = await task
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def nothing_left(running: Cluster, topic: str = TOPIC) -> bool:
    """Is no offset, reader or count of the topic there?"""
    state = running.broker.state
    return (
        state.offsets.groups_on(topic) == []
        and not any(key[1] == topic for key in state.readers._readings)
        and not any(key[1] == topic for key in state.stats.gets.by_key)
        and state.stats.puts_of(topic) == []
        and not any(key[1] == topic for key in state.offsets._reported)
    )


async def test_an_offset_reported_between_two_steps_is_refused_and_none_is_reported(
    tmp_path: Path,
) -> None:
    async with cluster(quiet(tmp_path)) as running:
        with_groups(running)
        client = running.client()
        await client.heartbeat(GROUP)
        await client.commit(1)
        late = f"g{GROUPS - 1}"
        async with amid_deletion(running):
            refused = await client.commit(7)
            answer = await client.committed(group=late)
            assert running.broker.state.offsets.committed(late, TOPIC, 0) == 1, "not its turn yet"
            ends = await client.ask(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0)
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert (ends.fields or {})["offset"] == "0"
        assert nothing_left(running)
        assert (await creation(client)).code == ResponseCode.SUCCESS
        begin = await client.committed()
        assert begin.fields["offset"] == "0", "it may have read the topic: there were many groups"
        assert (await client.commit(0)).code == ResponseCode.SUCCESS
        offsets = running.broker.state.offsets
        placed = {offsets.committed(group, TOPIC, 0) for group in offsets.groups_of(TOPIC)}
        assert placed == {0}, "groups that read it begin its new life at the beginning"


async def test_a_topic_is_not_made_again_between_two_steps(tmp_path: Path) -> None:
    async with cluster(quiet(tmp_path)) as running:
        with_groups(running)
        client = running.client()
        await client.send(b"old")
        several = json.dumps({"topicConfigList": [{"topicName": OTHER}, {"topicName": TOPIC}]})
        async with amid_deletion(running):
            refusals = [
                await creation(client),
                await client.ask(
                    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, several.encode(), timeout_ms=5000
                ),
                await client.send(b"meanwhile"),
            ]
        for refused in refusals:
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert f"topic {TOPIC} is being deleted" in (refused.remark or "")
        assert running.broker.state.topics.find(OTHER) is None, "none of them when one is refused"
        assert nothing_left(running)
        assert (await client.send(b"new")).code == ResponseCode.SUCCESS
        assert bodies(await client.pull(0)) == [b"new"]


async def test_a_pull_and_one_that_was_held_leave_nothing_of_a_deleted_topic(
    tmp_path: Path,
) -> None:
    async with cluster(quiet(tmp_path, hold_check_interval_ms=50)) as running:
        with_groups(running)
        client = running.client()
        await client.heartbeat(GROUP)
        await client.send(b"old")
        held = asyncio.create_task(client.pull(1, wait_ms=300, timeout_ms=20_000))

        async def is_held() -> bool:
            return running.broker.state.holds.count == 1

        await eventually(is_held, "the pull is held")
        async with amid_deletion(running):
            refused = await client.pull(0)
        assert refused.code == ResponseCode.TOPIC_NOT_EXIST
        answer = await held
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert nothing_left(running)


async def test_a_heartbeat_between_two_steps_counts_and_the_next_makes_the_retry_topic(
    tmp_path: Path,
) -> None:
    retries = f"%RETRY%{GROUP}"
    async with cluster(quiet(tmp_path)) as running:
        with_groups(running, retries)
        client = running.client()
        async with amid_deletion(running, retries):
            heard = await client.heartbeat(GROUP)
        assert heard.code == ResponseCode.SUCCESS, heard.remark
        state = running.broker.state
        members = state.groups.of(GROUP)
        assert members is not None
        assert list(members.members) == [client.client_id]
        assert state.topics.find(retries) is None
        assert nothing_left(running, retries)
        await client.heartbeat(GROUP)
        assert state.topics.find(retries) is not None


async def test_a_message_sent_back_between_two_steps_is_refused_and_stays_where_it_was(
    tmp_path: Path,
) -> None:
    retries = f"%RETRY%{GROUP}"
    async with cluster(quiet(tmp_path)) as running:
        client = running.client()
        await client.send(b"failed")
        with_groups(running, retries)
        running.broker.state.group_configs.find(GROUP)
        back = {"offset": 0, "group": GROUP, "delayLevel": 0}
        async with amid_deletion(running, retries):
            refused = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert f"topic {retries} is being deleted" in (refused.remark or "")
        again = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)
        assert again.code == ResponseCode.SUCCESS, again.remark


async def test_two_who_delete_a_topic_at_once_have_one_deletion_and_other_topics_their_own(
    tmp_path: Path,
) -> None:
    async with cluster(quiet(tmp_path)) as running:
        with_groups(running)
        with_groups(running, OTHER, 1000)
        client, state = running.client(), running.broker.state
        for topic in (TOPIC, OTHER):
            await client.send(b"old", topic=topic)
        deletions = state.store.tombstones.deletions
        async with amid_deletion(running):
            others = [asyncio.create_task(deletion(client)) for _ in range(3)]
            other = asyncio.create_task(deletion(client, OTHER))
            await until(lambda: OTHER in state.topics.being_deleted)
        for answer in await asyncio.gather(*others, other):
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert state.store.tombstones.deletions == deletions + 2
        assert nothing_left(running)
        assert nothing_left(running, OTHER)
        assert not running.broker.services.deletions._under_way
        assert not state.topics.being_deleted
        assert (await creation(client)).code == ResponseCode.SUCCESS


async def test_a_topic_and_a_group_of_it_are_deleted_at_the_same_time(tmp_path: Path) -> None:
    async with cluster(quiet(tmp_path)) as running:
        with_topics(running, 3000)
        with_groups(running, "t2999", 3000)
        client, state = running.client(), running.broker.state
        answers = await asyncio.gather(
            *(deletion(client, f"t{number}") for number in range(2990, 3000)),
            group_deletion(client),
        )
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert state.offsets.pairs() == []
        assert state.offsets._count == 0
        assert nothing_left(running, "t2999")


async def test_a_caller_that_goes_away_does_not_end_a_deletion(tmp_path: Path) -> None:
    async with cluster(quiet(tmp_path)) as running:
        with_groups(running)
        asked = asyncio.create_task(running.broker.services.deletions.delete_topic(TOPIC))
        await until(lambda: under_way(running))
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert under_way(running)
        await until(lambda: not under_way(running))
        assert nothing_left(running)


async def test_offsets_written_amid_a_deletion_bring_nothing_back_after_a_kill(
    tmp_path: Path,
) -> None:
    config = quiet(tmp_path / "first")
    async with cluster(config) as running:
        with_groups(running)
        with_groups(running, OTHER, 10)
        await running.client().send(b"old")
        asked = asyncio.create_task(running.broker.services.deletions.delete_topic(TOPIC))
        await until(lambda: under_way(running))
        await running.broker.services.persistence.save_offsets("TIMER")
        next_life = quiet(tmp_path / "second")
        shutil.copytree(config.store.root, next_life.store.root)
        await asked
    written = json.loads((Path(next_life.config_folder) / "consumerOffset.json").read_text())
    assert not [pair for pair in written["offsetTable"] if pair.startswith(f"{TOPIC}@")]
    async with cluster(next_life) as running:
        assert running.broker.state.topics.find(TOPIC) is None
        assert running.broker.state.offsets.groups_on(TOPIC) == []
        assert len(running.broker.state.offsets.groups_on(OTHER)) == 10
    kinds = {row["kind"] for row in spooled(Path(next_life.store.root), "lifecycle")}
    assert "OFFSETS_TAKEN_BACK" not in kinds


async def test_a_group_is_not_made_again_between_two_steps(tmp_path: Path) -> None:
    async with cluster(quiet(tmp_path)) as running:
        with_topics(running)
        client, state = running.client(), running.broker.state
        made = json.dumps({"groupName": GROUP}).encode()
        makes = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        async with amid_group_deletion(running):
            refusals = [
                await client.commit(7, topic="t0"),
                await client.pull(0, topic="t0"),
                await client.ask(makes, made),
            ]
            answer = await client.committed(topic=f"t{GROUPS - 1}")
            heard = await client.heartbeat(GROUP, ("t0",))
        for refused in refusals:
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert f"group {GROUP} is being deleted" in (refused.remark or "")
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert heard.code == ResponseCode.SUCCESS
        assert state.offsets.topics_of(GROUP) == []
        assert not any(key[0] == GROUP for key in state.readers._readings)
        assert not state.group_configs.known(GROUP)
        members = state.groups.of(GROUP)
        assert members is not None
        assert list(members.members) == [client.client_id], "who reads it is not cut off"
        assert (await client.commit(0, topic="t0")).code == ResponseCode.SUCCESS
        assert state.offsets.topics_of(GROUP) == ["t0"]


async def test_who_asks_twice_for_a_groups_deletion_has_it_once(tmp_path: Path) -> None:
    async with cluster(quiet(tmp_path)) as running:
        with_topics(running)
        state = running.broker.state
        await asyncio.gather(
            *(running.broker.services.deletions.delete_group(GROUP) for _ in range(3))
        )
        assert state.offsets.pairs() == []
        assert not state.group_configs.being_deleted
        assert not running.broker.services.deletions._under_way


async def test_of_too_many_deletions_at_once_some_are_refused(tmp_path: Path) -> None:
    async with cluster(quiet(tmp_path)) as running:
        names = [f"t{number}" for number in range(DELETIONS_MAX + 2)]
        asked = [
            running.broker.services.deletions.delete_topic(name) for name in [*names, names[0]]
        ]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        *done, first_refused, second_refused, joined = outcomes
        assert [*done, joined] == [None] * (DELETIONS_MAX + 1)
        for refused in (first_refused, second_refused):
            assert isinstance(refused, RequestRefused)
            assert refused.code == ResponseCode.SYSTEM_BUSY
        assert f"topic {names[-1]} is not deleted: {DELETIONS_MAX} deletions" in str(second_refused)
        await running.broker.services.deletions.delete_topic(names[-1])
        assert not running.broker.services.deletions._under_way


async def test_a_held_pull_of_a_deleted_group_is_handed_nothing_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with cluster(quiet(tmp_path)) as running:
        client, state = running.client(), running.broker.state
        await client.send(b"first")
        held = asyncio.create_task(client.pull(1, wait_ms=15_000))

        async def is_held() -> bool:
            return state.holds.count == 1

        await eventually(is_held, "the pull is held")
        assert (await group_deletion(client)).code == ResponseCode.SUCCESS
        await client.send(b"second")
        assert (await held).code == ResponseCode.PULL_NOT_FOUND
        assert not any(key[0] == GROUP for key in state.readers._readings)
        assert not any(key[0] == GROUP for key in state.stats.gets.by_key)
        assert bodies(await client.pull(1)) == [b"second"]


async def test_amid_a_deletion_no_mark_of_what_goes_is_reported_nor_afterwards(
    tmp_path: Path,
) -> None:
    async with cluster(quiet(tmp_path)) as running:
        with_groups(running)
        listener = Listener()
        state = replace(running.broker.state, observer=listener)
        watermarks = watermarks_of(state)
        async with amid_deletion(running):
            for _ in watermarks.sample(state.clock.steady_ms()):
                pass
            assert watermarks.waiting_count > 0, "they are looked at when it has ended"
        for _ in range(GROUPS // WATERMARKS_PER_SAMPLE_MAX + 1):
            await in_steps(watermarks.sample(state.clock.steady_ms()))
        assert watermarks.waiting_count == 0
    assert [fact for fact in listener.facts if isinstance(fact, GroupWatermark)] == []


async def test_amid_a_groups_deletion_no_mark_of_it_is_reported_nor_afterwards(
    tmp_path: Path,
) -> None:
    async with cluster(quiet(tmp_path)) as running:
        with_topics(running)
        for number in range(0, GROUPS, 7):
            key = (GROUP, f"t{number}", 0)
            running.broker.state.readers.arrived(key, "c", now_ms=1)
        listener = Listener()
        state = replace(running.broker.state, observer=listener)
        watermarks = watermarks_of(state)
        async with amid_group_deletion(running):
            for _ in watermarks.sample(state.clock.steady_ms()):
                pass
        for _ in range(GROUPS // WATERMARKS_PER_SAMPLE_MAX + 1):
            await in_steps(watermarks.sample(state.clock.steady_ms()))
    assert [fact for fact in listener.facts if isinstance(fact, GroupWatermark)] == []
