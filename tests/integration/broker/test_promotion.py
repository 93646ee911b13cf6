"""A slave that is promoted leads in an epoch of its own, and goes on where the log ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from engine.broker.broker import Broker
from engine.broker.config import BrokerRole
from engine.broker.identity import Role
from engine.foundation.limits import QUEUE_LOCK_LEASE_MS
from engine.protocol.bodies import ClusterInfo
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.message import MessageQueue
from engine.runtime import system_runtime
from tests.integration.broker.cluster import GROUP, TOPIC, RawClient, eventually
from tests.integration.broker.master_and_slaves import Replicated, log_of, replicated
from tests.integration.broker.transactor import COMMIT, ROLLBACK, Transactor
from tests.store_support import bodies_of

EPOCH = 1_800_000_000


async def order(address: str, action: str, **fields: object) -> tuple[int, str]:
    """The code of the answer, and its remark."""
    client = RawClient(address)
    answer = await client.ask(RequestCode.CHANGE_REPLICA, action=action, **fields)
    await client.rpc.close()
    return answer.code, answer.remark or ""


async def promote(address: str, epoch: int = EPOCH, role: str = "ASYNC_MASTER") -> tuple[int, str]:
    return await order(address, "PROMOTE", epoch=epoch, brokerRole=role, inSyncReplicas=2)


async def take_over(stage: Replicated) -> RawClient:
    """The master goes, its slave leads; a client of it."""
    return await take_over_with(stage, lambda: None)


async def take_over_with(stage: Replicated, before: Callable[[], object]) -> RawClient:
    """As `take_over`; `before` the promotion something else is done."""
    assert stage.slave is not None
    await stage.caught_up()
    await stage.master.broker.stop()
    before()
    assert await promote(stage.slave.address) == (ResponseCode.SUCCESS, "")
    return RawClient(stage.slave.address)


async def test_a_promoted_slave_goes_on_where_the_log_ends(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        client = stage.master.client()
        for number in range(12):
            await client.send(b"%d" % number, queue_id=number % 2)
        client = await take_over(stage)
        assert stage.slave is not None
        state = stage.slave.state
        end = state.store.epochs.last.begin
        assert (state.node.role, state.node.term, state.node.broker_id) == (Role.MASTER, EPOCH, 0)
        assert state.store.epochs.leads
        answer = await client.send(b"12", queue_id=0)
        assert (answer.code, answer.fields["queueOffset"]) == (ResponseCode.SUCCESS, "6")
        assert state.store.epochs.number_before(end) == 1
        assert bodies_of(state.store, TOPIC) == [b"%d" % number for number in range(0, 13, 2)]

        async def is_known() -> bool:
            answer = await stage.master.of_name_server().ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            brokers = ClusterInfo.decode(answer.body).broker_addr_table
            return brokers["broker-a"].broker_addrs == {0: client.address}

        await eventually(is_known, "the name server names the new master alone")


async def test_deduplication_and_transactions_follow_the_log(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        client = stage.master.client()
        await client.make_topic(TOPIC, "+message.deduplication=true")
        first = await client.send(b"pay 7", UNIQ_KEY="A1")
        producer = Transactor(client)
        ended, lost, open_one = [await producer.begin(key) for key in ("ended", "lost", "open")]
        await producer.end(ended, COMMIT)
        await producer.end(lost, ROLLBACK)
        assert stage.slave is not None
        topics = stage.slave.state.topics

        async def is_there() -> bool:
            return topics.find(TOPIC) == stage.master.broker.state.topics.find(TOPIC)

        await eventually(is_there, "the slave has the topic and its attributes")
        client = await take_over(stage)
        again = await client.send(b"pay 7", UNIQ_KEY="A1")
        assert again.code == ResponseCode.SUCCESS
        assert again.fields["queueOffset"] == first.fields["queueOffset"]
        assert again.fields["msgId"][16:] == first.fields["msgId"][16:], "before: whom to ask"
        state = stage.slave.state
        waiting = [one.queue_offset for one in state.transactions.open_halves()]
        assert waiting == [open_one.queue_offset]
        assert (await Transactor(client).end(open_one, COMMIT)).code == ResponseCode.SUCCESS
        bodies = bodies_of(state.store, TOPIC)
        assert sorted(bodies) == [b"ended", b"open", b"pay 7"]


async def test_what_was_delivered_before_is_not_delivered_again(tmp_path: Path) -> None:
    levels = (10, 3_600_000)
    async with replicated(tmp_path, delay_levels_ms=levels) as stage:
        client = stage.master.client()
        assert stage.slave is not None
        slave = stage.slave.state
        for number in range(5):
            await client.send(b"early %d" % number, DELAY=1)
        master = stage.master.broker.state

        async def is_delivered() -> bool:
            return len(bodies_of(master.store, TOPIC)) == 5

        await eventually(is_delivered, "the master delivers them")
        await client.send(b"later", DELAY=2)
        await stage.caught_up()
        slave.delay_levels.copy({"offsetTable": {"1": 2, "2": 0}}, 0)  # Older than the log.
        await take_over(stage)
        assert slave.delay_levels.cursors() == {1: 5, 2: 0}
        await asyncio.sleep(1.3)
        assert bodies_of(slave.store, TOPIC) == [b"early %d" % number for number in range(5)]


async def test_a_topic_that_was_not_copied_yet_is_made_of_its_queues(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        client = stage.master.client()
        await client.make_topic("new")
        await client.send(b"of a new topic", topic="new")
        assert stage.slave is not None
        topics = stage.slave.state.topics
        await take_over_with(stage, lambda: topics.delete("new"))
        assert topics.find("new") is not None
        assert bodies_of(stage.slave.state.store, "new") == [b"of a new topic"]


async def test_offsets_beyond_the_log_are_taken_back_before_it_leads(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        client = stage.master.client()
        await client.send(b"the only one")
        await stage.caught_up()
        assert stage.slave is not None
        offsets = stage.slave.state.offsets
        await take_over_with(stage, lambda: offsets.place(GROUP, TOPIC, 0, 9))
        assert offsets.committed(GROUP, TOPIC, 0) == 1


async def test_nobody_gets_an_order_lock_until_the_leases_of_before_are_over(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path) as stage:
        await stage.master.client().send(b"in order")
        await take_over(stage)
        assert stage.slave is not None
        queue = MessageQueue(TOPIC, "broker-a", 0)
        state = stage.slave.state
        now_ms = state.clock.steady_ms()
        assert state.locks.lock(GROUP, "c", [queue], now_ms=now_ms) == []
        after_ms = now_ms + QUEUE_LOCK_LEASE_MS + 1
        assert state.locks.lock(GROUP, "c", [queue], now_ms=after_ms) == [queue]


async def test_orders_that_cannot_be_are_refused_and_change_nothing(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        await stage.master.client().send(b"a message")
        await stage.caught_up()
        assert stage.slave is not None
        master, slave = stage.master.broker.address, stage.slave.address
        for address, action, fields, said in (
            (master, "PROMOTE", {"epoch": EPOCH, "brokerRole": "ASYNC_MASTER"}, "already"),
            (slave, "PROMOTE", {"epoch": 1, "brokerRole": "ASYNC_MASTER"}, "is no news"),
            (slave, "PROMOTE", {"epoch": EPOCH, "brokerRole": "SLAVE"}, "SYNC_MASTER or an"),
            (slave, "PROMOTE", {"epoch": EPOCH, "brokerRole": "KING"}, "KING"),
            (slave, "HOLD", {}, "it is no master"),
            (master, "DEMOTE", {"epoch": 1, "brokerId": 2}, "is over"),
            (master, "DEMOTE", {"epoch": 5, "brokerId": 0}, "brokerId"),
            (slave, "REIGN", {}, "is no order"),
        ):
            code, remark = await order(address, action, **fields)
            assert code == ResponseCode.SYSTEM_ERROR
            assert said in remark, remark
        assert (await stage.master.client().send(b"goes on")).code == ResponseCode.SUCCESS
        await stage.caught_up()
        assert not (tmp_path / "slave" / "store" / "config" / "role.json").exists()


async def test_a_node_that_cannot_serve_slaves_does_not_become_a_sync_master(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path) as stage:
        await stage.master.client().send(b"a message")
        await stage.caught_up()
        assert stage.slave is not None
        state = stage.slave.state
        taken = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        state.node.config = replace(state.node.config, ha_listen_port=port)
        code, remark = await promote(stage.slave.address, role="SYNC_MASTER")
        assert (code, str(port) in remark) == (ResponseCode.SYSTEM_ERROR, True), remark
        assert (state.node.role, state.store.epochs.highest) == (Role.SLAVE, 1)
        assert not (tmp_path / "slave" / "store" / "config" / "role.json").exists()
        assert (await stage.master.client().send(b"it follows on")).code == ResponseCode.SUCCESS
        taken.close()
        assert await promote(stage.slave.address, role="SYNC_MASTER") == (0, "")


async def test_a_master_that_is_held_gives_way_when_another_leads(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        await stage.master.client().send(b"a message")
        await stage.caught_up()
        assert stage.slave is not None
        assert await order(stage.master.broker.address, "HOLD") == (0, "")
        assert await promote(stage.slave.address) == (0, "")
        node = stage.master.broker.state.node

        async def is_slave() -> bool:
            return (node.role, node.term) == (Role.SLAVE, EPOCH)

        await eventually(is_slave, "whoever held it went away, and it follows all the same")


async def test_a_role_that_was_ordered_outlives_a_restart_until_it_is_configured_anew(
    tmp_path: Path,
) -> None:
    async with replicated(tmp_path) as stage:
        await stage.master.client().send(b"a message")
        client = await take_over(stage)
        await client.send(b"of the new master")
        await stage.stop_slave()
        again = await stage.start_slave()
        assert (again.state.node.role, again.state.node.term) == (Role.MASTER, EPOCH)
        assert again.state.node.config.in_sync_replicas == 2
        await again.stop()
        config = replace(
            again._config, broker_role=BrokerRole.ASYNC_MASTER, broker_id=0, in_sync_replicas=1
        )
        third = Broker(system_runtime(), config)
        await third.start()
        stage.slave = third
        assert third.state.node.config.in_sync_replicas == 1, "as it is configured now"
        assert third.state.node.term == EPOCH


async def test_a_master_that_is_demoted_follows_the_one_that_leads(tmp_path: Path) -> None:
    async with replicated(tmp_path) as stage:
        client = stage.master.client()
        await client.send(b"of the first")
        await stage.caught_up()
        assert stage.slave is not None
        former, slave = stage.master.broker, stage.slave
        assert await order(former.address, "HOLD") == (0, "")
        assert (await client.send(b"too late")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert await promote(slave.address, role="SYNC_MASTER") == (0, "")
        assert await order(former.address, "DEMOTE", epoch=EPOCH, brokerId=1) == (0, "")
        new = RawClient(slave.address)

        async def is_acknowledged() -> bool:
            return (await new.send(b"both have it")).code == ResponseCode.SUCCESS

        await eventually(is_acknowledged, "the former master follows", within_s=30)
        assert log_of(former.state.store) == log_of(slave.state.store)
        assert former.state.store.epochs.entries == slave.state.store.epochs.entries
        assert (former.state.node.broker_id, slave.state.node.broker_id) == (1, 0)
        await new.rpc.close()
