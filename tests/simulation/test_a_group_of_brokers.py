"""Row C11: three brokers agree on messages, offsets and topics, through kills and partitions."""

from __future__ import annotations

import asyncio

import pytest

from engine.foundation.errors import RequestRefused, TidemarkError
from engine.protocol.codes import ResponseCode
from tests.seeds import seeded
from tests.simulation.broker_group import (
    GROUP,
    HOSTS,
    PEERS,
    SHORT_LIVED,
    TOPIC,
    BrokerGroup,
    GroupClient,
    bodies,
    check,
)
from tests.simulation.world import World, run_world
from tests.simulation.world.disk import VirtualDisk

FAULTS = 6


async def fault(group: BrokerGroup) -> None:
    """A kill, a power cut, a partition, a disk that hangs; mostly the leader's."""
    world, choice = group.world, group.world.random
    master = group.newest_master()
    host = master if master is not None and choice.random() < 0.6 else choice.choice(HOSTS)
    kind = choice.random()
    if kind < 0.15:
        group.hang_disk(host, choice.uniform(0.5, 4))
        return
    if kind < 0.5:
        group.cut_off(host)
        await asyncio.sleep(choice.uniform(0.5, 6))
        world.network.heal()
        return
    if world.node(host).up:
        group.crash(host, power_cut=choice.random() < 0.6)
    await asyncio.sleep(choice.uniform(0.1, 4))
    group.boot(host)


async def story(world: World) -> None:
    group = BrokerGroup(world)
    await group.start()
    await world.until(
        "somebody leads", lambda: bool(group.masters()) or bool(group.ends), within_s=20
    )
    assert not group.ends
    client = GroupClient(group)
    await client.start()
    work = asyncio.get_running_loop().create_task(client.run())
    for _ in range(FAULTS):
        await asyncio.sleep(world.random.uniform(0.5, 6))
        await fault(group)
    for host in HOSTS:
        group.boot(host)
    await world.until("somebody leads again", lambda: bool(group.masters()), within_s=30)
    await asyncio.sleep(2)
    client.is_done = True
    await work
    await world.until("all have the same log", group.is_level, within_s=30)
    assert not group.ends
    check(group, client)


@seeded(3)
def test_three_brokers_keep_what_they_acknowledged(seed: int) -> None:
    run_world(seed, story)


async def cut_off(world: World) -> None:
    """A leader that reaches nobody promises nothing, and forgets what it alone knows.

    The topic was deleted and made again in its own time: that is not done a second time when it
    makes its tables again.
    """
    group = BrokerGroup(world)
    await group.start()
    await world.until("somebody leads", lambda: bool(group.masters()), within_s=20)
    client = GroupClient(group)
    await client.start()
    host = group.newest_master()
    assert host is not None
    client.ask_only(host)
    for _ in range(3):
        await client.do(client.send())
    await client.do(client.report(2))
    await asyncio.sleep(6)  # Snapshots are written.
    await client.do(client.make(SHORT_LIVED[0]))
    await client.do(client.delete(SHORT_LIVED[0]))
    await client.do(client.make(SHORT_LIVED[0]))
    others = [one for one in HOSTS if one != host]
    group.cut_off(host)
    questions = [
        asyncio.ensure_future(client.do(client.ask())),
        asyncio.ensure_future(client.do(ask_of_nobody(client))),
    ]
    await asyncio.sleep(0.1)  # Nothing waits to be agreed on yet.
    promises = [
        client.do(client.report(3)),
        client.do(client.send()),
        client.do(client.make(SHORT_LIVED[1])),
        save_later(group, host),
        delete_last(client),
    ]
    kept = await asyncio.gather(*questions, *promises, return_exceptions=True)
    assert all(isinstance(one, TidemarkError) for one in kept), kept
    await world.until("another leads", lambda: group.newest_master() in others, within_s=20)
    new = group.newest_master()
    assert new is not None
    tables = group.brokers[new].state
    assert tables.offsets.committed(GROUP, TOPIC, 0) == 2
    assert tables.topics.find(SHORT_LIVED[1]) is None
    client.ask_only(new)
    await client.do(client.send())
    world.network.heal()
    await world.until("all have the same log", group.is_level, within_s=30)
    check(group, client, answers_min=6)
    group.crash(host, power_cut=False)
    group.boot(host)
    await world.until("all have the same log again", group.is_level, within_s=30)
    check(group, client, answers_min=6)
    await goes_on(group, client, host)


async def goes_on(group: BrokerGroup, client: GroupClient, host: str) -> None:
    """Whoever leads goes on where the topic that was made again is."""
    await group.world.until("somebody leads", lambda: bool(group.masters()), within_s=10)
    if group.newest_master() != host:
        await group.order("TRANSFER", PEERS[HOSTS.index(host)])
    await group.world.until("it leads", lambda: group.newest_master() == host, within_s=10)
    client.ask_only(host)
    await client.do(client.put_into(SHORT_LIVED[0], b"next"))
    await group.world.until("all have the same log", group.is_level, within_s=30)
    for one in HOSTS:
        found = bodies(group.brokers[one].state.store, SHORT_LIVED[0])
        assert found == [b"in " + SHORT_LIVED[0].encode(), b"next"], one


async def ask_of_nobody(client: GroupClient) -> None:
    """That a group has no offset is an answer as well."""
    with pytest.raises(RequestRefused) as refused:
        await client.ask_of("nobody")
    assert refused.value.code != ResponseCode.QUERY_NOT_FOUND, "it answers what it alone knows"
    raise refused.value


async def delete_last(client: GroupClient) -> None:
    """Nothing is saved while a deletion is under way."""
    await asyncio.sleep(0.3)
    await client.do(client.delete(SHORT_LIVED[0]))


async def save_later(group: BrokerGroup, host: str) -> None:
    """Have a snapshot written that has in it what was put, and is not agreed on."""
    await asyncio.sleep(0.1)
    raft = group.brokers[host].services.raft
    assert raft is not None
    await group.world.node(host).run(raft.save_tables())


@seeded(1)
def test_a_leader_that_is_cut_off_promises_nothing(seed: int) -> None:
    run_world(seed, cut_off)


async def lagging(world: World) -> None:
    """A follower that comes late deletes what was deleted, and keeps what came after it."""
    group = BrokerGroup(world)
    await group.start()
    await world.until("somebody leads", lambda: bool(group.masters()), within_s=20)
    client = GroupClient(group)
    await client.start()
    host = group.newest_master()
    assert host is not None
    client.ask_only(host)
    await client.do(client.make(SHORT_LIVED[0]))
    late = next(one for one in HOSTS if one != host)
    group.cut_off(late)
    await client.do(client.delete(SHORT_LIVED[0]))
    await client.do(client.make(SHORT_LIVED[0]))
    await asyncio.sleep(1)
    world.network.heal()
    await world.until("all have the same log", group.is_level, within_s=30)
    check(group, client, answers_min=3)
    await goes_on(group, client, late)


@seeded(1)
def test_a_follower_that_comes_late_keeps_what_came_after_a_deletion(seed: int) -> None:
    run_world(seed, lagging)


async def deposed_amid_a_deletion(world: World) -> None:
    """The disk of a leader hangs when it is about to carry a deletion out: another one leads, and
    nobody knows anything of the topic that others do not.
    """
    group = BrokerGroup(world)
    await group.start()
    await world.until("somebody leads", lambda: bool(group.masters()), within_s=20)
    client = GroupClient(group)
    await client.start()
    host = group.newest_master()
    assert host is not None
    client.ask_only(host)
    await client.do(client.make(SHORT_LIVED[0]))
    await client.do(client.report_of(SHORT_LIVED[0], 1))
    raft = group.brokers[host].services.raft
    assert raft is not None
    deletion = asyncio.ensure_future(client.do(client.delete(SHORT_LIVED[0])))
    end_s = asyncio.get_running_loop().time() + 5
    while raft.tables.visible_limit is None and not deletion.done():  # noqa: ASYNC110
        await asyncio.sleep(0.0005)
    await asyncio.sleep(0.004)
    world.node(host).disk.still_until_s = end_s
    report = asyncio.ensure_future(client.do(client.report_of(SHORT_LIVED[0], 0)))
    sending = asyncio.ensure_future(client.do(client.send()))
    await world.until("another leads", lambda: group.newest_master() != host, within_s=20)
    await asyncio.gather(deletion, report, sending, return_exceptions=True)
    new = await group.leader()
    client.ask_only(new)
    await client.do(client.send())
    await world.until("all have the same log", group.is_level, within_s=30)
    assert not group.ends
    check(group, client, answers_min=3)


@seeded(4)
def test_a_leader_deposed_amid_a_deletion_goes_back_to_what_all_have(seed: int) -> None:
    run_world(seed, deposed_amid_a_deletion)


async def reported_amid_a_deletion(world: World) -> None:
    """While a leader's disk takes its time for a deletion nobody sets an offset of the topic."""
    group = BrokerGroup(world)
    await group.start()
    host = await group.leader()
    client = GroupClient(group)
    await client.start()
    client.ask_only(host)
    await client.do(client.make(SHORT_LIVED[0]))
    raft = group.brokers[host].services.raft
    assert raft is not None
    deletion = asyncio.ensure_future(client.do(client.delete(SHORT_LIVED[0])))
    while raft.tables.visible_limit is None and not deletion.done():  # noqa: ASYNC110
        await asyncio.sleep(0.0005)
    world.node(host).disk.still_until_s = asyncio.get_running_loop().time() + 0.5
    report = client.do(client.report_of(SHORT_LIVED[0], 1))
    await asyncio.gather(deletion, report, return_exceptions=True)
    await world.until("all have the same log", group.is_level, within_s=30)
    assert group.newest_master() == host
    check(group, client, answers_min=2)


@seeded(1)
def test_an_offset_that_is_reported_amid_a_deletion_is_nobodys(seed: int) -> None:
    run_world(seed, reported_amid_a_deletion)


async def clock_ahead(world: World) -> None:
    """A leader whose clock is ten seconds ahead hands over."""
    group = BrokerGroup(world)
    await group.start()
    await world.until("somebody leads", lambda: bool(group.masters()), within_s=20)
    host = group.newest_master()
    assert host is not None
    raft = group.brokers[host].services.raft
    assert raft is not None
    assert not raft.is_clock_ahead()
    group.set_clock(host, 10_000)
    await world.until("another leads", lambda: group.newest_master() != host, within_s=10)
    await world.until("it knows", raft.is_clock_ahead, within_s=5)
    new = group.brokers[await group.leader()].services.raft
    assert new is not None
    assert not new.is_clock_ahead()


@seeded(1)
def test_a_leader_whose_clock_is_ahead_hands_over(seed: int) -> None:
    run_world(seed, clock_ahead)


async def full_disk(world: World) -> None:
    """A leader whose disk takes no more messages hands over."""
    group = BrokerGroup(world)
    await group.start()
    host = await group.leader()
    world.node(host).disk.free_bytes = 4000
    await world.until("another leads", lambda: group.newest_master() != host, within_s=60)
    client = GroupClient(group)
    await client.start()
    client.ask_only(await group.leader())
    await client.do(client.send())


@seeded(1)
def test_a_leader_whose_disk_is_full_hands_over(seed: int) -> None:
    run_world(seed, full_disk)


async def other_peers(world: World) -> None:
    """Who is to found a group with others than they with it founds none."""
    group = BrokerGroup(world)
    await group.start(first=HOSTS[:2])
    group.boot(HOSTS[2], raft_peers=(*PEERS, "n3-127.0.0.9:40911"))
    await asyncio.sleep(20)
    assert not group.masters()
    group.crash(HOSTS[2], power_cut=False)
    group.boot(HOSTS[2])
    await world.until("somebody leads", lambda: bool(group.masters()), within_s=20)


@seeded(1)
def test_nodes_that_name_other_peers_found_no_group(seed: int) -> None:
    run_world(seed, other_peers)


async def moved(world: World) -> None:
    """A node with another address is somebody new, with the log that it had."""
    group = BrokerGroup(world)
    await group.start()
    await world.until("somebody leads", lambda: bool(group.masters()), within_s=20)
    client = GroupClient(group)
    await client.start()
    host = next(one for one in HOSTS if one != group.newest_master())
    client.ask_only(await group.leader())
    await client.do(client.send())
    old, new = PEERS[HOSTS.index(host)], PEERS[HOSTS.index(host)].replace(":40911", ":40912")
    group.crash(host, power_cut=False)
    peers = tuple(new if one == old else one for one in PEERS)
    group.boot(host, raft_peers=peers)
    await asyncio.sleep(3)
    assert host not in group.brokers
    await group.order("REMOVE", old)
    await group.order("ADD", new)
    await world.until("it serves", lambda: host in group.brokers, within_s=30)
    await world.until("all have the same log", group.is_level, within_s=30)
    check(group, client, answers_min=1)


@seeded(1)
def test_a_node_with_another_address_is_taken_in_as_somebody_new(seed: int) -> None:
    run_world(seed, moved)


async def slow_followers(world: World) -> None:
    """Who leads waits for the disks of the others, and hears from them all the time."""
    group = BrokerGroup(world)
    await group.start()
    await world.until("somebody leads", lambda: bool(group.masters()), within_s=20)
    client = GroupClient(group)
    await client.start()
    host = group.newest_master()
    assert host is not None
    client.ask_only(host)
    for _ in range(3):
        await client.do(client.send())
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 2
    for other in HOSTS:
        if other != host:
            world.node(other).disk.still_until_s = until_s
    await client.do(client.report(2))
    assert loop.time() >= until_s, "it was acknowledged before a majority had it on disk"
    assert group.newest_master() == host


@seeded(1)
def test_an_offset_is_acknowledged_when_a_majority_has_it_on_disk(seed: int) -> None:
    run_world(seed, slow_followers)


async def killed_before_a_deletion(world: World) -> None:
    """A follower has the record of a deletion, and is killed before it may carry it out."""
    group = BrokerGroup(world)
    await group.start()
    await world.until("somebody leads", lambda: bool(group.masters()), within_s=20)
    client = GroupClient(group)
    await client.start()
    host = group.newest_master()
    assert host is not None
    client.ask_only(host)
    await client.do(client.make(SHORT_LIVED[0]))
    await asyncio.sleep(6)  # Snapshots are written.
    killed = next(one for one in HOSTS if one != host)
    loop = asyncio.get_running_loop()
    world.node(killed).disk.still_until_s = loop.time() + 5
    await client.do(client.delete(SHORT_LIVED[0]))
    await asyncio.sleep(0.5)
    group.crash(killed, power_cut=False)
    world.node(killed).disk.still_until_s = 0
    group.boot(killed)
    await world.until("all have the same log", group.is_level, within_s=30)
    check(group, client, answers_min=2)


@seeded(1)
def test_a_deletion_is_carried_out_by_who_was_killed_before(seed: int) -> None:
    run_world(seed, killed_before_a_deletion)


async def left_behind(world: World) -> None:
    """A follower comes back when the leader's log has no more what it lacks."""
    group = BrokerGroup(world)
    await group.start()
    await world.until("somebody leads", lambda: bool(group.masters()), within_s=20)
    client = GroupClient(group)
    await client.start()
    host = group.newest_master()
    late = next(one for one in HOSTS if one != host)
    work = asyncio.get_running_loop().create_task(client.run())
    await asyncio.sleep(1)
    group.cut_off(late)
    await world.until("files of the log are full", lambda: log_end(group) > 40_000, within_s=200)
    await asyncio.sleep(3)
    for other in HOSTS:
        if other != late:
            await world.node(other).run(forget_begin(group, other))
    world.network.heal()
    await asyncio.sleep(3)
    client.is_done = True
    await work
    await world.until("all have the same log", group.is_level, within_s=30)
    assert not group.ends
    assert group.brokers[late].state.store.physical_min > 0, "it got the whole log"
    client.acknowledged = [body for body in client.acknowledged if body in kept(group)]
    check(group, client)


@seeded(1)
def test_a_follower_that_lacks_what_was_deleted_gets_tables_and_the_rest(seed: int) -> None:
    run_world(seed, left_behind)


async def lost_disk(world: World) -> None:
    """A host gets a new disk. As somebody new it gets tables and log, which begins behind what was
    deleted everywhere; with it alone beside one of the others the group goes on.
    """
    group = BrokerGroup(world)
    await group.start()
    await world.until("somebody leads", lambda: bool(group.masters()), within_s=20)
    client = GroupClient(group)
    await client.start()
    work = asyncio.get_running_loop().create_task(client.run())
    await world.until("files of the log are full", lambda: log_end(group) > 24_000, within_s=200)
    host = world.random.choice(HOSTS)
    group.crash(host, power_cut=True)
    world.node(host).disk = VirtualDisk(world, host)
    await world.until("somebody leads again", lambda: bool(group.masters()), within_s=20)
    for other in group.brokers:
        await world.node(other).run(forget_begin(group, other))
    group.boot(host)
    name = PEERS[HOSTS.index(host)]
    await asyncio.sleep(3)
    assert host not in group.brokers, "somebody new serves before it belongs to the group"
    await group.order("REMOVE", name)
    await group.order("ADD", name)
    await world.until("the new one serves", lambda: host in group.brokers, within_s=30)
    third = next(one for one in HOSTS if one not in (host, group.newest_master()))
    group.crash(third, power_cut=True)
    await asyncio.sleep(5)
    client.is_done = True
    await work
    group.boot(third)
    await world.until("all have the same log", group.is_level, within_s=30)
    assert not group.ends
    assert group.brokers[host].state.store.physical_min > 0, "it got the whole log"
    client.acknowledged = [body for body in client.acknowledged if body in kept(group)]
    check(group, client)


def log_end(group: BrokerGroup) -> int:
    return max((broker.state.store.physical_max for broker in group.brokers.values()), default=0)


def kept(group: BrokerGroup) -> set[bytes]:
    """Messages that retention has left everywhere."""
    found = [set(bodies(one.state.store, TOPIC)) for one in group.brokers.values()]
    assert all(len(one) > 5 for one in found)
    return set.intersection(*found)


async def forget_begin(group: BrokerGroup, host: str) -> None:
    """Retention takes what is old on one node, and its group hears of it."""
    broker = group.brokers[host]
    await asyncio.sleep(6)  # The tables are saved meanwhile.
    store = broker.state.store
    await store.retention.run(broker.state.clock.wall_ms(), by_hand=True)
    assert store.physical_min > 0, "nothing was deleted"


@seeded(1)
def test_a_broker_that_lost_its_disk_is_taken_in_as_somebody_new(seed: int) -> None:
    run_world(seed, lost_disk)
