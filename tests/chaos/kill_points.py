"""The places in the code of a broker at which it can be killed by name.

Invariant: a place is a function of the product as it is, wrapped from outside; which one it is that
kills, and when, the program `member` says.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from engine.broker.replicating.agreed_tables import FILE_NAME, AgreedTables
from engine.broker.replicating.raft_founding import Founding
from engine.broker.replicating.raft_group import RaftGroup
from engine.broker.replicating.raft_log import RaftLog
from engine.raft.events import Event, TransferTo
from engine.raft.node import RaftNode
from engine.raft.vote_file import StoredVote, VoteFile
from engine.runtime.disk import SystemDisk
from engine.store.commit_log import CommitLog

Reached = Callable[[], None]
Applies = Callable[..., bool]


def _always(*_arguments: object) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class KillPoint:
    """Before or after a call of a function, if it applies to its arguments."""

    what: str
    owner: type
    function: str
    is_after: bool = False
    applies: Applies = _always

    def install(self, reached: Reached) -> None:
        """Call `reached` there from now on."""
        original: Callable[..., Any] = getattr(self.owner, self.function)

        @functools.wraps(original)
        async def wait(*arguments: Any, **named: Any) -> Any:
            does_apply = self.applies(*arguments)
            if does_apply and not self.is_after:
                reached()
            answer = await original(*arguments, **named)
            if does_apply and self.is_after:
                reached()
            return answer

        @functools.wraps(original)
        def call(*arguments: Any, **named: Any) -> Any:
            does_apply = self.applies(*arguments)
            if does_apply and not self.is_after:
                reached()
            answer = original(*arguments, **named)
            if does_apply and self.is_after:
                reached()
            return answer

        setattr(self.owner, self.function, wait if inspect.iscoroutinefunction(original) else call)


class HalfWritten(KillPoint):
    """A file of which half is written."""

    def install(self, reached: Reached) -> None:
        """As `KillPoint`; the whole file is written soon after, if that kills nobody."""
        original: Callable[..., Any] = getattr(self.owner, self.function)

        def write(disk: SystemDisk, path: str, data: bytes) -> None:
            if self.applies(disk, path, data):
                original(disk, path, data[: len(data) // 2])
                reached()
            original(disk, path, data)

        setattr(self.owner, self.function, write)


def _has_unsynced(log: RaftLog) -> bool:
    return log._store.physical_flushed < log._store.physical_max


def _cuts(log: RaftLog, offset: int) -> bool:
    return offset < log.end_offset


def _is_table(_disk: SystemDisk, path: str, *_rest: object) -> bool:
    return path.endswith(f"{FILE_NAME}.tmp")


def _is_vote(_disk: SystemDisk, path: str, *_rest: object) -> bool:
    return path.endswith("/vote.tmp")


def _is_first_vote(votes: VoteFile, _vote: StoredVote) -> bool:
    return votes.load() is None


def _is_transfer(_node: RaftNode, event: Event, *_rest: object) -> bool:
    return isinstance(event, TransferTo)


AT_WORK: Final = {
    "log unsynced": KillPoint("before a sync of the log", RaftLog, "sync", applies=_has_unsynced),
    "log synced": KillPoint(
        "after a sync of the log, before anybody hears of it",
        *(RaftLog, "sync", True, _has_unsynced),
    ),
    "committed": KillPoint(
        "a commit is known, nothing of it shown, applied or answered", RaftGroup, "_on_committed"
    ),
    "record unapplied": KillPoint(
        "a record of tables is visible, not applied", AgreedTables, "_apply"
    ),
    "snapshot half": HalfWritten(
        "half of a snapshot of the tables is written", SystemDisk, "write", applies=_is_table
    ),
    "snapshot unnamed": KillPoint(
        "a snapshot is written, the file not replaced", SystemDisk, "rename", applies=_is_table
    ),
}
"""What any broker of a group that is used comes to, without anything else."""
WHEN_ELECTED: Final = {
    "vote unwritten": KillPoint("a vote is given, not written", VoteFile, "save"),
    "vote unnamed": KillPoint(
        "a vote is written, the file not replaced", SystemDisk, "rename", applies=_is_vote
    ),
    "vote written": KillPoint("a vote is durable, not sent", VoteFile, "save", True),
    "elected": KillPoint("an election is won, nothing read for it", RaftGroup, "_take_over"),
}
"""What a broker comes to that is to take over."""
AT_HAND_OVER: Final = {
    "handing over": KillPoint("a hand-over has begun", RaftNode, "happen", True, _is_transfer),
}
"""What a leader comes to that hands over."""
AT_CUT: Final = {
    "cut noted": KillPoint(
        "the log is to be cut, which is written down", RaftLog, "truncate", applies=_cuts
    ),
    "cut half": KillPoint("queues are cut, the log is not", CommitLog, "cut"),
    "cut made": KillPoint(
        "the log is cut, which is not written down", RaftLog, "truncate", True, _cuts
    ),
}
"""What a former leader comes to whose log holds what was not committed."""
AT_FOUNDING: Final = {
    "founders unwritten": KillPoint("the founders are known, not written", Founding, "found"),
    "founders written": KillPoint(
        "the founders are written, their log's begin is not", Founding, "found", True
    ),
    "founding half": KillPoint(
        "the log's begin is written, no vote is", VoteFile, "save", applies=_is_first_vote
    ),
}
"""What a founder comes to."""
ALL: Final = AT_WORK | WHEN_ELECTED | AT_HAND_OVER | AT_CUT | AT_FOUNDING
