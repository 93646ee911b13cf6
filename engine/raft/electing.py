"""Elections: who asks for votes, who grants them, who wins.

Place in the walk: a tick begins one; requests and replies come by `core`; `leading` takes over from
the one who wins.

Before a node raises its term it asks whether it would win (pre-vote), so that one who was cut off,
or hears nobody, disturbs nobody. Whoever has heard from a leader within the least election time-out
refuses both, unless the leader hands over: that makes a leader's lease true.

Invariant: a node votes once a term, durably before it says so or counts it itself, and only for a
log that ends in no earlier term than its own, and no shorter in the same: by its entries, not by
the term that it has heard of. Absent on purpose: priorities; a leader hands over.
"""

from __future__ import annotations

from engine.raft.events import Role
from engine.raft.leading import begin_to_lead
from engine.raft.members import NodeId
from engine.raft.messages import TimeoutNow, VoteReply, VoteRequest
from engine.raft.working import Work


def on_tick(work: Work) -> None:
    """Has this node waited long enough for a leader?"""
    state = work.state
    if work.now_ms - state.timer_ms < state.timeout_ms:
        return
    if state.may_campaign:
        _ask_first(work)
    elif state.role is not Role.FOLLOWER or state.leader is not None:
        work.become_follower(state.term, None)
    else:
        work.restart_timer()


def on_timeout_now(work: Work, message: TimeoutNow) -> None:
    """The leader hands over to this node."""
    state = work.state
    if message.term == state.term and state.role is Role.FOLLOWER and state.may_campaign:
        _campaign(work, by_transfer=True)


def on_request(work: Work, sender: NodeId, request: VoteRequest) -> None:
    """Somebody wants to lead."""
    state = work.state
    is_newer = request.term > state.term
    if is_newer and (request.is_pre or not _hears_a_leader(work, request)):
        if request.is_pre:
            granted = not _hears_a_leader(work, request) and _may_have_it(work, request)
            term = request.term if granted else state.term
            work.send(sender, VoteReply(term, is_pre=True, granted=granted))
            return
        work.become_follower(request.term, None)
    granted = (
        request.term == state.term
        and not request.is_pre
        and state.vote in {None, sender}
        and _may_have_it(work, request)
    )
    if granted and state.vote is None:
        state.vote = sender
        work.save_vote()
        work.restart_timer()
    work.send(sender, VoteReply(state.term, request.is_pre, granted))


def _hears_a_leader(work: Work, request: VoteRequest) -> bool:
    state = work.state
    if request.by_transfer:
        return False
    is_recent = work.now_ms - state.heard_ms < state.settings.election_timeout_ms
    return state.role is Role.LEADER or is_recent


def _may_have_it(work: Work, request: VoteRequest) -> bool:
    return not work.state.has_failed and request.last >= work.state.log.last


def on_reply(work: Work, sender: NodeId, reply: VoteReply) -> None:
    """A voter has answered."""
    state = work.state
    if state.role is Role.PRE_CANDIDATE:
        is_for_this = reply.is_pre and reply.term == state.term + reply.granted
    else:
        is_for_this = state.role is Role.CANDIDATE and not reply.is_pre
        is_for_this = is_for_this and reply.term == state.term
    if is_for_this:
        _count(work, sender, granted=reply.granted)


def on_saved(work: Work) -> None:
    """The own vote is durable: it counts now."""
    state = work.state
    if state.role is Role.CANDIDATE and state.saved_number == state.save_number:
        _count(work, state.node, granted=True)


def _ask_first(work: Work) -> None:
    state = work.state
    work.become(Role.PRE_CANDIDATE, None)
    _ask(work, VoteRequest(state.term + 1, state.log.last, is_pre=True))
    _count(work, state.node, granted=True)


def _campaign(work: Work, *, by_transfer: bool = False) -> None:
    state = work.state
    state.term, state.vote = state.term + 1, state.node
    work.save_vote()
    work.become(Role.CANDIDATE, None)
    _ask(work, VoteRequest(state.term, state.log.last, by_transfer=by_transfer))


def _ask(work: Work, request: VoteRequest) -> None:
    for node in work.state.members.voters:
        if node != work.state.node:
            work.send(node, request)


def _count(work: Work, voter: NodeId, *, granted: bool) -> None:
    state = work.state
    state.votes = {**state.votes, voter: granted}
    if not state.members.agree(node for node, yes in state.votes.items() if yes):
        return
    if state.role is Role.PRE_CANDIDATE:
        _campaign(work)
    else:
        begin_to_lead(work)
