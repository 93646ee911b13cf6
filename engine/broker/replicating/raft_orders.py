"""Carries out what operators order of a Raft group, and says how this node stands in it.

Place in the walk: behind the handlers of `tidemark admin replica`; the leader alone changes who
belongs to the group.

    add       a learner first, which gets the log, or files when the log has no more; then a voter
    remove    one voter at a time, and none that leaves no majority of those who are heard from
    transfer  to a voter that has all of the log; nothing is put meanwhile

Invariant: an order that is carried out in part can be given again. Absent on purpose: promotion by
hand; a group elects its leaders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from engine.broker.identity import BrokerNode, Role
from engine.broker.replicating.raft_peers import RaftPeers
from engine.broker.replicating.replication import as_sent_from
from engine.foundation.errors import ClusterError, RequestRefused
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies_admin import HaRuntimeInfo, ReplicaState
from engine.protocol.codes import ResponseCode
from engine.protocol.headers import ChangeReplicaRequestHeader
from engine.raft.events import ProposeMembers, Refusal, TransferTo
from engine.raft.members import Members, NodeId, name_of
from engine.raft.node import RaftNode
from engine.replication.ha_service import Replica
from engine.runtime.clock import Clock
from engine.store import MessageStore

LOOK_MS: Final = 50
CATCH_UP_MS: Final = 50 * SECOND_MS
"""How long an order waits for a newcomer to have the log."""
TRANSFER_MS: Final = 3 * SECOND_MS
SILENT_MS: Final = 3 * SECOND_MS
"""Who was not heard from for so long is not connected."""
BROKER_ROLE: Final = "RAFT"
"""What the state of a copy says instead of a brokerRole."""


class RaftOrders:
    """Those for one node."""

    def __init__(
        self,
        *,
        clock: Clock,
        node: BrokerNode,
        peers: RaftPeers,
        raft: Callable[[], RaftNode],
        store: MessageStore,
    ) -> None:
        """`raft` gives the node, once it has started."""
        self._clock = clock
        self._node = node
        self._peers = peers
        self._raft = raft
        self._store = store
        self._one_at_a_time = asyncio.Lock()

    async def carry_out(self, order: ChangeReplicaRequestHeader) -> bytes:
        """An order; the body of its answer. Raises RequestRefused, Unreachable, ClusterError."""
        self._node.check_master()
        async with self._one_at_a_time:
            match order.action:
                case "ADD":
                    await self._add(order.member)
                case "REMOVE":
                    await self._remove(order.member)
                case "TRANSFER":
                    await self.transfer(order.member)
                case _:
                    raise _refused(f"{order.action!r} is no order to a group that elects leaders")
        return b""

    async def _add(self, name: str) -> None:
        node = (await self._peers.who(name)).node
        until_ms = self._clock.steady_ms() + CATCH_UP_MS
        while node not in self._members.voters:
            members = self._members
            if node in members.learners:
                learners = tuple(one for one in members.learners if one != node)
                wanted = Members((*members.voters, node), learners)
            else:
                wanted = Members(members.voters, (*members.learners, node))
            refusal = await self._propose(wanted)
            if refusal is Refusal.NOT_CAUGHT_UP and self._clock.steady_ms() < until_ms:
                await asyncio.sleep(LOOK_MS / SECOND_MS)
            elif refusal is not None:
                raise ClusterError(f"{name} is no voter yet: {refusal.name}; order it again")

    async def _remove(self, name: str) -> None:
        members = self._members
        named = [one for one in members.all if name in (name_of(one), one)]
        if not named:
            raise _refused(f"{name!r} is none of {', '.join(members.all)}")
        for node in named:
            members = self._members
            wanted = Members(
                tuple(one for one in members.voters if one != node),
                tuple(one for one in members.learners if one != node),
            )
            refusal = await self._propose(wanted)
            if refusal is not None:
                raise ClusterError(f"{node} is not removed: {refusal.name}")

    async def _propose(self, wanted: Members) -> Refusal | None:
        """Change who belongs to the group, and wait until that is committed; or why not."""
        raft = self._raft()
        raft.refused = None
        raft.happen(ProposeMembers(wanted))
        if raft.refused is not None:
            reason: Refusal = raft.refused.reason
            if reason in (Refusal.MEMBERS_UNDER_WAY, Refusal.MARK_UNDER_WAY):
                await asyncio.sleep(LOOK_MS / SECOND_MS)
                return await self._propose(wanted)
            return reason
        term = self._node.term
        while not raft.state.is_member_change_committed:
            if not self._node.leads(term):
                raise ClusterError("this node leads no more: whether it is done, the others know")
            await asyncio.sleep(LOOK_MS / SECOND_MS)
        return None

    async def transfer(self, name: str) -> None:
        """Have another voter lead, the one with this name if there is one; returns when this node
        does not lead any more. Raises RequestRefused, ClusterError.
        """
        raft, term = self._raft(), self._node.term
        to = self._successor(name)
        raft.refused = None
        raft.happen(TransferTo(to))
        if raft.refused is not None:
            raise ClusterError(f"{to} does not take over: {raft.refused.reason.name}")
        until_ms = self._clock.steady_ms() + TRANSFER_MS
        while self._node.leads(term):
            if self._clock.steady_ms() >= until_ms:
                raise ClusterError(f"{to} does not take over; this node leads on")
            await asyncio.sleep(LOOK_MS / SECOND_MS)

    def _successor(self, name: str) -> NodeId:
        peers, voters = self._raft().state.peers, self._members.voters
        heard_from_ms = self._clock.steady_ms() - TRANSFER_MS
        able = [
            one
            for one in voters
            if one in peers and name in ("", name_of(one)) and peers[one].heard_ms > heard_from_ms
        ]
        if not able:
            raise _refused(f"{name or 'nobody else'} is no voter that is heard from and could lead")
        return max(able, key=lambda one: (peers[one].synced, peers[one].heard_ms))

    @property
    def _members(self) -> Members:
        return self._raft().state.members

    def state(self) -> ReplicaState:
        """This copy of the log."""
        store, node, raft = self._store, self._node, self._raft().state
        leader = "" if raft.leader is None else name_of(raft.leader)
        log = raft.log
        starts = [mark for mark in log.marks if mark.members is None]
        return ReplicaState(
            broker_id=node.broker_id,
            role=node.role.name,
            broker_role=BROKER_ROLE,
            in_sync_replicas=raft.members.majority,
            log_begin=store.physical_min,
            log_end=store.physical_max,
            log_synced=store.physical_flushed,
            highest_epoch=raft.term,
            epochs=[
                {"epoch": one.term, "startOffset": log.offset_at(one.index), "slaves": 0}
                for one in starts
            ],
            following="FOLLOWING" if leader and node.role is Role.SLAVE else "",
            reason=self._standing(),
            master_address=leader,
            master_end=log.offset_at(raft.commit) if leader else -1,
            member=name_of(raft.node),
            voters=list(raft.members.voters),
            learners=list(raft.members.learners),
        )

    def status(self) -> HaRuntimeInfo:
        """How far the others are, as far as this node hears of it: a leader does."""
        end = self._store.physical_max
        return as_sent_from(end, self.replicas(), is_master=self._node.is_master)

    def replicas(self) -> list[Replica]:
        """The others, as a leader hears from them."""
        raft = self._raft().state
        log, silent_ms = raft.log, self._clock.steady_ms() - SILENT_MS
        return [
            Replica(
                address=name_of(node),
                sent_end=log.offset_at(max(one.next, log.base.index)),
                end=log.offset_at(one.synced) if one.synced >= log.base.index else None,
                bytes_per_second=0,
            )
            for node, one in raft.peers.items()
            if one.heard_ms > silent_ms
        ]

    def _standing(self) -> str:
        raft = self._raft().state
        if raft.has_failed:
            return "its disk takes nothing"
        if raft.is_unsafe_to_elect:
            return "too many voters lost their disks: UNSAFE_TO_ELECT"
        if raft.node in raft.members.voters:
            return "a voter"
        return "a learner" if raft.node in raft.members.learners else "no member of the group"


def _refused(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, why)
