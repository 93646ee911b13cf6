"""Handles replica requests: epochs, replica state, offset merges and operator commands.

Place in the walk: slaves ask before they follow; tools ask (mqadmin getBrokerEpoch).

Absent on purpose: how far slaves are (admin_store).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from engine.broker.identity import BrokerNode
from engine.foundation.chunked_work import in_steps, stepped
from engine.foundation.errors import RemoteProtocolError, RequestRefused, TidemarkError
from engine.protocol.bodies_admin import (
    EpochEntry,
    EpochEntryCache,
    OutageOffsetList,
    ReplicaState,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import ChangeReplicaRequestHeader
from engine.remoting import Handler, Handlers, Peer
from engine.store import MessageStore


@dataclass(slots=True, kw_only=True, eq=False)
class ReplicaHandlers(Handlers):
    """Requests about the copies of a log."""

    carry_out: Callable[[ChangeReplicaRequestHeader], Awaitable[bytes]]
    merge: Callable[[OutageOffsetList], Iterator[None]]
    node: BrokerNode
    outage: Callable[[], OutageOffsetList]
    state: Callable[[], ReplicaState]
    store: MessageStore

    def handlers(self) -> dict[int, Handler]:
        """Request code → handler."""
        return {
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epochs,
            RequestCode.GET_REPLICA_STATE: self.replica_state,
            RequestCode.CHANGE_REPLICA: self.change,
            RequestCode.MERGE_CONSUMER_OFFSETS: self.merge_offsets,
            RequestCode.GET_OUTAGE_OFFSETS: self.outage_offsets,
        }

    def replica_state(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_REPLICA_STATE (720208): the role, the log and the epochs of this copy."""
        return request.respond(ResponseCode.SUCCESS, body=self.state().encode())

    async def change(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """CHANGE_REPLICA (720209): an order of an operator; answered when it is carried out."""
        order = ChangeReplicaRequestHeader.decode(request.fields)
        try:
            body = await self.carry_out(order)
        except RequestRefused:
            raise
        except TidemarkError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return request.respond(ResponseCode.SUCCESS, body=body)

    async def merge_offsets(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """MERGE_CONSUMER_OFFSETS (720210): what a slave took while its master was away."""
        self.node.check_master()
        try:
            listed = OutageOffsetList.decode(request.body)
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        await in_steps(stepped(self.merge(listed)))
        return request.respond(ResponseCode.SUCCESS)

    def outage_offsets(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_OUTAGE_OFFSETS (720211): what it took and no master has."""
        return request.respond(ResponseCode.SUCCESS, body=self.outage().encode())

    def epochs(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_EPOCH_CACHE (1007): which part of the log was written in which epoch."""
        node, store = self.node, self.store
        known = self.state().epochs or [{"epoch": 0, "startOffset": 0}]
        listed = [EpochEntry(epoch=one["epoch"], start_offset=one["startOffset"]) for one in known]
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
