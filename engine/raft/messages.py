"""What the nodes of a group say to each other.

Place in the walk: the core makes and takes them; `frames` has their bytes. Who sent one, and to
whom, is said by identity beside it. The bytes of the log travel with an `Append`, outside the core.

Invariant: each names the term in which it was sent. Absent on purpose: proposals of clients; who is
no leader says so, and forwards nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.raft.log_shape import Base, Mark, Position
from engine.raft.members import NodeId


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A candidate asks for a vote in `term`."""

    term: int
    last: Position
    """The end of the candidate's log."""
    is_pre: bool = False
    """Only asks whether it would get the vote; nobody's term rises by it."""
    by_transfer: bool = False
    """The leader itself wants it: that it is heard from is no reason to refuse."""


@dataclass(frozen=True, slots=True)
class VoteReply:
    """A voter's answer; of a vote that is granted, `term` is the candidate's."""

    term: int
    is_pre: bool
    granted: bool


@dataclass(frozen=True, slots=True)
class Append:
    """A leader's word to one follower: what comes behind `prev`, or that it still leads."""

    term: int
    prev: Position
    end: int
    """Behind the last byte that comes with it; `prev.index` when none does."""
    commit: int
    round: int
    """Which heartbeat of the leader it belongs to."""
    mark: Mark | None = None
    """What comes instead of bytes."""
    may_end_earlier: bool = False
    """Whoever sends it lets it end with the last entry that is whole."""


@dataclass(frozen=True, slots=True)
class AppendReply:
    """A follower's word to its leader."""

    term: int
    round: int
    """The newest one that it has seen."""
    has: int = 0
    """Up to here its log is the leader's."""
    synced: int = 0
    """Up to here it is the leader's, and a power cut leaves it."""
    rejected: Position | None = None
    """The place behind which nothing can be appended, because the follower's log has no such."""
    hint: Position | None = None
    """Where the two logs may still be the same."""


@dataclass(frozen=True, slots=True)
class BeginAt:
    """A leader has no more what the follower needs next: let it take the leader's files."""

    term: int
    base: Base
    round: int


@dataclass(frozen=True, slots=True)
class TimeoutNow:
    """A leader hands over: be a candidate at once."""

    term: int


@dataclass(frozen=True, slots=True)
class Gone:
    """The node that was meant does not live here any more: its disk has another identity."""

    term: int
    node: NodeId


Message = VoteRequest | VoteReply | Append | AppendReply | BeginAt | TimeoutNow | Gone
