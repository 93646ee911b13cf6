"""Raft as a function: a state and an event in, the next state and what is to be done out.

Place in the walk: whoever drives it owns clock, disk, network and chance; it hands in what happened
and carries out the effects, in their order.

Invariant: the same state, event, time and choices give the same step; the state that went in is as
it was. What holds of a group of such nodes is said, and held, by `tests/unit/raft/laws.py`. Absent
on purpose: any waiting, any bytes of the log, and what entries mean.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from engine.raft import electing, following, leading
from engine.raft.events import (
    BeginGone,
    DiskFailed,
    Effect,
    Event,
    Installed,
    InstallFailed,
    Propose,
    ProposeMembers,
    ReadIndex,
    Received,
    Role,
    Synced,
    Tick,
    TransferTo,
    UnsafeToElect,
    VoteSaved,
)
from engine.raft.log_shape import LogShape
from engine.raft.members import NodeId
from engine.raft.messages import (
    Append,
    AppendReply,
    BeginAt,
    Gone,
    Message,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from engine.raft.state import RaftSettings, State
from engine.raft.working import Below, Work


def begin(
    node: NodeId,
    settings: RaftSettings,
    *,
    log: LogShape,
    synced: int,
    term: int,
    vote: NodeId | None,
    now_ms: int,
    below: Below,
) -> State:
    """A node that starts, with what its disk has. It knows of no leader, and as it may have heard
    from one a moment ago, it votes for nobody until the least election time-out has passed.
    """
    if log.last.term > term:
        term, vote = log.last.term, None
    state = State(node=node, settings=settings, log=log, term=term, vote=vote)
    state.synced, state.synced_ms = synced, now_ms
    state.commit = state.visible = state.verified = log.base.index
    state.heard_ms = now_ms
    work = Work(state, now_ms, below)
    work.restart_timer()
    return state


def step(
    state: State, event: Event, *, now_ms: int, below: Below
) -> tuple[State, tuple[Effect, ...]]:
    """One event. `now_ms`: of a steady clock; `below`: a source of choices."""
    work = Work(replace(state), now_ms, below)
    match event:
        case Tick():
            (leading if work.state.role is Role.LEADER else electing).on_tick(work)
        case Received(sender, message):
            _receive(work, sender, message)
        case Propose(end_offset):
            leading.propose(work, end_offset)
        case ProposeMembers(members):
            leading.propose_members(work, members)
        case ReadIndex(key):
            leading.read_index(work, key)
        case TransferTo(node):
            leading.transfer_to(work, node)
        case VoteSaved(number):
            work.state.saved_number = max(number, work.state.saved_number)
            electing.on_saved(work)
        case Synced(cuts, index):
            if cuts == work.state.cuts:
                _synced(work, index)
        case DiskFailed():
            work.state.has_failed = True
            if work.state.role is not Role.FOLLOWER:
                leading.step_down(work)
        case BeginGone(offset):
            _begin_gone(work, offset)
        case InstallFailed():
            work.state.installing = None
        case Installed(base):
            following.on_installed(work, base)
        case _:
            assert_never(event)
    return work.state, tuple(work.effects)


def _receive(work: Work, sender: NodeId, message: Message) -> None:
    state = work.state
    match message:
        case Gone(_, node):
            _note_gone(work, node)
            return
        case VoteRequest():
            electing.on_request(work, sender, message)
            return
        case Append():
            following.on_append(work, sender, message)
            return
        case BeginAt():
            following.on_begin_at(work, sender, message)
            return
        case VoteReply(_, True, True):
            pass  # It names the term that the candidate would have.
        case _:
            if message.term > state.term:
                work.become_follower(message.term, None)
    match message:
        case VoteReply():
            electing.on_reply(work, sender, message)
        case AppendReply():
            leading.on_reply(work, sender, message)
        case TimeoutNow():
            electing.on_timeout_now(work, message)
        case _:
            assert_never(message)


def _synced(work: Work, index: int) -> None:
    """The log is durable up to there."""
    state = work.state
    assert index <= state.log.end_index, f"{index} is beyond the log's end"
    if index <= state.synced:
        return
    state.synced, state.synced_ms = index, work.now_ms
    work.show()
    if state.role is Role.LEADER:
        leading.count_copies(work)
    else:
        following.reply(work)


def _begin_gone(work: Work, offset: int) -> None:
    state = work.state
    assert offset <= state.log.offset_at(state.visible), "what is not committed is deleted"
    state.log = state.log.begun_at(offset)


def _note_gone(work: Work, node: NodeId) -> None:
    state = work.state
    if node in state.members.voters and node not in state.gone:
        state.gone = (*state.gone, node)
        if state.is_unsafe_to_elect:
            work.effects.append(UnsafeToElect(state.gone))
