"""A consumer and its broker on virtual time: what happens in which order when a consumer stops,
when its lock outlives it, when a message cannot be given back, when queues are taken away.

Feature rows: A4, A5, A8, A9, A11, B4, B7, E2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from engine.admin.api.dead_letters import DeadLetterQuery
from engine.client import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    PushConsumer,
)
from engine.client.config import MessageModel
from engine.foundation.errors import ConfigError, CorruptRecord
from engine.foundation.observing import FlushDone, OffsetReport, RebalanceEvent, RetryStep
from engine.protocol.message import MessageExt
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.integration.client.cluster_users import LATER, SUCCESS, Seen
from tests.integration.client.test_consumer_lives import config, send
from tests.integration.client.virtual_cluster import (
    BROKER,
    GROUP,
    ONE,
    OTHER,
    Q0,
    TOPIC,
    VirtualCluster,
    on_virtual_cluster,
)


def at(cluster: VirtualCluster, fact_type: type, **values: object) -> list[int]:
    """Positions of such facts among all that the broker reported."""
    return [
        position
        for position, fact in enumerate(cluster.facts.facts)
        if isinstance(fact, fact_type)
        and all(getattr(fact, name) == value for name, value in values.items())
    ]


@run_by(on_virtual_cluster)
async def test_stop_waits_for_listeners_then_reports_then_leaves_then_lets_go(
    cluster: VirtualCluster,
) -> None:
    ended: list[int] = []

    async def listener(
        messages: Sequence[MessageExt], _: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        await asyncio.sleep(2)
        ended.append(len(cluster.facts.facts))
        return SUCCESS

    never = {"piggyback_commit": False, "persist_first_ms": 10**6, "persist_ms": 10**6}
    consumer = await cluster.consume(ONE, listener, config(**never))
    await cluster.world.until("queues", lambda: len(consumer.windows) == 5, within_s=30)
    await send(cluster, 0, queue_id=0)
    window = next(w for q, w in consumer.windows.items() if (q.topic, q.queue_id) == (TOPIC, 0))
    await cluster.world.until("at work", lambda: window.count == 1, within_s=5)
    assert not cluster.facts.reports
    await cluster.world.node(ONE).run(consumer.stop())

    (reported,) = at(cluster, OffsetReport, topic=TOPIC, queue_id=0, trigger="SHUTDOWN")
    (left,) = at(cluster, RebalanceEvent, kind="LEFT", reason="UNREGISTERED")
    assert ended[0] <= reported < left
    assert cluster.committed()[0] == 1, "the message that was at work is reported"
    assert (window.dropped, window.count, dict(consumer.windows)) == (True, 0, {})
    events = len(cluster.facts.facts)
    await cluster.world.node(ONE).run(consumer.stop())
    assert len(cluster.facts.facts) == events, "once more does nothing"


@run_by(on_virtual_cluster)
async def test_the_lock_of_a_killed_orderly_consumer_holds_until_its_lease_ends(
    cluster: VirtualCluster,
) -> None:
    taken: dict[str, list[float]] = {ONE: [], OTHER: []}
    numbers: list[int] = []

    def on(host: str) -> object:
        async def listener(
            messages: Sequence[MessageExt], _: ConsumeContext
        ) -> ConsumeOrderlyStatus:
            await asyncio.sleep(0.5)
            taken[host].append(cluster.world.loop.time())
            numbers.append(int(messages[0].body))
            return ConsumeOrderlyStatus.SUCCESS

        return listener

    orderly = config(orderly=True, rebalance_ms=2000)
    await cluster.consume(ONE, on(ONE), orderly)  # type: ignore[arg-type]
    await asyncio.sleep(5)
    await send(cluster, *range(40), queue_id=0)
    await cluster.world.until("begun", lambda: len(numbers) >= 10, within_s=30)
    crashed_s = cluster.world.loop.time()
    cluster.world.node(ONE).crash(power_cut=False)
    await cluster.consume(OTHER, on(OTHER), orderly)  # type: ignore[arg-type]
    await cluster.world.until("all", lambda: len(set(numbers)) == 40, within_s=200)
    waited_s = taken[OTHER][0] - crashed_s
    assert 40 <= waited_s <= 75, "a lease of 60 s, renewed up to 20 s before"
    assert numbers[len(taken[ONE]) :] == sorted(numbers[len(taken[ONE]) :])


@run_by(on_virtual_cluster)
async def test_a_message_that_cannot_be_given_back_is_tried_here_again_and_stays_unreported(
    cluster: VirtualCluster,
) -> None:
    tries: list[int] = []

    async def listener(
        messages: Sequence[MessageExt], _: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        tries.append(messages[0].reconsume_times)
        await asyncio.sleep(1)
        return LATER if cut or len(tries) < 2 else SUCCESS

    cut = False
    consumer = await cluster.consume(ONE, listener, config())
    await cluster.world.until("queues", lambda: len(consumer.windows) == 5, within_s=30)
    await send(cluster, 0, queue_id=0)
    await asyncio.sleep(0)
    cut = True
    await cluster.world.until("first try", lambda: len(tries) == 1, within_s=10)
    cluster.world.network.partition(ONE, BROKER)
    await cluster.world.until("tries here", lambda: len(tries) >= 3, within_s=200)
    assert tries[:3] == [0, 1, 2], "counted as if it had come back"
    window = next(w for q, w in consumer.windows.items() if (q.topic, q.queue_id) == (TOPIC, 0))
    assert window.count == 1
    assert cluster.committed().get(0, 0) == 0
    cut = False
    cluster.world.network.heal()
    await cluster.world.until("it succeeds", lambda: window.count == 0, within_s=60)
    reported = lambda: at(cluster, RetryStep, step="LOCAL_RETRY")  # noqa: E731
    await cluster.world.until("they are reported", lambda: len(reported()) >= 2, within_s=60)
    steps = [cluster.facts.facts[position] for position in reported()]
    assert [step.reconsume_times for step in steps][:2] == [1, 2]  # type: ignore[union-attr]
    assert len(steps) == len({step.reconsume_times for step in steps}), "each once"  # type: ignore[union-attr]
    await cluster.world.until("reported", lambda: cluster.committed().get(0) == 1, within_s=60)


@run_by(on_virtual_cluster)
async def test_a_queue_that_a_topic_no_longer_has_is_reported_and_given_up(
    cluster: VirtualCluster,
) -> None:
    seen = Seen()
    never = {"piggyback_commit": False, "persist_first_ms": 10**6, "persist_ms": 10**6}
    consumer = await cluster.consume(ONE, seen, config(rebalance_ms=2000, **never))
    await cluster.world.until("queues", lambda: len(consumer.windows) == 5, within_s=30)
    for queue_id in range(4):
        await send(cluster, queue_id, queue_id=queue_id)
    await cluster.admin.topics.create(cluster.broker.address, TOPIC, read_queues=4, write_queues=2)
    await cluster.world.until("drained", lambda: len(seen.messages) == 4, within_s=30)
    assert sum(queue.topic == TOPIC for queue in consumer.windows) == 4, "still read"
    await cluster.admin.topics.create(
        *(cluster.broker.address, TOPIC),
        read_queues=2,
        write_queues=2,
        force=True,  # Nobody has reported to the broker yet what is consumed.
    )
    fewer = lambda: sum(q.topic == TOPIC for q in consumer.windows) == 2  # noqa: E731
    await cluster.world.until("two queues less", fewer, within_s=60)
    handed_over = [r for r in cluster.facts.reports if r.trigger == "HAND_OVER"]
    assert sorted((r.queue_id, r.offset) for r in handed_over) == [(2, 1), (3, 1)]
    for number in (4, 5):
        await send(cluster, number, queue_id=number - 4)
    await cluster.world.until("the others go on", lambda: len(seen.messages) == 6, within_s=30)


@run_by(on_virtual_cluster)
async def test_dead_letters_are_redriven_no_faster_than_asked(cluster: VirtualCluster) -> None:
    fails = True

    async def listener(
        messages: Sequence[MessageExt], context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        context.delay_level_when_next_consume = -1
        return LATER if fails else SUCCESS

    await cluster.consume(ONE, listener, config())
    await asyncio.sleep(25)
    await send(cluster, *range(8))
    dead = lambda: len(at(cluster, RetryStep, step="DEAD_LETTERED")) == 8  # noqa: E731
    await cluster.world.until("all dead", dead, within_s=30)
    fails = False
    await asyncio.sleep(5)
    letters = await cluster.admin.dead_letters.find(GROUP, DeadLetterQuery())
    assert len(letters) == 8
    times: list[float] = []
    began_s = cluster.world.loop.time()
    await cluster.admin.dead_letters.redrive_all(
        letters,
        who="ada",
        why="fixed",
        per_second=2,
        on_each=lambda _letter: times.append(cluster.world.loop.time() - began_s),
    )
    assert times == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5], abs=0.2)
    assert len(at(cluster, RetryStep, step="REDRIVEN", reason="by ada: fixed")) == 8
    with pytest.raises(ConfigError, match="per_second=0 is not allowed"):
        await cluster.admin.dead_letters.redrive_all(letters, who="ada", why="x", per_second=0)
    assert await cluster.admin.dead_letters.find(GROUP, DeadLetterQuery()) == []


@run_by(on_virtual_cluster)
async def test_a_broadcast_consumer_with_damaged_offsets_begins_once_they_are_repaired(
    cluster: VirtualCluster,
) -> None:
    broadcast = config(message_model=MessageModel.BROADCASTING, local_offset_directory="/off")
    seen = Seen()

    async def boot(runtime: Runtime) -> PushConsumer:
        consumer = PushConsumer(runtime, cluster.client(), GROUP, consumer=broadcast)
        consumer.subscribe(TOPIC, "*", seen)
        folder = f"/off/{consumer.client_id}/{GROUP}"
        runtime.disk.make_directories(folder)
        for name in ("offsets.json", "offsets.json.bak"):
            runtime.disk.write(f"{folder}/{name}", b"{{{")
        with pytest.raises(CorruptRecord, match="repair one of them"):
            await consumer.start()
        runtime.disk.write(f"{folder}/offsets.json", b'{"offsetTable":{}}')
        await consumer.start()
        return consumer

    await cluster.world.node(ONE).boot(boot)
    await send(cluster, 0)
    await cluster.world.until("consumed", lambda: seen.bodies == ["0"], within_s=30)


@pytest.mark.parametrize("where", ConsumeFromWhere)
@run_by(on_virtual_cluster, resident_bytes=1)
async def test_a_new_group_begins_an_old_topic_where_it_wants_to(
    cluster: VirtualCluster, *, where: ConsumeFromWhere
) -> None:
    """Its beginning is far behind, so no broker answers 0; the deprecated values mean the end."""
    expected = {
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: [0, 1, 2, 3, 4],
        ConsumeFromWhere.CONSUME_FROM_TIMESTAMP: [2, 3, 4],
    }.get(where, [4])
    seen = Seen()
    await send(cluster, 0, 1, queue_id=0)
    await asyncio.sleep(32 * 60 if expected == [2, 3, 4] else 1)
    await send(cluster, 2, 3, queue_id=0)
    await cluster.consume(ONE, seen, config(consume_from_where=where))
    await asyncio.sleep(30)
    await send(cluster, 4, queue_id=0)
    await cluster.world.until("the last", lambda: "4" in seen.bodies, within_s=30)
    assert sorted(map(int, seen.bodies)) == expected


@run_by(on_virtual_cluster)
async def test_the_broker_persists_offsets_each_five_seconds_and_only_changes(
    cluster: VirtualCluster,
) -> None:
    booted_s = cluster.world.loop.time()
    await send(cluster, 1, 2, 3, queue_id=0)
    offsets = cluster.broker.state.offsets

    async def persisted(offset: int) -> float:
        await cluster.admin.offsets.commit(GROUP, Q0, offset)
        there = lambda: offsets.persisted(GROUP, TOPIC, 0) == offset  # noqa: E731
        await cluster.world.until("persisted", there, within_s=30)
        return cluster.world.loop.time() - booted_s

    assert [round(await persisted(n)) for n in (1, 2, 3)] == [5, 10, 15]
    writes = len(at(cluster, FlushDone, component="CONSUMER_OFFSETS", action="PERSIST"))
    await asyncio.sleep(60)
    assert len(at(cluster, FlushDone, component="CONSUMER_OFFSETS")) == writes == 3
