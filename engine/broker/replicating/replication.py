"""The replication of one broker: its HA port as a master, its copying as a slave.

Place in the walk: `broker` starts and stops it. A SYNC_MASTER's puts wait for what its slaves
acknowledge, as one of the conditions of `sending/safety`.

Invariant: a slave is served by a master alone, and follows the master that name servers name. The
HA port is closed unless slaves are expected; on another address than loopback it takes only slaves
that prove who they are (mutual TLS), for whoever reads it reads every message. Absent on purpose:
who becomes master (role_changes).
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Final

from engine.broker.config import BrokerRole
from engine.broker.identity import BrokerNode
from engine.broker.registration import Registration
from engine.broker.replicating.leadership import expects_slaves
from engine.broker.replicating.table_copies import (
    ASK_TIMEOUT_MS,
    TableCopies,
    answer_of,
    copied,
)
from engine.broker.sending.safety import Condition, PutStatus, Safety
from engine.foundation.errors import ClusterError, ConfigError
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies import KVTable
from engine.protocol.bodies_admin import (
    EpochEntryCache,
    HaClientRuntimeInfo,
    HaConnectionInfo,
    HaRuntimeInfo,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import RpcClient
from engine.replication import Acknowledgements, Following, HaClient, HaService, MasterAddress
from engine.runtime import Runtime
from engine.store import Epoch, MessageStore

COPY_MS: Final = 5 * SECOND_MS
"""Between two copies of the master's tables (RocketMQ: 60 s)."""
RETRY_MS: Final = SECOND_MS


class Replication:
    """One broker's part in it."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        client: RpcClient,
        copies: TableCopies,
        node: BrokerNode,
        registration: Registration,
        safety: Safety,
        store: MessageStore,
    ) -> None:
        config = node.config
        self._client = client
        self._copies = copies
        self._node = node
        self._registration = registration
        self._store = store
        is_sync = config.broker_role is BrokerRole.SYNC_MASTER
        self.acknowledgements = Acknowledgements(
            needed=config.in_sync_replicas - 1 if is_sync else 0,
            timeout_ms=config.slave_timeout_ms,
        )
        if self.acknowledgements.needed:
            safety.conditions = (
                *safety.conditions,
                Condition(self.acknowledgements.when_met, PutStatus.FLUSH_SLAVE_TIMEOUT),
            )
        self.service = HaService(runtime, store, self.acknowledgements)
        self.ha_client = HaClient(
            runtime,
            store,
            find_master=self._find_master,
            is_slave=lambda: not node.is_master,
            tls=config.access.client_tls,
        )
        store.on_cut(lambda _end: self.acknowledgements.forget_all())

    async def start(self) -> None:
        """Open the HA port, if slaves are expected. Raises ConfigError when it is taken, or would
        be open to strangers.
        """
        node = self._node
        config = node.config
        if not expects_slaves(config):
            return
        tls = config.access.server_tls
        is_mutual = tls is not None and tls.client_authorities is not None
        if not ip_address(config.host).is_loopback and not is_mutual:
            raise ConfigError(
                "haListenPort",
                config.ha_listen_port,
                f"another address than {config.host}: off loopback slaves have to prove who they "
                "are, by TLS with certificates of clients (--access FILE)",
            )
        own_port = int(node.address.rpartition(":")[2])
        wanted = config.ha_listen_port or (own_port + 1 if config.port else 0)
        port = await self.service.start(config.host, wanted, tls)
        self._store.on_arrival(lambda *_: self.service.wake())
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
            if not self._node.is_master and master is not None:
                done = await copied(self._copies, master.address)
            await asyncio.sleep((COPY_MS if done else RETRY_MS) / SECOND_MS)

    async def _find_master(self) -> MasterAddress | None:
        master = self._registration.master
        if master is None:
            await self._registration.register()
            master = self._registration.master
        if master is None:
            return None
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
        request = RemotingCommand.request(RequestCode.GET_BROKER_EPOCH_CACHE)
        answer = await self._client.invoke(address, request, timeout_ms=ASK_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            return ()
        listed = EpochEntryCache.decode(answer.body).epoch_list
        return tuple(Epoch(one.epoch, one.start_offset) for one in listed)

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
        slaves = [
            HaConnectionInfo(
                addr=one.address,
                slave_ack_offset=one.end or 0,
                diff=end - (one.end or 0),
                in_sync=one.end == end,
                transferred_byte_in_second=one.bytes_per_second,
                transfer_from_where=one.sent_end,
            )
            for one in self.service.replicas()
        ]
        return HaRuntimeInfo(
            master_commit_log_max_offset=end,
            in_sync_slave_nums=sum(one.in_sync for one in slaves),
            ha_connection_info=slaves,
        )
