"""One step under way: the state that is being made, and the effects so far.

Place in the walk: `core` makes one for each event; `electing`, `leading` and `following` work on
it. What all of them do stands here.

Invariant: each message waits for the newest term and vote to be durable, whatever it says. The log
is cut behind what is committed only. Absent on purpose: decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.raft.events import (
    Committed,
    Cut,
    Effect,
    ReadReady,
    Role,
    RoleChanged,
    SaveMark,
    SaveVote,
    Send,
    WriteBytes,
)
from engine.raft.members import Members, NodeId
from engine.raft.messages import Message
from engine.raft.state import State

Below = Callable[[int], int]
"""A source of choices: a whole number in [0, bound)."""


@dataclass(slots=True)
class Work:
    """One step."""

    state: State
    now_ms: int
    below: Below
    effects: list[Effect] = field(default_factory=list)

    def send(self, to: NodeId, message: Message) -> None:
        """A message leaves when it may."""
        self.effects.append(Send(to, message, self.state.save_number))

    def save_vote(self) -> None:
        """Term or vote are others now; what was to be saved in this step before, need not be."""
        state = self.state
        state.save_number += 1
        self.effects = [each for each in self.effects if not isinstance(each, SaveVote)]
        self.effects.append(SaveVote(state.save_number, state.term, state.vote))

    def become(self, role: Role, leader: NodeId | None) -> None:
        """This role in the present term. What belongs to the role before is over."""
        state = self.state
        if state.role is Role.LEADER and role is not Role.LEADER:
            self.effects += [ReadReady(read.key, None) for read in state.reads]
            state.peers, state.reads, state.rounds = {}, (), ()
            state.transfer = None
        state.votes = {}
        state.role, state.leader = role, leader
        state.verified = state.commit
        state.last_round = 0
        self.restart_timer()
        self.effects.append(RoleChanged(role, state.term, leader))

    def become_follower(self, term: int, leader: NodeId | None) -> None:
        """Follow in `term`; None: whoever will lead."""
        state = self.state
        is_same = state.role is Role.FOLLOWER and state.leader == leader
        if term > state.term:
            state.term, state.vote = term, None
            self.save_vote()
        elif is_same:
            return
        self.become(Role.FOLLOWER, leader)

    def restart_timer(self) -> None:
        """Wait anew, for a time that nobody can guess: a candidate for a third of the silence after
        which others stand. When two have split the votes, one of them asks again soon.
        """
        state = self.state
        least_ms = state.settings.election_timeout_ms
        if state.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
            least_ms //= 3
        state.timer_ms, state.timeout_ms = self.now_ms, least_ms + self.below(least_ms)

    def add_mark(self, term: int, members: Members | None = None) -> None:
        """Append a mark."""
        state = self.state
        self._note_growth()
        state.log = state.log.with_mark(term, members)
        self.effects.append(SaveMark(state.log.marks[-1]))

    def add_bytes(self, end_offset: int) -> None:
        """The log has more bytes, which are there already."""
        self._note_growth()
        self.state.log = self.state.log.with_bytes(end_offset)

    def write_bytes(self, end_index: int) -> None:
        """Append bytes of a message."""
        log = self.state.log
        self.add_bytes(log.end_offset + end_index - log.end_index)
        self.effects.append(WriteBytes(log.end_index, end_index))

    def cut(self, index: int) -> None:
        """Take away what another leader has otherwise."""
        state = self.state
        assert index >= state.commit, f"what is committed is cut: {index} below {state.commit}"
        state.log = state.log.cut(index)
        state.cuts += 1
        state.synced = min(state.synced, index)
        state.verified = min(state.verified, index)
        self.effects.append(Cut(index, state.log.end_offset))

    def commit_to(self, index: int) -> None:
        """Everything before is committed."""
        state = self.state
        assert index <= state.log.end_index, f"{index} is beyond the log's end"
        state.commit = max(state.commit, index)
        self.show()

    def show(self) -> None:
        """Say what is committed and durable here."""
        state = self.state
        visible = min(state.commit, state.synced)
        if visible > state.visible:
            state.visible = visible
            log = state.log
            self.effects.append(Committed(log.position_at(visible), log.offset_at(visible)))

    def _note_growth(self) -> None:
        state = self.state
        if state.synced == state.log.end_index:
            state.synced_ms = self.now_ms
