"""The state of one node of a group, as a value, and the questions that it answers.

Place in the walk: `core` makes the next state of it; whoever drives the core asks before it puts,
answers or lets somebody lead.

Invariant: nothing in a state is changed once it was returned: its parts are immutable, or replaced
as a whole. Absent on purpose: what is done with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from engine.foundation.units import MIB
from engine.raft.events import Refusal, Role
from engine.raft.log_shape import Base, LogShape
from engine.raft.members import Members, NodeId


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """The times and sizes of a group; all its nodes have the same."""

    election_timeout_ms: int = 1000
    """The least silence after which a node wants to lead; it draws up to twice as much. A leader
    gives up when it hears from no majority, or makes nothing durable, for so long.
    """
    heartbeat_ms: int = 100
    lease_ms: int = 750
    """How long after a heartbeat that a majority has answered nobody else can lead. Shorter than
    the election time-out, by more than clocks drift apart in it.
    """
    append_bytes_max: int = MIB
    """More is sent piece by piece, each once the one before has arrived."""
    window_bytes: int = 8 * MIB
    """As much is under way to a follower."""

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_ms * 2 < self.election_timeout_ms, (
            "a lost heartbeat is no silence"
        )
        assert 0 < self.lease_ms < self.election_timeout_ms, "a lease ends before others may lead"


class Sending(Enum):
    """How a leader stands to a follower."""

    PROBE = "PROBE"
    """One message at a time, until it is known where the follower's log is the leader's."""
    STREAM = "STREAM"
    FILES = "FILES"
    """The follower needs what the leader's log has no more."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a leader knows of a follower."""

    next: int
    """The index of what is sent next."""
    heard_ms: int
    """When it was last heard from."""
    sending: Sending = Sending.PROBE
    awaits: int | None = None
    """A probe is under way; who has the log up to there has got it."""
    has: int = 0
    synced: int = 0
    round: int = 0
    """The newest heartbeat that it has answered, and when that one began."""
    round_ms: int = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """A leader hands over."""

    to: NodeId
    until_ms: int
    """Given up then."""
    is_sent: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """A question that waits for a majority to say that this node still leads."""

    key: int
    index: int
    round: int


@dataclass(slots=True, kw_only=True)
class State:
    """One node. Times are those of a steady clock of its own."""

    node: NodeId
    settings: RaftSettings
    log: LogShape
    term: int
    vote: NodeId | None
    role: Role = Role.FOLLOWER
    leader: NodeId | None = None

    save_number: int = 0
    """Of the newest term and vote."""
    saved_number: int = 0
    """Of the newest that are durable."""
    cuts: int = 0
    synced: int = 0
    """Up to here the log is durable."""
    synced_ms: int = 0
    """When it last came nearer to the log's end, or was there."""
    commit: int = 0
    visible: int = 0
    """What is committed and durable here."""
    has_failed: bool = False
    """The disk has."""

    heard_ms: int = 0
    """When a leader was last heard from."""
    timer_ms: int = 0
    """Since when a follower or candidate waits, and for how long."""
    timeout_ms: int = 0
    verified: int = 0
    """Up to here the log is that of the leader of this term."""
    last_round: int = 0
    """The leader's newest heartbeat."""
    installing: Base | None = None
    votes: Mapping[NodeId, bool] = field(default_factory=dict)

    peers: Mapping[NodeId, Progress] = field(default_factory=dict)
    round: int = 0
    rounds: tuple[tuple[int, int], ...] = ()
    """A leader's heartbeats of the last election time-out, and when each began."""
    reads: tuple[Read, ...] = ()
    transfer: Transfer | None = None
    has_handed_over: bool = False
    """In this term a voter was sent word to lead at once, and may, whenever that arrives."""
    gone: tuple[NodeId, ...] = ()
    """Nodes that lost their disks."""

    @property
    def members(self) -> Members:
        """The configuration that counts."""
        return self.log.members

    def refusal(self) -> Refusal | None:
        """Why nothing may be appended by a client now; None: it may, in this step."""
        if self.role is not Role.LEADER:
            return Refusal.NOT_LEADER
        if self.log.term_at(self.visible) != self.term:
            return Refusal.NOT_READY
        if self.log.marks and self.log.marks[-1].index >= self.synced:
            return Refusal.MARK_UNDER_WAY
        if self.transfer is not None:
            return Refusal.TRANSFER_UNDER_WAY
        return None

    @property
    def may_campaign(self) -> bool:
        """Could it lead? Not who has no vote, or a disk that does not follow. Whoever is removed by
        an entry that may not be committed could be the only one who has it: it may, too.
        """
        return (
            (self.node in self.members.voters or self._is_being_removed)
            and not self.has_failed
            and self.installing is None
            and self.synced == self.log.end_index
        )

    @property
    def is_member_change_committed(self) -> bool:
        """Is it known that the configuration which counts is committed?"""
        return self.log.members_begin < self.commit

    @property
    def _is_being_removed(self) -> bool:
        before = self.log.members_at(self.log.members_begin)
        return not self.is_member_change_committed and self.node in before.voters

    def lease_until_ms(self, now_ms: int) -> int:
        """Until when nobody else can lead, by this node's clock; 0: nobody knows."""
        if self.role is not Role.LEADER or self.has_handed_over:
            return 0
        begun = {peer: progress.round_ms for peer, progress in self.peers.items()}
        newest = self.members.quorum_of(begun | {self.node: now_ms})
        return newest + self.settings.lease_ms if newest else 0

    @property
    def is_unsafe_to_elect(self) -> bool:
        """Have so many voters lost their disks that no majority of them is left?"""
        return not self.members.agree(set(self.members.voters).difference(self.gone))
