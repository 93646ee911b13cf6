"""What a follower does: takes its leader's log, and says what it has.

Place in the walk: a leader's messages come by `core`, as the end of each sync does.

    behind `prev` of the message
      the own log has no entry that ends there      refused, with the place to try next
      it has, and the same behind it                nothing is done
      it has, and something else behind it          that is cut, and the message's appended
      it has, and nothing behind it                 appended

Invariant: nothing that is committed is cut. It reports as its leader's only what it was compared
with in this term, and as synced what is that as well. Absent on purpose: the files of a leader.
"""

from __future__ import annotations

from engine.raft.events import Install
from engine.raft.log_shape import Base, LogShape
from engine.raft.members import NodeId
from engine.raft.messages import Append, AppendReply, BeginAt
from engine.raft.working import Work


def on_append(work: Work, sender: NodeId, message: Append) -> None:
    """The leader's log goes on, or it says that it leads."""
    state = work.state
    if not _hear(work, sender, message):
        return
    if message.prev.index < state.commit or state.installing is not None:
        reply(work)  # What is committed is the leader's, too: it goes on from there.
    elif state.log.holds(message.prev):
        _take(work, message)
        reply(work)
    else:
        hint = state.log.end_of_term(message.prev.term)
        if hint is None or hint.index < state.commit:
            hint = state.log.position_at(state.commit)
        work.send(
            sender,
            AppendReply(state.term, state.last_round, rejected=message.prev, hint=hint),
        )


def _hear(work: Work, sender: NodeId, message: Append | BeginAt) -> bool:
    """Is it the leader of this term, or a newer one, who speaks?"""
    state = work.state
    if message.term < state.term:
        work.send(sender, AppendReply(state.term, message.round))
        return False
    if message.term == state.term and state.leader not in {None, sender}:
        return False
    work.become_follower(message.term, sender)
    state.heard_ms = state.timer_ms = work.now_ms
    state.last_round = max(state.last_round, message.round)
    return not state.has_failed


def _take(work: Work, message: Append) -> None:
    state, begin = work.state, message.prev.index
    end = message.end
    if message.mark is not None:
        end = begin + 1
        if state.log.mark_at(begin) != message.mark:
            _cut_behind(work, begin)
            work.add_mark(message.mark.term, message.mark.members)
    else:
        own_end = state.log.bytes_end(begin)
        if own_end < end:
            _cut_behind(work, own_end)
            work.write_bytes(end)
    state.verified = max(state.verified, end)
    work.commit_to(min(message.commit, state.verified))


def _cut_behind(work: Work, index: int) -> None:
    if index < work.state.log.end_index:
        work.cut(index)


def reply(work: Work) -> None:
    """Say to the leader how far this node is."""
    state = work.state
    if state.leader is None or state.has_failed:
        return
    synced = min(state.verified, state.synced)
    message = AppendReply(state.term, state.last_round, state.verified, synced)
    work.send(state.leader, message)


def on_begin_at(work: Work, sender: NodeId, message: BeginAt) -> None:
    """The leader has no more what comes next here."""
    state = work.state
    if not _hear(work, sender, message):
        return
    is_there = message.base.index <= state.commit or state.log.holds(message.base.position)
    if not is_there and state.installing is None:
        state.installing = message.base
        work.effects.append(Install(sender, message.base))
    reply(work)


def on_installed(work: Work, base: Base) -> None:
    """The log holds nothing but what comes behind the leader's files."""
    state = work.state
    assert base.index >= state.commit, "files older than what is committed"
    state.installing = None
    state.log = LogShape(base, (), base.offset)
    state.cuts += 1
    state.synced, state.synced_ms = base.index, work.now_ms
    work.commit_to(base.index)
    state.verified = base.index
    reply(work)
