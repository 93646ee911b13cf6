"""Row C11: what belongs together is one entry: over a fail-over all of it is there, or nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from engine.foundation.errors import TidemarkError
from engine.protocol.headers import SendMessageResponseHeader
from engine.protocol.message_ids import parse_offset_message_id
from tests.seeds import seeded
from tests.simulation.broker_group import (
    HOSTS,
    PEERS,
    SHORT_LIVED,
    TOPIC,
    BrokerGroup,
    GroupClient,
    bodies,
    check,
    config_of,
)
from tests.simulation.world import World, run_world

ENDS = 6
WAITS_S = 3.0


async def reached(client: GroupClient, host: str) -> None:
    """Its connections of before a power cut are found to be dead."""
    client.ask_only(host)
    while True:
        with suppress(TidemarkError):
            await client.do(client.send())
            return


def is_open(group: BrokerGroup, host: str, half: SendMessageResponseHeader) -> bool:
    """Does the transaction wait for its end?"""
    half_queue = group.brokers[host].services.sending.half_queue
    message = half_queue.message_at(parse_offset_message_id(half.msg_id)[1])
    assert message is not None, "an acknowledged half message is gone"
    return half_queue.is_open(message)


async def ends(world: World) -> None:
    """The power of a leader fails while it commits a transaction, or right after. Without an index
    nobody could find the message that says so.
    """
    store = replace(config_of(HOSTS[0]).store, message_index_enable=False)
    late = {"transaction_timeout_ms": 61_000, "transaction_op_batch_interval_ms": 60_000}
    group = BrokerGroup(world, store=store, **late)
    await group.start()
    client = GroupClient(group)
    await client.start()
    for _ in range(ENDS):
        host = await group.leader()
        await reached(client, host)
        half, body = await client.do(client.send_half()), client.sent[-1]
        ending = asyncio.ensure_future(client.do(client.end(half, body)))
        await asyncio.sleep(world.random.uniform(0, 0.03))
        group.crash(host, power_cut=True)
        with suppress(TidemarkError):
            await ending
        new = await group.leader()
        is_there = body in bodies(group.brokers[new].state.store, TOPIC)
        assert is_there or body not in client.acknowledged
        assert is_open(group, new, half) is not is_there
        group.boot(host)
        await world.until("all have the same log", group.is_level, within_s=30)
        await reached(client, await group.leader())
        if not is_there:
            await client.do(client.end(half, body))
    leader = await group.leader()
    follower = next(host for host in HOSTS if host != leader)
    group.crash(follower, power_cut=False)
    group.boot(follower, transaction_op_batch_interval_ms=100)
    await asyncio.sleep(2)  # It knows how far transactions are, and has nothing to say.
    await world.until("all have the same log", group.is_level, within_s=30)
    check(group, client)


@seeded(1)
def test_a_commit_and_that_the_transaction_has_ended_are_one_entry(seed: int) -> None:
    run_world(seed, ends)


async def deliveries(world: World) -> None:
    """What waited is delivered once, whoever leads: also behind one that nobody delivers, for its
    topic was deleted meanwhile.
    """
    group = BrokerGroup(world)
    await group.start()
    client = GroupClient(group)
    await client.start()
    first = await group.leader()
    client.ask_only(first)
    await client.do(client.make(SHORT_LIVED[0]))
    for topic in (TOPIC, SHORT_LIVED[0], TOPIC):
        await client.do(client.send_later(topic))
    await client.do(client.delete(SHORT_LIVED[0]))
    await asyncio.sleep(WAITS_S)
    assert len(bodies(group.brokers[first].state.store, TOPIC)) == 2
    group.crash(first, power_cut=True)
    second = await group.leader()
    await reached(client, second)
    await client.do(client.send_later(TOPIC))
    await asyncio.sleep(world.random.uniform(0.9, 1.3))  # It is delivered just before, or after.
    group.crash(second, power_cut=True)
    group.boot(first)
    await group.leader()
    group.boot(second)
    await asyncio.sleep(WAITS_S)
    await world.until("all have the same log", group.is_level, within_s=30)
    check(group, client, answers_min=6)
    cursors = [group.brokers[host].state.delay_levels.cursors() for host in HOSTS]
    assert cursors[0][1] == 4
    assert cursors[0] == cursors[1] == cursors[2]


@seeded(2)
def test_a_delivery_and_how_far_deliveries_are_are_one_entry(seed: int) -> None:
    run_world(seed, deliveries)


async def undelivered(world: World) -> None:
    """A leader that reaches nobody delivers what nobody agrees on, and leads again before anybody
    else has delivered it.
    """
    group = BrokerGroup(world)
    await group.start()
    client = GroupClient(group)
    await client.start()
    host = await group.leader()
    client.ask_only(host)
    await client.do(client.send_later(TOPIC))
    others = [one for one in HOSTS if one != host]
    await asyncio.sleep(0.6)
    group.cut_off(host)
    delays = group.brokers[host].state.delay_levels
    await world.until("it is delivered there", lambda: delays.cursors().get(1) == 1, within_s=2)
    for other in others:
        group.brokers[other].services.delay.may_deliver = lambda: False
    await world.until("another leads", lambda: group.newest_master() in others, within_s=20)
    world.network.heal()
    await world.until("all have the same log", group.is_level, within_s=30)
    new = await group.leader()
    assert not bodies(group.brokers[host].state.store, TOPIC), "it is not taken back"
    raft = group.brokers[new].services.raft
    assert raft is not None
    await world.node(new).run(raft.orders.transfer(PEERS[HOSTS.index(host)]))
    await world.until("it leads again", lambda: group.newest_master() == host, within_s=20)
    await asyncio.sleep(WAITS_S)
    await world.until("all have the same log", group.is_level, within_s=30)
    check(group, client, answers_min=1)


@seeded(1)
def test_what_was_delivered_and_never_agreed_on_is_delivered_again(seed: int) -> None:
    run_world(seed, undelivered)
