"""What happens to a node, and what the core wants done about it.

Place in the walk: whoever drives the core hands it an event and carries out the effects.

Effects on the log are carried out in their order, one after the other; messages may overtake them.
What must be durable before what:

    Send.after       the saved term and vote of this number, or a later one
    SaveMark         the log before it; then the mark, before anything is appended behind it
    Cut              first what vouches for the bytes that go, then the bytes, then what comes next
    Synced           the bytes and marks up to there, and the end of every cut before

Invariant: an event names a fact that has happened, an effect what is to happen. Absent on purpose:
answers to clients; they wait for `Committed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.raft.log_shape import Base, Mark, Position
from engine.raft.members import Members, NodeId
from engine.raft.messages import Message


class Role(Enum):
    """What a node is in its term."""

    FOLLOWER = "FOLLOWER"
    PRE_CANDIDATE = "PRE_CANDIDATE"
    """Asks whether it could win, before it raises the term."""
    CANDIDATE = "CANDIDATE"
    LEADER = "LEADER"


class Refusal(Enum):
    """Why something is not done now."""

    NOT_LEADER = "NOT_LEADER"
    NOT_READY = "NOT_READY"
    """The leader's first entry is not committed yet."""
    MARK_UNDER_WAY = "MARK_UNDER_WAY"
    """A mark is not durable yet; nothing may be appended behind it."""
    TRANSFER_UNDER_WAY = "TRANSFER_UNDER_WAY"
    MEMBERS_UNDER_WAY = "MEMBERS_UNDER_WAY"
    """The configuration before is not committed yet."""
    NOT_CAUGHT_UP = "NOT_CAUGHT_UP"
    NO_VOTER = "NO_VOTER"
    WRONG_MEMBERS = "WRONG_MEMBERS"
    NO_MAJORITY = "NO_MAJORITY"
    """Of the new voters too few are heard from: nothing would be committed any more."""


# ---- events ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message came."""

    sender: NodeId
    message: Message


@dataclass(frozen=True, slots=True)
class Propose:
    """One entry, whose bytes go to the leader's log and end there."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class ProposeMembers:
    """Another configuration."""

    members: Members


@dataclass(frozen=True, slots=True)
class ReadIndex:
    """Up to where must be applied what answers a question of this moment?"""

    key: int


@dataclass(frozen=True, slots=True)
class TransferTo:
    """Let this voter lead."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class VoteSaved:
    """Term and vote of this number are durable."""

    number: int


@dataclass(frozen=True, slots=True)
class Synced:
    """The log is durable up to `index`; `cuts`: as many had there been when the sync began."""

    cuts: int
    index: int


@dataclass(frozen=True, slots=True)
class DiskFailed:
    """A write or a sync failed: nothing here can be trusted to become durable any more."""


@dataclass(frozen=True, slots=True)
class BeginGone:
    """The bytes of the log before `offset` are gone."""

    offset: int


@dataclass(frozen=True, slots=True)
class InstallFailed:
    """The leader's files could not be had; it may offer them again."""


@dataclass(frozen=True, slots=True)
class Installed:
    """The log begins at `base` now, and what stood in it before is applied."""

    base: Base


Event = (
    Tick
    | Received
    | Propose
    | ProposeMembers
    | ReadIndex
    | TransferTo
    | VoteSaved
    | Synced
    | DiskFailed
    | BeginGone
    | InstallFailed
    | Installed
)


# ---- effects --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """A message, once the term and vote number `after` are durable."""

    to: NodeId
    message: Message
    after: int


@dataclass(frozen=True, slots=True)
class SaveVote:
    """Make term and vote durable, and say `VoteSaved`."""

    number: int
    term: int
    vote: NodeId | None


@dataclass(frozen=True, slots=True)
class WriteBytes:
    """Append what the message just received holds from `begin` to `end`, as indices."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class SaveMark:
    """Append a mark."""

    mark: Mark


@dataclass(frozen=True, slots=True)
class Cut:
    """Take away what stands at `index` and behind it."""

    index: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Install:
    """Take over the leader's files, begin the log anew at `base`, and say `Installed`."""

    leader: NodeId
    base: Base


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything before is committed, and durable here: it may be applied, and seen."""

    position: Position
    offset: int


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """What this node is now, and who leads; a node that stepped down settles all who wait."""

    role: Role
    term: int
    leader: NodeId | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The entry stands at the end of the log; whoever waits for it waits for this position."""

    position: Position


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was appended or begun."""

    reason: Refusal
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReadReady:
    """Answer when everything before `index` is applied; None: ask whoever leads."""

    key: int
    index: int | None


@dataclass(frozen=True, slots=True)
class UnsafeToElect:
    """So many voters lost their disks that no majority of those who voted is left."""

    gone: tuple[NodeId, ...]


Effect = (
    Send
    | SaveVote
    | WriteBytes
    | SaveMark
    | Cut
    | Install
    | Committed
    | RoleChanged
    | Accepted
    | Refused
    | ReadReady
    | UnsafeToElect
)
