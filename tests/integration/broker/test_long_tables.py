"""A broker with long tables: it goes through marks, members and pulls in steps, and does not look
at what stands still. Counted in rows, messages and instructions, never in time.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.config import BrokerConfig
from engine.broker.groups.members import ClientChannel
from engine.broker.groups.membership import Membership
from engine.broker.groups.readers import QueueKey
from engine.broker.offsets.consumer_offsets import Reported
from engine.broker.reporting.mark_reader import MarkReader, Reads
from engine.broker.service_groups import offset_services, reporters
from engine.broker.services import membership_of
from engine.broker.state import BrokerState, assembled
from engine.foundation.chunked_work import ChunkedWork, in_steps
from engine.foundation.limits import (
    LOOP_STEP_ENTRIES_MAX,
    MEMBER_NOTICES_AT_ONCE,
    MEMBERS_LISTED_MAX,
    WATERMARKS_PER_SAMPLE_MAX,
)
from engine.foundation.observing import GroupWatermark, RebalanceEvent
from engine.protocol.bodies import (
    ConsumerData,
    LockBatchRequest,
    LockBatchResponse,
    SubscriptionData,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import MessageQueue
from tests.connection_end import End
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    broker_config,
    cluster,
    eventually,
    watermarks_of,
)
from tests.steps import STEP_INSTRUCTIONS_MAX, instructions_by_step
from tests.store_support import Listener

HOUR_MS = 3_600_000
PAIRS = WATERMARKS_PER_SAMPLE_MAX
CROWD = 400


def quiet(folder: Path) -> BrokerConfig:
    """A broker whose own timers do not come in between."""
    return broker_config(
        folder, sample_interval_ms=HOUR_MS, full_sample_interval_ms=100_000 * HOUR_MS
    )


def watched(running: Cluster) -> tuple[BrokerState, Listener]:
    listener = Listener()
    observed = replace(
        running.broker.state,
        observer=listener,  # type: ignore[arg-type]
        work=ChunkedWork(),
    )
    return observed, listener


def rows(listener: Listener) -> list[GroupWatermark]:
    return [fact for fact in listener.facts if isinstance(fact, GroupWatermark)]


async def test_a_sample_reads_so_many_marks_a_step_and_none_that_stand_still(
    tmp_path: Path,
) -> None:
    async with cluster(quiet(tmp_path)) as running:
        state, listener = watched(running)
        watermarks = watermarks_of(state)
        for number in range(PAIRS):
            state.offsets.commit(f"g{number}", TOPIC, 0, 1, now_ms=state.clock.steady_ms())
        before = 0
        for _ in watermarks.sample(state.clock.steady_ms()):
            assert len(listener.facts) - before <= LOOP_STEP_ENTRIES_MAX
            before = len(listener.facts)
        assert {row.group for row in rows(listener)} == {f"g{n}" for n in range(PAIRS)}
        listener.facts.clear()
        list(watermarks.sample(state.clock.steady_ms()))  # Looks once which topics new groups read.
        still = instructions_by_step(watermarks.sample(state.clock.steady_ms()))
        assert sum(still) < 2 * PAIRS, "hardly an instruction for each that stands still"
        assert listener.facts == []
        state.offsets.commit("g7", TOPIC, 0, 2, now_ms=state.clock.steady_ms())
        one = instructions_by_step(watermarks.sample(state.clock.steady_ms()))
        assert sum(one) < 4 * PAIRS
        assert [row.group for row in rows(listener)] == ["g7"]
        state.offsets.commit("g7", TOPIC, 0, 2, now_ms=state.clock.steady_ms())
        await in_steps(watermarks.sample(state.clock.steady_ms()))
        assert rows(listener)[1:] == [], "nothing waits for it: that it reported again says nothing"
        state.offsets.commit("g7", TOPIC, 0, 3, now_ms=state.clock.steady_ms())
        await in_steps(watermarks.sample(state.clock.steady_ms()))
        again = rows(listener)[1:]
        assert [(row.group, row.reports) for row in again] == [("g7", 2)], "they are counted"


class CountingReader(MarkReader):
    """Counts the pairs whose marks it reads."""

    count = 0

    def of_group(
        self, key: QueueKey, now_ms: int, reads: Reads
    ) -> tuple[GroupWatermark | None, Reported | None]:
        self.count += 1
        return super().of_group(key, now_ms, reads)


@pytest.mark.parametrize("pairs", [200, 2000])
async def test_a_sample_looks_at_the_pairs_that_moved_however_many_exist(
    tmp_path: Path, pairs: int
) -> None:
    async with cluster(quiet(tmp_path)) as running:
        await running.client().send()
        state, _ = watched(running)
        watermarks = watermarks_of(state)
        reader = watermarks._marks = assembled(CountingReader, state)
        for number in range(pairs):
            state.offsets.commit(f"g{number}", TOPIC, 0, 1, now_ms=1)
        for _ in range(2):
            await in_steps(watermarks.sample(1))

        async def looked_at() -> int:
            reader.count = 0
            await in_steps(watermarks.sample(1))
            return reader.count

        assert await looked_at() == 0
        for number in range(20):
            state.offsets.commit(f"g{number}", TOPIC, 0, 0, now_ms=1)
        assert await looked_at() == 20
        for number in range(20):
            state.readers.arrived((f"g{number}", TOPIC, 0), "c", now_ms=2)
        assert await looked_at() == 20, "each has a reader now"
        for number in range(pairs):
            state.offsets.commit(f"g{number}", TOPIC, 0, int(number >= 20), now_ms=3)
        assert await looked_at() == 20, "reports of those that are at the end say nothing"


async def test_steps_of_a_sample_are_as_long_with_ten_times_the_groups(tmp_path: Path) -> None:
    async with cluster(quiet(tmp_path)) as running:
        state, _ = watched(running)
        assert WATERMARKS_PER_SAMPLE_MAX >= 2 * LOOP_STEP_ENTRIES_MAX
        for number in range(2 * LOOP_STEP_ENTRIES_MAX):
            state.offsets.commit(f"g{number}", TOPIC, 0, 1, now_ms=state.clock.steady_ms())
        steps = instructions_by_step(watermarks_of(state).sample(state.clock.steady_ms()))
        assert max(steps) <= STEP_INSTRUCTIONS_MAX


def membership_in(state: BrokerState) -> Membership:
    """The membership of a broker, made once more."""
    offsets = offset_services(state, None)
    return membership_of(state, offsets, reporters(state, offsets).watermarks)


def join(membership: Membership, number: int, group: str = GROUP) -> End:
    end = End()
    channel = ClientChannel(f"c{number:05}", end, "JAVA", 513)  # type: ignore[arg-type]
    data = ConsumerData(
        group_name=group,
        subscription_data_set=[SubscriptionData.build(TOPIC, "*", sub_version=1)],
    )
    membership.heartbeat(channel, data, keep_subscription=False)
    return end


async def test_a_crowd_that_leaves_at_once_is_not_notified_of_each_one(tmp_path: Path) -> None:
    async with cluster(quiet(tmp_path)) as running:
        state, listener = watched(running)
        membership = membership_in(state)
        notices = asyncio.create_task(membership.notices.run())
        work = asyncio.create_task(state.work.run())
        ends = [join(membership, number) for number in range(CROWD)]

        async def newest_is_reported() -> bool:
            return all(end.sent for end in ends)

        await eventually(newest_is_reported, "all hear that the group has changed, once it rests")
        sent_count = sum(len(end.sent) for end in ends)
        at_once = MEMBER_NOTICES_AT_ONCE * (MEMBER_NOTICES_AT_ONCE + 1) // 2
        assert sent_count < at_once + 5 * CROWD, f"{CROWD} joined, {sent_count} notices"
        for end in ends[:-1]:
            membership.lost(end)  # type: ignore[arg-type]
        gone = sum(len(end.sent) for end in ends) - sent_count
        assert gone < at_once + 5 * CROWD, f"{CROWD} left, {gone} notices"
        left = [one for one in listener.facts if isinstance(one, RebalanceEvent)]
        assert [one.kind for one in left].count("LEFT") == CROWD - 1, "each is a fact"
        for task in (notices, work):
            task.cancel()


async def test_of_a_group_too_large_to_list_the_facts_name_who_came_and_who_left(
    tmp_path: Path,
) -> None:
    async with cluster(quiet(tmp_path)) as running:
        state, listener = watched(running)
        membership = membership_in(state)
        ends = [join(membership, number) for number in range(MEMBERS_LISTED_MAX + 1)]
        membership.lost(ends[0])  # type: ignore[arg-type]
        changes = [one for one in listener.facts if isinstance(one, RebalanceEvent)]
        joined, left = changes[-2:]
        assert (joined.kind, joined.client_id, joined.after) == ("JOINED", "c00512", None)
        assert joined.before is not None
        assert len(joined.before) == MEMBERS_LISTED_MAX
        assert (left.kind, left.client_id, left.before) == ("LEFT", "c00000", None)
        assert left.after is not None


async def test_only_what_is_here_can_be_locked(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.heartbeat()
        here = MessageQueue(TOPIC, "broker-a", 0)
        await client.send()

        async def locked(group: str, *queues: MessageQueue) -> list[MessageQueue]:
            wanted = LockBatchRequest(consumer_group=group, client_id="c1", mq_set=list(queues))
            answer = await client.ask(RequestCode.LOCK_BATCH_MQ, wanted.encode())
            assert answer.code == ResponseCode.SUCCESS
            return LockBatchResponse.decode(answer.body).lock_ok_mq_set

        invented = [
            MessageQueue("no-such-topic", "broker-a", 0),
            MessageQueue(TOPIC, "broker-a", 4000),
            MessageQueue(TOPIC, "broker-a", -1),
            MessageQueue(TOPIC, "broker-z", 0),
        ]
        assert await locked(GROUP, here, *invented) == [here]
        assert await locked("no-such-group", here) == []
        assert len(running.broker.state.locks) == 1
