"""The role of a broker changes while it works: who puts, who acknowledges, who answers readers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.broker.broker import Broker
from engine.broker.identity import Role
from engine.broker.offsets.consumer_offsets import ConsumerOffsets, from_document
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import DataVersion, LockBatchRequest, LockBatchResponse
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.fastjson import loads
from engine.protocol.message import MessageQueue
from engine.runtime import system_runtime
from engine.store import FlushDiskType
from tests.connection_end import End
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    bodies,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.spooled import spooled
from tests.integration.broker.test_access_by_code import batch_of_one, request_fields
from tests.integration.broker.test_answers_wait_for_the_sync import scene, whole_table
from tests.integration.broker.transactor import ROLLBACK, Transactor
from tests.seeds import seeded
from tests.unit.broker.fake_replica import FakeReplica

SENDERS, SENDS_EACH, FLIP_S_MAX = 8, 40, 0.04
AS_ROCKETMQ = {
    RequestCode.END_TRANSACTION: ResponseCode.SLAVE_NOT_AVAILABLE,
    RequestCode.CONSUMER_SEND_MSG_BACK: ResponseCode.SYSTEM_ERROR,
}
"""What a slave answers to those that store; SERVICE_NOT_AVAILABLE to all others."""


def become(running: Cluster, role: Role, term: int) -> None:
    running.broker.services.roles.become(role, term)


# ---- under load ---------------------------------------------------------------------------------


@dataclass
class Acknowledged:
    """A success, and what the broker was in the step in which it was said."""

    role: Role
    term: int
    place: int


class FlippedBroker:
    """Senders call the handler itself, so that the step of an answer is known."""

    def __init__(self, running: Cluster, random: Random, replica: FakeReplica | None) -> None:
        self.running, self.random, self.replica = running, random, replica
        self.node, self.store = running.broker.state.node, running.broker.state.store
        self.send = whole_table(running)[RequestCode.SEND_MESSAGE]
        self.acknowledged: list[Acknowledged] = []
        self.codes: set[int] = set()
        self.begins = {0: self.store.physical_max}
        """Term → where the log ended when this node began to lead in it."""
        self.ends: dict[int, int] = {}

    async def some_turns(self) -> None:
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)

    async def sender(self, number: int) -> None:
        for count in range(SENDS_EACH):
            await self.some_turns()
            if self.node.role is not Role.MASTER and self.random.random() < 0.9:
                await asyncio.sleep(FLIP_S_MAX / 2)
            new_topic = self.random.random() < 0.2
            end = HeardEnd(self.hear)
            request = send_request(f"t-{number}-{count}" if new_topic else TOPIC)
            try:
                found: Any = self.send(end, request)  # type: ignore[arg-type]
                answer = found if isinstance(found, RemotingCommand | None) else await found
            except RequestRefused as error:
                self.codes.add(error.code)
                continue
            if answer is not None:
                self.hear(answer)
            else:
                await asyncio.wait_for(end.heard.wait(), 30)

    def hear(self, answer: RemotingCommand) -> None:
        self.codes.add(answer.code)
        if answer.code == ResponseCode.SUCCESS:
            place = int(answer.fields["msgId"][16:], 16)
            self.acknowledged.append(Acknowledged(self.node.role, self.node.term, place))

    async def flip(self, sending: asyncio.Future[Any]) -> None:
        while not sending.done():
            await self.some_turns()
            if self.random.random() < 0.7:
                await asyncio.sleep(self.random.random() * FLIP_S_MAX)
            if self.node.role is Role.MASTER:
                self.ends[self.node.term] = self.store.physical_max
            role = self.random.choice((Role.MASTER, Role.MASTER, Role.SLAVE, Role.NONE))
            if role is Role.MASTER:
                self.begins[self.node.term + 1] = self.store.physical_max
            become(self.running, role, self.node.term + (role is Role.MASTER))
        become(self.running, Role.SLAVE, self.node.term + 1)
        self.ends.setdefault(max(self.begins), self.store.physical_max)

    async def acknowledge(self) -> None:
        """The replica is late by some turns, and at times by the bytes of a former term."""
        while self.replica is not None:
            term, end = self.node.term, self.store.physical_max
            await self.some_turns()
            self.replica.acknowledge(term, end)
            await asyncio.sleep(0)


class HeardEnd(End):
    """An end whose late answers are heard in their step."""

    def __init__(self, hear: Any) -> None:
        super().__init__()
        self._hear, self.heard = hear, asyncio.Event()

    def answer(self, request: RemotingCommand, response: RemotingCommand) -> None:
        self._hear(response)
        self.heard.set()


def send_request(topic: str) -> RemotingCommand:
    fields = {
        "producerGroup": "p",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
    }
    return RemotingCommand.request(RequestCode.SEND_MESSAGE, fields, b"x")


@pytest.mark.parametrize("kind", ["flushed and copied", "neither"])
@seeded(3)
async def test_no_put_is_acknowledged_by_a_node_that_was_not_master_between(
    tmp_path: Path, kind: str, seed: int
) -> None:
    is_safe = kind != "neither"
    flush = FlushDiskType.SYNC_FLUSH if is_safe else FlushDiskType.ASYNC_FLUSH
    async with cluster(broker_config(tmp_path, flush=flush, telemetry=False)) as running:
        replica = FakeReplica() if is_safe else None
        if replica is not None:
            safety = running.broker.state.safety
            safety.conditions = (*safety.conditions, replica.condition())
        flipped = FlippedBroker(running, Random(seed), replica)
        acknowledging = asyncio.create_task(flipped.acknowledge())
        sending = asyncio.gather(*(flipped.sender(one) for one in range(SENDERS)))
        await asyncio.gather(sending, flipped.flip(sending))
        acknowledging.cancel()
        assert len(flipped.acknowledged) > SENDERS
        for one in flipped.acknowledged:
            assert one.role is Role.MASTER, one
            assert flipped.begins[one.term] <= one.place < flipped.ends[one.term], one
        assert ResponseCode.SERVICE_NOT_AVAILABLE in flipped.codes, "some met no master"
        assert ResponseCode.SYSTEM_ERROR in flipped.codes, "the fate of some is unknown"
        steps = sorted(flipped.begins)
        for before, after in pairwise(steps):
            assert flipped.begins[after] == flipped.ends[before], "nobody but a master stored"


async def test_a_long_batch_that_was_put_in_another_term_is_not_acknowledged(
    tmp_path: Path,
) -> None:
    """Its answer is written in another step than its put."""
    async with cluster(broker_config(tmp_path)) as running:
        handlers = whole_table(running)
        client, store = running.client(), running.broker.state.store
        await client.send(b"makes the topic")
        fields = {name: str(value) for name, value in request_fields(TOPIC, GROUP, 0).items()}
        code, batch = RequestCode.SEND_BATCH_MESSAGE, batch_of_one() * 2000
        before = store.physical_max
        found: Any = handlers[code](End(), RemotingCommand.request(code, fields, batch))  # type: ignore[arg-type]
        answer = asyncio.ensure_future(found)
        while store.physical_max == before:  # noqa: ASYNC110 - each turn of the loop counts.
            await asyncio.sleep(0)
        assert not answer.done()
        become(running, Role.SLAVE, 1)
        become(running, Role.MASTER, 2)
        assert (await answer).code == ResponseCode.SYSTEM_ERROR


# ---- what a slave does not do -------------------------------------------------------------------


@pytest.mark.parametrize("role", [Role.SLAVE, Role.NONE])
async def test_who_is_no_master_stores_nothing_and_refuses_as_rocketmq_does(
    tmp_path: Path, role: Role
) -> None:
    async with scene(tmp_path) as held:
        become(held.running, role, 1)
        store, answers = held.running.broker.state.store, dict[str, tuple[int, int]]()
        topics = len(held.running.broker.state.topics.table())
        end = store.physical_max
        for code, name, ask in held.requests():
            expected = AS_ROCKETMQ.get(code, ResponseCode.SERVICE_NOT_AVAILABLE)
            answers[name] = ((await ask()).code, expected)
        assert {name: one for name, one in answers.items() if one[0] != one[1]} == {}
        made = await held.running.client().send(topic="made-by-a-send")
        assert made.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert store.physical_max == end
        assert len(held.running.broker.state.topics.table()) == topics


async def test_a_slave_delivers_no_delayed_message_until_it_leads(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client, store = running.client(), running.broker.state.store
        await client.send(b"due soon", DELAY=1)
        become(running, Role.SLAVE, 1)
        end = store.physical_max
        await asyncio.sleep(1.5)  # Delivery begins a second after the start.
        assert store.physical_max == end
        become(running, Role.MASTER, 2)

        async def delivered() -> bool:
            return store.max_offset(TOPIC, 0) == 1

        await eventually(delivered, "the delayed message")


async def test_a_slave_ends_and_checks_no_transaction(tmp_path: Path) -> None:
    config = broker_config(
        tmp_path,
        transaction_check_interval_ms=600_000,
        transaction_op_batch_interval_ms=1_000,
        transaction_timeout_ms=1_001,
    )
    async with cluster(config) as running:
        services, store = running.broker.services, running.broker.state.store
        transactor = Transactor(running.client())
        await transactor.register()
        rolled_back, _open = [await transactor.begin(key) for key in ("rolled back", "open")]
        await asyncio.sleep(1.1)
        await transactor.end_oneway(rolled_back, ROLLBACK)
        await running.clients[0].committed()  # Comes behind it.
        become(running, Role.SLAVE, 1)
        end = store.physical_max
        services.sending.half_queue.settle("TIMER")
        await services.checks.check_round()
        assert store.physical_max == end
        become(running, Role.MASTER, 2)
        services.sending.half_queue.settle("TIMER")
        await services.checks.check_round()
        assert store.physical_max > end, "both had been due"


async def test_a_slave_grants_no_order_lock(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send()
        await client.heartbeat()
        queue = MessageQueue(TOPIC, "broker-a", 0)
        body = LockBatchRequest(
            consumer_group=GROUP, client_id=client.client_id, mq_set=[queue]
        ).encode()
        become(running, Role.SLAVE, 1)
        answer = await client.ask(RequestCode.LOCK_BATCH_MQ, body)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        become(running, Role.MASTER, 2)
        answer = await client.ask(RequestCode.LOCK_BATCH_MQ, body)
        granted = LockBatchResponse.decode(answer.body).lock_ok_mq_set
        assert granted == [], "a client may trust the lock of another leader"


# ---- reading ------------------------------------------------------------------------------------


def readable(running: Cluster) -> None:
    node = running.broker.state.node
    node.config = replace(node.config, slave_read_enable=True)


async def test_a_slave_sends_its_readers_to_the_master_and_moves_none(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"there")
        await client.commit(0)
        become(running, Role.SLAVE, 1)
        for offset in (0, 99):
            answer = await client.pull(offset, sysFlag=1 | 4, commitOffset=1)
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert answer.fields["suggestWhichBrokerId"] == "0"
            assert answer.fields["nextBeginOffset"] == str(offset)
            assert not answer.body
        assert (await client.committed()).fields["offset"] == "0", "no piggyback counts"


async def test_a_held_pull_is_sent_to_the_master_when_the_role_changes(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"there")
        pull = asyncio.create_task(client.pull(1, wait_ms=15_000))
        await eventually(lambda: holding(running), "the held pull")
        become(running, Role.SLAVE, 1)
        answer = await asyncio.wait_for(pull, 5)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert answer.fields["nextBeginOffset"] == "1"


async def holding(running: Cluster) -> bool:
    return running.broker.state.holds.count == 1


async def test_a_slave_that_may_be_read_gives_messages_and_takes_no_progress(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client()
        await client.send(b"there")
        await client.commit(0)
        readable(running)
        become(running, Role.SLAVE, 1)
        answer = await client.pull(0, sysFlag=1 | 4, commitOffset=1)
        assert (answer.code, bodies(answer)) == (ResponseCode.SUCCESS, [b"there"])
        assert (await client.committed()).fields["offset"] == "0"
        beyond = await client.pull(99)
        assert beyond.code == ResponseCode.PULL_RETRY_IMMEDIATELY, "it may lag behind"
        assert beyond.fields["nextBeginOffset"] == "99"
        become(running, Role.NONE, 1)
        assert (await client.pull(0)).code == ResponseCode.PULL_RETRY_IMMEDIATELY


async def test_a_reader_far_behind_is_sent_to_the_slave_when_slaves_are_read(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path)
    config = replace(config, store=replace(config.store, resident_bytes=1))
    async with cluster(config) as running:
        client = running.client()
        await client.send(b"old")
        await client.send(bytes(1000))
        assert (await client.pull(0)).fields["suggestWhichBrokerId"] == "0"
        readable(running)
        assert (await client.pull(0)).fields["suggestWhichBrokerId"] == "1"


# ---- who it is ----------------------------------------------------------------------------------


async def test_name_servers_know_the_role(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        await running.client().send()
        routes, address = running.name_server.routes, running.broker.address

        async def known_as(expected: dict[int, str]) -> None:
            async def is_known() -> bool:
                route = routes.route(TOPIC)
                found = {} if route is None else dict(route.broker_datas[0].broker_addrs)
                return found == expected

            await eventually(is_known, f"{expected} in the route", within_s=5)

        await known_as({0: address})
        become(running, Role.SLAVE, 1)
        await known_as({1: address})
        become(running, Role.NONE, 1)
        await known_as({})
        become(running, Role.MASTER, 2)
        await known_as({0: address})
        version = routes.data_version(address)
        assert version is not None
        assert version.state_version == 2


async def test_the_greater_term_counts_in_routes_and_offsets(tmp_path: Path) -> None:
    """Two brokers of one name: the first leads, sleeps while the other is elected, and wakes."""
    async with cluster(broker_config(tmp_path)) as running:
        first, client = running.broker, running.client()
        await client.send()
        become(running, Role.MASTER, 1)
        for offset in range(1000):
            first.state.offsets.commit(GROUP, TOPIC, 0, offset % 2, now_ms=1)
        config = replace(
            broker_config(tmp_path / "second"), namesrv_addresses=(running.name_server_address,)
        )
        second = Broker(system_runtime(), config)
        await second.start()
        try:
            second.services.roles.become(Role.MASTER, 2)
            await second.services.registration.register()
            second.state.offsets.commit(GROUP, TOPIC, 0, 7, now_ms=1)
            await first.services.registration.register()  # It wakes.
            route = running.name_server.routes.cluster_info().broker_addr_table["broker-a"]
            assert dict(route.broker_addrs) == {0: second.address}
            become(running, Role.SLAVE, 2)
            await first.services.registration.register()
            route = running.name_server.routes.cluster_info().broker_addr_table["broker-a"]
            assert dict(route.broker_addrs) == {0: second.address, 1: first.address}
        finally:
            await second.stop()


async def test_offsets_are_merged_by_the_term_that_their_wire_form_carries(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client, state = running.client(), running.broker.state
        await client.send()
        await client.commit(1)
        become(running, Role.MASTER, 5)
        body = loads((await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)).body)
        version = DataVersion.from_json(body["dataVersion"])
        assert version.state_version == 5
        other = ConsumerOffsets()
        other.commit(GROUP, TOPIC, 0, 0, now_ms=1)
        for own in (DataVersion(6, 0, 0), DataVersion(4, 0, 10**6)):
            for _ in other.merge(from_document(body), version, own):
                pass
            expected = 0 if own.state_version > 5 else 1
            assert other.committed(GROUP, TOPIC, 0) == expected
        assert state.node.term == 5


async def test_a_single_node_is_the_master_of_term_0_and_leads_once_a_term(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        node = running.broker.state.node
        assert (node.role, node.term, node.broker_id) == (Role.MASTER, 0, 0)
        become(running, Role.SLAVE, 0)
        with pytest.raises(AssertionError):
            become(running, Role.MASTER, 0)
        with pytest.raises(AssertionError):
            become(running, Role.SLAVE, -1)


async def test_a_slave_moves_no_reader_to_where_its_store_begins(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path), is_new=True) as running:
        client = running.client()
        for number in range(3):
            await client.send(b"%d" % number)
        become(running, Role.SLAVE, 1)
        readable(running)
        answer = await client.pull(2)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.SUCCESS, "3")


async def test_who_reads_at_a_node_that_leads_again_is_reported_anew(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        client = running.client("c1")
        await client.send(b"x")
        await client.heartbeat()
        for term in (0, 2):
            if term:
                become(running, Role.SLAVE, 1)
                become(running, Role.MASTER, 2)
            for _ in range(2):
                await client.pull(0)
    rows = spooled(tmp_path / "store", "rebalance_events")
    changes = [row["kind"] for row in rows if row["kind"] in ("ASSIGNED", "REVOKED")]
    assert changes == ["ASSIGNED", "ASSIGNED"]
