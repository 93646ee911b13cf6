"""A Raft group of three brokers in the simulator, and a client that notes what it was promised.

The client asks whoever leads for one thing after the other: it sends, reports and asks for offsets,
makes and deletes topics. What was acknowledged has to hold whoever leads next; what was refused or
not answered may hold or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig
from engine.broker.replicating.raft_group import RaftGroup
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.namesrv.config import NameServerConfig
from engine.namesrv.namesrv import NameServer
from engine.protocol.bodies_auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.headers import (
    ChangeReplicaRequestHeader,
    CreateTopicRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SendMessageResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from engine.protocol.message_record import decode_records
from engine.raft.events import Role as RaftRole
from engine.raft.state import Sending, State
from engine.remoting.signing import Credentials
from engine.runtime import Runtime
from engine.store import MessageStore
from engine.store.config import StoreConfig
from tests.simulation.cluster import LOG_FILE_BYTES, NAME_SERVER, NAMESRV_ADDRESS, VIRTUAL_HOSTS
from tests.simulation.fault_cells import CELLS, Cell, Fault, Phase, Role
from tests.simulation.raw_clients import RawClient
from tests.simulation.world import World

Done = TypeVar("Done")

HOSTS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
"""Off loopback the nodes of a group would need certificates."""
CLIENT = "10.0.7.1"
TOPIC, GROUP = "agreed", "readers"
PEERS = tuple(f"n{number}-{host}:40911" for number, host in enumerate(HOSTS))
SHORT_LIVED = ("came-and-went-0", "came-and-went-1")


class WatchedBroker(Broker):
    """One whose node can be looked at from the beginning of its start."""

    raft: RaftGroup | None = None

    def _assemble(self, *parts: Any, **more: Any) -> Any:
        running = super()._assemble(*parts, **more)
        self.raft = running.services.raft
        return running


class BrokerGroup:
    """The three, up or down."""

    def __init__(self, world: World, **settings: Any) -> None:
        """`settings`: of all three."""
        self.world = world
        self._settings = settings
        self.brokers: dict[str, Broker] = {}
        self._nodes: dict[str, WatchedBroker] = {}
        """Those that are up, or on their way."""
        self._is_founded = False
        self._booting: set[str] = set()
        self.ends: list[str] = []
        """What ended brokers by itself, in words."""

    async def start(self, first: Sequence[str] = HOSTS) -> None:
        async def boot(runtime: Runtime) -> None:
            config = NameServerConfig(host=NAME_SERVER, access=VIRTUAL_HOSTS)
            await NameServer(runtime, config).start()

        await self.world.node(NAME_SERVER).boot(boot)
        for host in first:
            self.boot(host)

    def boot(self, host: str, **other_settings: Any) -> None:
        """Begin a life of a host, unless it has one."""
        if self.world.node(host).up or host in self._booting:
            return
        self._booting.add(host)

        async def live(runtime: Runtime) -> None:
            self._booting.discard(host)
            config = replace(config_of(host), **(self._settings | other_settings))
            broker = self._nodes[host] = WatchedBroker(runtime, config)
            await broker.start()
            self.brokers[host] = broker
            await broker.wait()

        asyncio.get_running_loop().create_task(self._life(host, self.world.node(host).boot(live)))

    async def _life(self, host: str, life: Awaitable[None]) -> None:
        node = self.world.node(host)
        lives = node.lives + 1
        try:
            await life
        except asyncio.CancelledError:
            pass
        except TidemarkError as error:
            if node.lives == lives and node.up:
                self.ends.append(f"{host}: {error}")
                self.crash(host, power_cut=False)

    # ---- faults ------------------------------------------------------------------------------

    def crash(self, host: str, *, power_cut: bool) -> None:
        self._count(host, Fault.POWER_CUT if power_cut else Fault.KILL)
        self.brokers.pop(host, None)
        self._nodes.pop(host, None)
        self.world.node(host).crash(power_cut=power_cut)

    def cut_off(self, host: str) -> None:
        """No other reaches it, until the network is healed."""
        self._count(host, Fault.CUT_OFF)
        for other in HOSTS:
            if other != host:
                self.world.network.partition(host, other)

    def hang_disk(self, host: str, for_s: float) -> None:
        """Its disk does nothing for a while."""
        self._count(host, Fault.HUNG_DISK)
        until_s = asyncio.get_running_loop().time() + for_s
        self.world.node(host).disk.still_until_s = until_s

    def set_clock(self, host: str, ahead_ms: int) -> None:
        if ahead_ms:
            self._count(host, Fault.CLOCK_AHEAD)
        self.world.node(host).set_by_ms = ahead_ms

    def _count(self, host: str, fault: Fault) -> None:
        if host in self._nodes:
            CELLS[Cell(fault, self.role(host), self.phase())] += 1

    def _states(self) -> dict[str, State]:
        found = {}
        for host, node in self._nodes.items():
            if node.raft is not None and node.raft._raft is not None:
                found[host] = node.raft._raft.state
        return found

    def role(self, host: str) -> Role:
        """What a node is."""
        state = self._states().get(host)
        if state is None or not state.members.all:
            return Role.NEWCOMER
        if state.role is RaftRole.LEADER:
            return Role.LEADER
        if state.role is not RaftRole.FOLLOWER:
            return Role.CANDIDATE
        is_learner = any(state.node in one.members.learners for one in self._states().values())
        return Role.LEARNER if is_learner else Role.FOLLOWER

    def phase(self) -> Phase:
        """What the group is at."""
        states = self._states()
        leads = [host for host, state in states.items() if state.role is RaftRole.LEADER]
        self._is_founded = self._is_founded or bool(leads)
        if not self._is_founded:
            return Phase.FOUNDING
        leads = [host for host in leads if self._reaches_a_majority(host, states)]
        if not leads:
            return Phase.ELECTION
        state = max((states[host] for host in leads), key=lambda one: one.term)
        if any(one.sending is Sending.FILES for one in state.peers.values()):
            return Phase.CATCH_UP
        if state.transfer is not None:
            return Phase.HAND_OVER
        if state.members.learners or not state.is_member_change_committed:
            return Phase.MEMBERS
        return Phase.STEADY

    def _reaches_a_majority(self, host: str, states: dict[str, State]) -> bool:
        network = self.world.network
        reached = [states[one].node for one in states if not network.is_cut(host, one)]
        return states[host].members.agree(reached)

    # ---- what is known of it -----------------------------------------------------------------

    async def leader(self) -> str:
        """The host of whoever leads, once somebody does."""
        await self.world.until("somebody leads", lambda: bool(self.masters()), within_s=30)
        host = self.newest_master()
        assert host is not None
        return host

    async def order(self, action: str, member: str) -> None:
        """Order it of whoever leads, until it is done."""
        for _ in range(40):
            host = self.newest_master()
            if host is not None:
                raft = self.brokers[host].services.raft
                assert raft is not None
                header = ChangeReplicaRequestHeader(action=action, member=member)
                try:
                    await self.world.node(host).run(raft.orders.carry_out(header))
                except TidemarkError:
                    pass
                else:
                    return
            await asyncio.sleep(0.5)
        raise AssertionError(f"{action} {member} was not carried out")

    def masters(self) -> list[str]:
        return [host for host, broker in self.brokers.items() if broker.state.node.is_master]

    def newest_master(self) -> str | None:
        masters = self.masters()
        return max(masters, key=lambda host: self.brokers[host].state.node.term, default=None)

    def is_level(self) -> bool:
        """Are all three up, of one term, with all of one log visible and applied?"""
        brokers = list(self.brokers.values())
        if len(brokers) < len(HOSTS) or len(self.masters()) != 1:
            return False
        groups = [broker.services.raft for broker in brokers]
        ends = set()
        for broker, group in zip(brokers, groups, strict=True):
            assert group is not None
            store = broker.state.store
            ends.add((store.physical_max, store.visible_end, group.raft.state.term))
            applied = group.tables.applied_offset
            is_deleting = group.tables.visible_limit is not None
            if applied != store.physical_max or store.dispatch_behind_bytes or is_deleting:
                return False
        return len(ends) == 1


def config_of(host: str) -> BrokerConfig:
    return BrokerConfig(
        access=VIRTUAL_HOSTS,
        store=StoreConfig(
            root="/store",
            mapped_file_size_commit_log_bytes=LOG_FILE_BYTES,
            mapped_file_size_consume_queue_bytes=20 * 64,
            max_hash_slot_count=50,
            max_index_count=200,
            file_reserved_time_ms=2000,
        ),
        host=host,
        namesrv_addresses=(NAMESRV_ADDRESS,),
        raft_enable=True,
        raft_peers=PEERS,
        raft_self_id=f"n{HOSTS.index(host)}",
        telemetry=False,
    )


class GroupClient:
    """One client, and what it was promised."""

    def __init__(self, group: BrokerGroup) -> None:
        self.group = group
        self.sent: list[bytes] = []
        self.acknowledged: list[bytes] = []
        self.stored = 0
        """Messages of the topic that are there for certain."""
        self.committed = 0
        """The greatest offset that was acknowledged, or answered."""
        self.topics: dict[str, bool | None] = dict.fromkeys(SHORT_LIVED, False)
        """Is it there? None: nobody knows."""
        self.answers = 0
        self.is_done = False
        self._raw: RawClient

    async def start(self, credentials: Credentials | None = None, host: str = CLIENT) -> None:
        async def boot(runtime: Runtime) -> RawClient:
            return RawClient(runtime, "client", credentials)

        self._host = host
        self._raw = await self.group.world.node(host).boot(boot)
        self._raw.timeout_ms = 3000

    async def run(self) -> None:
        """Ask for one thing after the other, until `is_done`."""
        choice = self.group.world.random
        while not self.is_done:
            await asyncio.sleep(choice.uniform(0.0, 0.05))
            host = self.group.newest_master()
            if host is None:
                continue
            if choice.random() < 0.1:  # Who knows an older leader, if there is one, asks it.
                host = choice.choice(self.group.masters())
            self._raw.address = f"{host}:10911"
            what = choice.choices(
                (self.send, self.report_further, self.ask, self.change_topics), weights=(6, 3, 3, 1)
            )[0]
            with suppress(TidemarkError):
                await self.group.world.node(self._host).run(what())
                self.answers += 1

    def ask_only(self, host: str) -> None:
        """What is asked next is asked of this one."""
        self._raw.address = f"{host}:10911"

    async def do(self, work: Awaitable[Done]) -> Done:
        """On the client's host."""
        done = await self.group.world.node(self._host).run(work)
        self.answers += 1
        return done

    async def send(self) -> None:
        body = b"message %05d" % len(self.sent)
        self.sent.append(body)
        await self._raw.send(body, topic=TOPIC)
        self.acknowledged.append(body)
        self.stored += 1

    async def report_further(self) -> None:
        if self.committed < self.stored:
            await self.report(self.group.world.random.randint(self.committed + 1, self.stored))

    async def report(self, offset: int) -> None:
        """A further offset; acknowledged, it is never less again."""
        await self.report_of(TOPIC, offset)
        self.committed = max(self.committed, offset)

    async def report_of(self, topic: str, offset: int) -> None:
        fields = UpdateConsumerOffsetRequestHeader(
            consumer_group=GROUP, topic=topic, queue_id=0, commit_offset=offset
        ).encode()
        await self._raw.done(RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    async def ask(self) -> None:
        """What is answered is at least what was acknowledged, and answered before."""
        if not self.committed:
            return
        offset = await self.ask_of(GROUP)
        assert offset >= self.committed, f"{offset} after {self.committed} at {self._raw.address}"
        self.committed = offset

    async def ask_of(self, group: str) -> int:
        """Where a group stands. Raises RequestRefused."""
        fields = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=TOPIC, queue_id=0, set_zero_if_not_found=False
        ).encode()
        answer = await self._raw.done(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        return OffsetResponseHeader.decode(answer.fields).offset

    async def change_topics(self) -> None:
        """Make a topic, or delete it: it is there, or not, from the answer on."""
        choice = self.group.world.random
        topic = choice.choice(SHORT_LIVED)
        if choice.random() < 0.5:  # Nobody will ever say anything of it again.
            topic = f"made-once-{len(self.topics)}"
        is_there = self.topics.get(topic, False)
        if is_there or (is_there is None and choice.random() < 0.5):
            await self.delete(topic)
        else:
            await self.make(topic)

    async def delete(self, topic: str) -> None:
        self.topics[topic] = None
        await self._raw.done(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        self.topics[topic] = False

    async def make(self, topic: str) -> None:
        """Make a topic, and send one message to it."""
        self.topics[topic] = None
        fields = CreateTopicRequestHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=1,
            write_queue_nums=1,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            attributes="",
        ).encode()
        await self._raw.done(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        self.topics[topic] = True
        await self.put_into(topic, b"in " + topic.encode())

    async def send_half(self) -> SendMessageResponseHeader:
        """The half of a transaction, which `end` commits."""
        body = b"message %05d" % len(self.sent)
        self.sent.append(body)
        return await self._raw.send(body, topic=TOPIC, half_of="producers")

    async def end(self, half: SendMessageResponseHeader, body: bytes) -> None:
        """Commit it. Raises RequestRefused."""
        key = f"K{body.decode()}"
        code = await self._raw.end(half, "producers", key)
        if code != ResponseCode.SUCCESS:
            raise RequestRefused(code, "it is not committed")
        self.acknowledged.append(body)

    async def send_later(self, topic: str) -> None:
        """To a topic in a second, by delay level 1."""
        body = b"message %05d" % len(self.sent)
        self.sent.append(body)
        await self._raw.send(body, topic=topic, level=1)
        if topic == TOPIC:
            self.acknowledged.append(body)

    async def put_user(self, code: RequestCode, name: str, **words: str) -> None:
        """Make a user, or change it."""
        body = UserInfo(**words).encode()
        await self._raw.done(code, {"username": name}, body)

    async def delete_user(self, name: str) -> None:
        await self._raw.done(RequestCode.AUTH_DELETE_USER, {"username": name})

    async def allow(self, name: str, resource: str, *actions: str) -> None:
        rules = AclInfo(policies=[PolicyInfo("Custom", [PolicyEntryInfo(resource, [*actions])])])
        fields = {"subject": f"User:{name}"}
        await self._raw.done(RequestCode.AUTH_CREATE_ACL, fields, rules.encode())

    async def put_into(self, topic: str, body: bytes) -> None:
        await self._raw.send(body, topic=topic)


def bodies(store: MessageStore, topic: str, begin: int = 0) -> list[bytes]:
    """What the topic's first queue holds, from that place of the log on."""
    found: list[bytes] = []
    offset = store.min_offset(topic, 0)
    while offset < store.max_offset(topic, 0):
        got = store.get(topic, 0, offset, max_count=32, max_bytes=1 << 20, wanted=None)
        records = decode_records(b"".join(bytes(part) for part in got.records))
        found += [message.body for message in records if message.physical_offset >= begin]
        assert got.next_begin_offset > offset, f"reading stands still: {got.status}"
        offset = got.next_begin_offset
    return found


def check(group: BrokerGroup, client: GroupClient, answers_min: int = 20) -> None:
    """All three hold the same, and what was promised."""
    brokers = [group.brokers[host] for host in HOSTS]
    stores = [broker.state.store for broker in brokers]
    begin = max(store.physical_min for store in stores)
    logs = [store.copied(begin, store.physical_max) for store in stores]
    assert logs[0] == logs[1] == logs[2]
    assert client.answers >= answers_min, "nobody served the client"
    for broker in brokers:
        state = broker.state
        found = bodies(state.store, TOPIC)
        missing = sorted(set(client.acknowledged) - set(found))
        assert not missing, f"acknowledged and lost at {state.node.address}: {missing}"
        assert len(found) == len(set(found)), "put twice"
        offset = state.offsets.committed(GROUP, TOPIC, 0)
        assert not client.committed or (offset is not None and offset >= client.committed)
        for topic, is_there in client.topics.items():
            if is_there is not None:
                assert (state.topics.find(topic) is not None) is is_there, topic
    tables = [digest(broker, begin) for broker in brokers]
    for name, held in tables[0].items():
        others = [table[name] for table in tables[1:]]
        assert others == [held, held], f"{name}: {held} and {others}"


def digest(broker: Broker, begin: int) -> dict[str, object]:
    """What the nodes of a group agree on, and what they show of the log from `begin` on."""
    state = broker.state
    own = {state.node.config.cluster_name, state.node.config.broker_name}
    topics = {one.topic_name: one for one in state.topics.all() if one.topic_name not in own}
    offsets = {pair: dict(state.offsets.queues(pair[1], pair[0])) for pair in state.offsets.pairs()}
    queues = {
        (topic, queue_id): bodies(state.store, topic, begin)
        for topic, queue_id in state.store.queues()
        if topic != TOPIC
    }
    return {
        "topics": topics,
        "groups": sorted(state.group_configs.names()),
        "accounts": state.accounts.documents(),
        "offsets": offsets,
        "queues": {key: found for key, found in queues.items() if found},
    }
