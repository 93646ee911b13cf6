"""Acquires and gives up leadership of a broker group, with a unique epoch for each leader.

Place in the walk: a start, before the port opens, and the orders of `tidemark admin replica`.

A promotion: follow nobody any more; all of the log dispatched; the epoch and the order on disk;
what follows the log read from its end (deduplication, open transactions, delay cursors, offsets
that lie beyond it); the role, in one step. The HA port opens first: without it nothing changes.

Invariant: an epoch is on disk, with the place at which it begins, before anything is acknowledged
in it. A master that stopped cleanly goes on in its epoch; one that did not may have lost a tail
that slaves have, so what it writes now is of another. Absent on purpose: who is to lead (an
operator decides), the cut of a log (rebuild).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from engine.broker.config import BrokerRole
from engine.broker.identity import BrokerNode, Role
from engine.broker.replicating.ordered_role import OrderedRole, with_role
from engine.broker.replicating.rebuild import Rebuild
from engine.broker.replicating.replication import Replication, expects_slaves, waited_for
from engine.broker.role_changes import RoleChanges
from engine.foundation.errors import ConfigError, RequestRefused, StorageError
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.protocol.headers import ChangeReplicaRequestHeader
from engine.store import MessageStore

LOOK_MS: Final = 5 * SECOND_MS
"""How often a master asks name servers whether somebody leads in its place."""
DISPATCH_MS: Final = 5
"""How often it is looked whether all of the log is dispatched."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Leadership:
    """That of one broker."""

    node: BrokerNode
    ordered: OrderedRole
    read_again: Callable[[], Awaitable[None]]
    """Have every state that follows the log read from its end."""
    rebuild: Rebuild
    replication: Replication
    roles: RoleChanges
    store: MessageStore
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def begin(self, *, stopped_cleanly: bool) -> None:
        """Take the epoch of this start. A node that never had a slave has none, and needs none.
        Raises StorageError.
        """
        node, store, epochs = self.node, self.store, self.store.epochs
        if node.is_master and epochs.entries:
            await self._give_way()
        if not node.is_master:
            self.roles.begin(Role.SLAVE, max(node.term, epochs.highest))
            return
        if not epochs.entries and not expects_slaves(node.config):
            return
        slaves = waited_for(node.config)
        if not (stopped_cleanly and epochs.leads and epochs.last.slaves == slaves):
            await epochs.begin(
                epochs.highest + 1,
                store.physical_max,
                log_begin=store.physical_min,
                slaves=slaves,
            )
        self.roles.begin(Role.MASTER, epochs.last.number)

    async def run(self) -> None:
        """Give way to who leads in a greater epoch, until cancelled: it was promoted while nobody
        could reach this node, or while it was not there.
        """
        while True:
            await asyncio.sleep(LOOK_MS / SECOND_MS)
            if self.node.role is not Role.SLAVE and self.store.epochs.entries:
                await self._give_way()

    async def _give_way(self) -> None:
        newer = await self.replication.newer_master()
        if newer is None:
            return
        _log.error("%s leads in epoch %d: this node follows it", newer.address, newer.epoch)
        try:
            await self.demote(newer.epoch, newer.free_id)
        except (RequestRefused, ConfigError, StorageError) as error:
            _log.error("it does not follow %s yet: %s", newer.address, error)

    async def carry_out(self, order: ChangeReplicaRequestHeader) -> bytes:
        """An operator's order; the body of its answer. Raises RequestRefused, ConfigError,
        StorageError.
        """
        match order.action:
            case "HOLD":
                self.hold()
            case "PROMOTE":
                try:
                    role = BrokerRole(order.broker_role)
                except ValueError as error:
                    raise _refused(str(error)) from error
                await self.promote(order.epoch, role, order.in_sync_replicas)
            case "DEMOTE":
                await self.demote(order.epoch, order.broker_id)
            case "COPY":
                await self.replication.copy_tables()
            case "PREVIEW":
                return (await self.rebuild.preview()).encode()
            case "REBUILD":
                async with self._changing:
                    return (await self.rebuild.carry_out(order.log_end)).encode()
            case _:
                raise _refused(f"{order.action!r} is no order to a replica")
        return b""

    async def promote(self, epoch: int, role: BrokerRole, in_sync_replicas: int) -> None:
        """Lead in `epoch`. Raises RequestRefused, ConfigError, StorageError: then it does not."""
        async with self._changing:
            node, store, replication = self.node, self.store, self.replication
            if node.is_master:
                raise _refused(f"it is the master already, in epoch {node.term}")
            if role is BrokerRole.SLAVE:
                raise _refused("a master is a SYNC_MASTER or an ASYNC_MASTER")
            if epoch <= max(store.epochs.highest, node.term):
                raise _refused(f"epoch {epoch} is no news: {store.epochs.highest} was heard of")
            config = with_role(node.config, role, broker_id=0, in_sync_replicas=in_sync_replicas)
            async with replication.standing_still():
                await replication.open_port(config)
                await self._dispatched()
                await store.epochs.begin(
                    epoch,
                    store.physical_max,
                    log_begin=store.physical_min,
                    slaves=waited_for(config),
                )
                await self.ordered.order(config)
                await self.read_again()
                replication.serve(config)
                node.config = config
                self.roles.become(Role.MASTER, epoch)

    async def _dispatched(self) -> None:
        """All of the log is durable and in queues."""
        store = self.store
        await store.flush()
        while store.dispatch_behind_bytes and store.writable:  # noqa: ASYNC110 - no event says so.
            await asyncio.sleep(DISPATCH_MS / SECOND_MS)

    def hold(self) -> None:
        """Put nothing any more, and serve slaves on: one of them gets all there is. Raises
        RequestRefused.
        """
        if self.node.role is Role.SLAVE:
            raise _refused("it is no master")
        self.roles.become(Role.NONE, self.node.term)

    async def demote(self, epoch: int, broker_id: int) -> None:
        """Follow whoever leads in `epoch`, under this broker id. Raises RequestRefused for an epoch
        that is over, ConfigError, StorageError.
        """
        async with self._changing:
            node = self.node
            if epoch < node.term or (node.is_master and epoch == node.term):
                raise _refused(f"epoch {epoch} is over: it is {node.role.name} of {node.term}")
            config = with_role(
                node.config, BrokerRole.SLAVE, broker_id=broker_id, in_sync_replicas=1
            )
            self.roles.become(Role.NONE, node.term)
            await self.ordered.order(config)
            await self.replication.serve_nobody()
            node.config, node.slave_id = config, broker_id
            self.roles.become(Role.SLAVE, epoch)


def _refused(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, why)
