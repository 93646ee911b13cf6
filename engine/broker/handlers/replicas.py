"""Requests about the copies of a broker's log: its epochs.

Place in the walk: slaves ask before they follow; tools ask (mqadmin getBrokerEpoch).

Absent on purpose: how far slaves are (admin_store).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from engine.broker.identity import BrokerNode
from engine.protocol.bodies_admin import EpochEntry, EpochEntryCache
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Handler, Peer
from engine.store import Epoch, MessageStore


@dataclass(slots=True, kw_only=True, eq=False)
class ReplicaHandlers:
    """Requests about the copies of a log."""

    node: BrokerNode
    store: MessageStore

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs}

    def epochs(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_EPOCH_CACHE (1007): which part of the log was written in which epoch."""
        node, store = self.node, self.store
        listed = [
            EpochEntry(epoch=one.number, start_offset=one.begin)
            for one in store.epochs.entries or (Epoch(0, 0),)
        ]
        for one, following in pairwise(listed):
            one.end_offset = following.start_offset
        body = EpochEntryCache(
            cluster_name=node.config.cluster_name,
            broker_name=node.config.broker_name,
            broker_id=node.broker_id,
            max_offset=store.physical_max,
            epoch_list=listed,
        ).encode()
        return request.respond(ResponseCode.SUCCESS, body=body)
