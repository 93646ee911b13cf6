"""Takes and gives up the lead of one broker's group, in an epoch that no other node leads.

Place in the walk: a start, before the port opens, and the orders of `tidemark admin replica`.

Invariant: an epoch is on disk, with the place at which it begins, before anything is acknowledged
in it. A master that stopped cleanly goes on in its epoch; one that did not may have lost a tail
that slaves have, so what it writes now is of another. Absent on purpose: who is to lead (an
operator decides), the log of slaves (engine/replication).
"""

from __future__ import annotations

from engine.broker.config import BrokerConfig, BrokerRole
from engine.broker.identity import BrokerNode, Role
from engine.store import MessageStore


class Leadership:
    """That of one broker."""

    def __init__(self, *, node: BrokerNode, store: MessageStore) -> None:
        self._node = node
        self._store = store

    async def begin(self, *, stopped_cleanly: bool) -> None:
        """Take the epoch of this start. A node that never had a slave has none, and needs none.
        Raises StorageError.
        """
        node, store, epochs = self._node, self._store, self._store.epochs
        if not node.is_master:
            node.take_role(Role.SLAVE, epochs.highest)
            return
        if not epochs.entries and not expects_slaves(node.config):
            return
        if not (stopped_cleanly and epochs.leads):
            await epochs.begin(epochs.highest + 1, store.physical_max, log_begin=store.physical_min)
        node.take_role(Role.MASTER, epochs.newest)


def expects_slaves(config: BrokerConfig) -> bool:
    """Does a master with these settings open its HA port?"""
    if config.broker_role is BrokerRole.SLAVE:
        return False
    return config.ha_listen_port > 0 or config.broker_role is BrokerRole.SYNC_MASTER
