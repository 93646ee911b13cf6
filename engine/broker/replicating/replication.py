"""Runs broker replication: serves the HA port as master, or copies the log as slave.

Place in the walk: `broker` starts and stops it. A SYNC_MASTER's puts wait for what its slaves
acknowledge, as one of the conditions of `sending/safety`.

Invariant: a slave is served by a master alone, and follows the master that name servers name. The
HA port is closed unless slaves are expected; on another address than loopback it takes only slaves
that prove who they are (mutual TLS), for whoever reads it reads every message. Absent on purpose:
who becomes master (role_changes).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final

from engine.broker.config import BrokerConfig, BrokerRole
from engine.broker.identity import BrokerNode, Role
from engine.broker.registration import KnownMaster, Registration
from engine.broker.replicating.offset_merges import OffsetMerges
from engine.broker.replicating.table_copies import (
    ASK_TIMEOUT_MS,
    TableCopies,
    answer_of,
    copied,
)
from engine.broker.sending.safety import Condition, PutStatus, Safety
from engine.foundation.errors import ClusterError, ConfigError, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies import ClusterInfo, KVTable
from engine.protocol.bodies_admin import (
    HaClientRuntimeInfo,
    HaConnectionInfo,
    HaRuntimeInfo,
    ReplicaState,
)
from engine.protocol.bodies_broker import BrokerData
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.names import MASTER_ID
from engine.remoting import RpcClient
from engine.replication import Acknowledgements, Following, HaClient, HaService, MasterAddress
from engine.replication.ha_service import Replica
from engine.runtime import Runtime
from engine.store import Epoch, MessageStore
from engine.store.epochs import as_listed, entries_in

COPY_MS: Final = 5 * SECOND_MS
"""Between two copies of the master's tables (RocketMQ: 60 s)."""
RETRY_MS: Final = SECOND_MS
LOOK_TIMEOUT_MS: Final = 3 * SECOND_MS

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewerMaster:
    """Somebody who leads in this node's place."""

    address: str
    epoch: int
    free_id: int
    """A broker id that no slave goes by."""


class Replication:
    """One broker's part in it."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        client: RpcClient,
        copies: TableCopies,
        merges: OffsetMerges,
        node: BrokerNode,
        registration: Registration,
        safety: Safety,
        store: MessageStore,
    ) -> None:
        config = node.config
        self._client = client
        self._safety = safety
        self._other_conditions = safety.conditions
        self._copies = copies
        self.merges = merges
        self._node = node
        self._registration = registration
        self._store = store
        self._stands_still = False
        self._copying = asyncio.Lock()
        self._port_is_open = False
        self.acknowledgements = Acknowledgements(timeout_ms=config.slave_timeout_ms)
        self._wait_for(waited_for(config))
        self.service = HaService(runtime, store, self.acknowledgements)
        self.ha_client = HaClient(
            runtime,
            store,
            find_master=self.find_master,
            is_slave=lambda: node.role is Role.SLAVE and not self._stands_still,
            tls=config.access.client_tls,
        )
        store.on_cut(lambda _end: self._forget_reports())
        store.on_arrival(lambda *_: self.service.wake())

    def _wait_for(self, slaves: int) -> None:
        """A put waits for so many."""
        acknowledgements = self.acknowledgements
        self._forget_reports()
        acknowledgements.needed = slaves
        condition = Condition(acknowledgements.when_met, PutStatus.FLUSH_SLAVE_TIMEOUT)
        self._safety.conditions = (*self._other_conditions, *([condition] if slaves else ()))

    def _forget_reports(self) -> None:
        """What slaves reported says nothing any more."""
        self.acknowledgements.forget_all()
        self._store.replicated_end = None

    async def start(self) -> None:
        """Open the HA port, if slaves are expected: a log that more than one node has led has them.
        Raises ConfigError when it is taken, or would be open to strangers.
        """
        node = self._node
        if node.is_master and (expects_slaves(node.config) or self._store.epochs.entries):
            await self.open_port(node.config)

    @asynccontextmanager
    async def standing_still(self) -> AsyncIterator[None]:
        """Follow nobody meanwhile: nothing is appended, and no table is copied."""
        self._stands_still = True
        self.ha_client.leave()
        try:
            async with self.ha_client.at_rest, self._copying:
                yield
        finally:
            self._stands_still = False

    async def open_port(self, config: BrokerConfig) -> None:
        """Open the HA port of a master with these settings, unless it is open. Raises ConfigError
        as `start` does; a master that need not have slaves does without it.
        """
        if self._port_is_open:
            return
        try:
            await self._open_port(config)
        except ConfigError as error:
            if expects_slaves(config):
                raise
            _log.error("no slave can follow this node: %s", error)

    def serve(self, config: BrokerConfig) -> None:
        """Become a master with these settings."""
        self._wait_for(waited_for(config))
        self._registration.master = None

    async def serve_nobody(self) -> None:
        """Become a slave: its slaves find another master."""
        await self.service.stop()
        self._wait_for(0)
        self._port_is_open, self._node.ha_address = False, ""
        self._registration.master = None

    async def _open_port(self, config: BrokerConfig) -> None:
        node = self._node
        if not config.access.keeps_strangers_off(config.host):
            raise ConfigError(
                "haListenPort",
                config.ha_listen_port,
                f"another address than {config.host}: off loopback slaves have to prove who they "
                "are, by strict TLS with certificates of clients (--access FILE)",
            )
        own_port = int(node.address.rpartition(":")[2])
        wanted = config.ha_listen_port or (own_port + 1 if config.port else 0)
        port = await self.service.start(config.host, wanted, config.access.server_tls)
        self._port_is_open = True
        node.ha_address = f"{config.host}:{port}"

    async def stop(self) -> None:
        """Serve no slave any more."""
        await self.service.stop()

    async def run(self) -> None:
        """Serve slaves, or follow a master and copy its tables, until cancelled."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self.service.run())
            loops.create_task(self.ha_client.run())
            loops.create_task(self._copy_tables())

    async def _copy_tables(self) -> None:
        while True:
            master = self._registration.master
            done = False
            async with self._copying:
                if self._node.role is Role.SLAVE and master is not None:
                    done = await copied(self._copies, master.address)
            await asyncio.sleep((COPY_MS if done else RETRY_MS) / SECOND_MS)

    async def find_master(self) -> MasterAddress | None:
        """The master that name servers name, and the log that it has; None when none is named.
        Raises TidemarkError.
        """
        registration = self._registration
        if registration.master is None:
            await registration.register(whole=False)
        master = registration.master
        if master is None:
            return None
        try:
            return await self._log_of(master)
        except TidemarkError:
            registration.master = None  # Perhaps another one leads.
            raise

    async def _log_of(self, master: KnownMaster) -> MasterAddress:
        """The log that a master says it has."""
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        figures = KVTable.decode(await answer_of(self._client, master.address, code)).table
        epochs = await self._epochs_of(master.address)
        host, _, port = master.ha_address.rpartition(":")
        try:
            return MasterAddress(
                host,
                int(port),
                int(figures["commitLogMinOffset"]),
                int(figures["commitLogMaxOffset"]),
                epochs,
            )
        except (KeyError, ValueError) as error:
            raise ClusterError(f"{master.address} does not say where its log ends") from error

    async def _epochs_of(self, address: str) -> tuple[Epoch, ...]:
        """The master's list; empty when it has none, as RocketMQ's has."""
        request = RemotingCommand.request(RequestCode.GET_REPLICA_STATE)
        answer = await self._client.invoke(address, request, timeout_ms=ASK_TIMEOUT_MS)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return ()
        if answer.code != ResponseCode.SUCCESS:
            raise ClusterError(f"{address} does not name its epochs: {answer.remark}")
        state = ReplicaState.decode(answer.body)
        if state.role == Role.SLAVE.name:
            raise ClusterError(f"{address} is no master")
        return entries_in(state.epochs)

    async def merge_back(self) -> None:
        """Merge what slaves took while this master was away."""
        slaves = {
            address
            for known in [one async for one in self._copies_named()]
            for broker_id, address in known.broker_addrs.items()
            if broker_id != MASTER_ID
        }
        for address in sorted(slaves):
            try:
                await self.merges.fetch(address)
            except TidemarkError as error:
                _log.warning("offsets committed at %s are not merged yet: %s", address, error)

    async def copy_tables(self) -> None:
        """Copy the tables of the master once more. Raises TidemarkError."""
        master = self._registration.master
        if master is None or self._node.role is not Role.SLAVE:
            raise ClusterError("it follows no master whose tables it could copy")
        async with self._copying:
            await self._copies.copy(master.address)

    async def _copies_named(self) -> AsyncIterator[BrokerData]:
        """The copies of this broker, as each name server that answers has them."""
        request = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
        for place in self._node.config.namesrv_addresses:
            try:
                answer = await self._client.invoke(place, request, timeout_ms=LOOK_TIMEOUT_MS)
                table = ClusterInfo.decode(answer.body).broker_addr_table
            except TidemarkError:
                continue
            if self._node.config.broker_name in table:
                yield table[self._node.config.broker_name]

    async def newer_master(self) -> NewerMaster | None:
        """Who leads in a greater epoch than this node has heard of, as name servers have it."""
        node = self._node
        async for known in self._copies_named():
            try:
                address = known.broker_addrs.get(MASTER_ID, "")
                if not address or address == node.address:
                    continue
                state = ReplicaState.decode(
                    await answer_of(self._client, address, RequestCode.GET_REPLICA_STATE)
                )
            except TidemarkError:
                continue
            epochs = entries_in(state.epochs)
            number = epochs[-1].number if epochs else 0
            if state.role == Role.MASTER.name and number > max(
                node.term, self._store.epochs.highest
            ):
                own = {one for one, place in known.broker_addrs.items() if place == node.address}
                free = next(one for one in count(1) if one in own or one not in known.broker_addrs)
                return NewerMaster(address, number, free)
        return None

    def state(self) -> ReplicaState:
        """This copy of the log."""
        store, node, client = self._store, self._node, self.ha_client
        is_slave = node.role is Role.SLAVE
        master = self._registration.master
        return ReplicaState(
            broker_id=node.broker_id,
            role=node.role.name,
            broker_role=node.config.broker_role.value,
            in_sync_replicas=node.config.in_sync_replicas,
            log_begin=store.physical_min,
            log_end=store.physical_max,
            log_synced=store.physical_flushed,
            highest_epoch=max(store.epochs.highest, node.term),
            epochs=[as_listed(one) for one in store.epochs.entries],
            following=client.following.name if is_slave else "",
            reason=client.reason if is_slave else "",
            master_address=master.address if is_slave and master is not None else "",
            master_end=-1 if not is_slave or client.master_end is None else client.master_end,
        )

    def status(self) -> HaRuntimeInfo:
        """How far the slaves are, or this slave is."""
        store, node, client = self._store, self._node, self.ha_client
        end = store.physical_max
        if not node.is_master:
            return HaRuntimeInfo(
                master_commit_log_max_offset=client.master_end or 0,
                master=False,
                ha_client_runtime_info=HaClientRuntimeInfo(
                    activated=client.following is Following.FOLLOWING,
                    master_flush_offset=client.master_end or 0,
                    max_offset=end,
                ),
            )
        return as_sent_from(end, self.service.replicas())


def as_sent_from(end: int, replicas: Iterable[Replica], *, is_master: bool = True) -> HaRuntimeInfo:
    """How far `replicas` are, as the node hears that sends them its log, which ends at `end`."""
    connections = [
        HaConnectionInfo(
            addr=one.address,
            slave_ack_offset=one.end or 0,
            diff=end - (one.end or 0),
            in_sync=one.end == end,
            transferred_byte_in_second=one.bytes_per_second,
            transfer_from_where=one.sent_end,
        )
        for one in replicas
    ]
    return HaRuntimeInfo(
        master=is_master,
        master_commit_log_max_offset=end,
        in_sync_slave_nums=sum(one.in_sync for one in connections),
        ha_connection_info=connections,
    )


def expects_slaves(config: BrokerConfig) -> bool:
    """Does a master with these settings open its HA port?"""
    if config.broker_role is BrokerRole.SLAVE:
        return False
    return config.ha_listen_port > 0 or config.broker_role is BrokerRole.SYNC_MASTER


def waited_for(config: BrokerConfig) -> int:
    """Slaves that a put waits for under these settings."""
    is_sync = config.broker_role is BrokerRole.SYNC_MASTER
    return config.in_sync_replicas - 1 if is_sync else 0
