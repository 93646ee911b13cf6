"""What a leader does: sends its log, counts copies, hands over, changes the members.

Place in the walk: `electing` makes the leader; replies, ticks and proposals come by `core`.

Invariant: an entry is committed when a majority of voters has it durably, this node as any other,
and it, or one behind it, is of this leader's term. A follower is sent entries from a place on at
which its log was, or is asked whether it is, the leader's. Absent on purpose: forgetting a follower
that is slow; it gets the log piece by piece, or files.
"""

from __future__ import annotations

from dataclasses import replace

from engine.raft.events import Accepted, ReadReady, Refusal, Refused, Role
from engine.raft.log_shape import Position
from engine.raft.members import Members, NodeId
from engine.raft.messages import Append, AppendReply, BeginAt, TimeoutNow
from engine.raft.state import Progress, Read, Sending, Transfer
from engine.raft.working import Work


def begin_to_lead(work: Work) -> None:
    """The vote is won: the term begins with a mark of its own, at the log's end."""
    state = work.state
    work.become(Role.LEADER, state.node)
    state.has_handed_over = False
    begin = Progress(next=state.log.end_index, heard_ms=work.now_ms)
    state.peers = {node: begin for node in state.members.all if node != state.node}
    work.add_mark(state.term)
    beat(work)


def step_down(work: Work) -> None:
    """Lead no more in this term."""
    work.become_follower(work.state.term, None)


def beat(work: Work) -> None:
    """Say to everybody that this node leads."""
    state = work.state
    state.round += 1
    oldest_ms = work.now_ms - state.settings.election_timeout_ms
    recent = tuple(each for each in state.rounds if each[1] >= oldest_ms)
    state.rounds = (*recent, (state.round, work.now_ms))
    for node in state.peers:
        send_log(work, node, is_beat=True)


def send_log(work: Work, node: NodeId, *, is_beat: bool = False) -> None:
    """Send what comes next for this follower; a heartbeat sends one message at least."""
    state = work.state
    while True:
        progress, log = state.peers[node], state.log
        if progress.next < log.base.index:
            _offer_files(work, node)
            return
        if progress.sending is Sending.FILES:
            if is_beat:
                _send(work, node, log.base.index, log.base.index)
            return
        if progress.sending is Sending.PROBE and progress.awaits is not None and not is_beat:
            return
        begin = progress.next
        mark = log.mark_at(begin)
        end = log.bytes_end(begin) if mark is None else begin + 1
        is_long = mark is None and end - begin > state.settings.append_bytes_max
        is_full = begin - progress.has >= state.settings.window_bytes
        if progress.sending is Sending.STREAM and (
            begin == end or is_full or (is_long and begin > progress.has)
        ):
            if is_beat:
                _send(work, node, begin, begin)
            return
        if is_long:
            end = begin + state.settings.append_bytes_max
        _send(work, node, begin, end, may_end_earlier=is_long)
        if is_long or progress.sending is Sending.PROBE:
            awaits = min(begin + 1, end)
            _note(work, node, replace(progress, sending=Sending.PROBE, awaits=awaits))
            return
        _note(work, node, replace(progress, next=end))
        is_beat = False


def _send(work: Work, node: NodeId, begin: int, end: int, *, may_end_earlier: bool = False) -> None:
    state = work.state
    mark = state.log.mark_at(begin) if end == begin + 1 else None
    work.send(
        node,
        Append(
            state.term,
            state.log.position_at(begin),
            begin if mark is not None else end,
            state.commit,
            state.round,
            mark,
            may_end_earlier,
        ),
    )


def on_reply(work: Work, sender: NodeId, reply: AppendReply) -> None:
    """A follower says how far it is, or that it cannot append."""
    state = work.state
    progress = state.peers.get(sender)
    if state.role is not Role.LEADER or reply.term != state.term or progress is None:
        return
    begun_ms = dict(state.rounds).get(reply.round, 0)
    progress = replace(
        progress,
        heard_ms=work.now_ms,
        round=max(progress.round, reply.round),
        round_ms=max(progress.round_ms, begun_ms),
    )
    _note(work, sender, progress)
    if reply.rejected is not None and reply.hint is not None:
        _on_rejection(work, sender, reply.rejected, reply.hint)
    else:
        _note(work, sender, _taken(progress, reply, state.log.base.index))
        count_copies(work)
    if state.role is Role.LEADER:
        answer_reads(work)
        _go_on_handing_over(work)
        send_log(work, sender)


def _taken(progress: Progress, reply: AppendReply, base_index: int) -> Progress:
    has = max(progress.has, reply.has)
    synced = max(progress.synced, reply.synced)
    progress = replace(progress, has=has, synced=synced)
    if progress.sending is Sending.STREAM:
        return replace(progress, next=max(progress.next, has))
    awaits = base_index if progress.sending is Sending.FILES else progress.awaits
    if awaits is None or reply.has < awaits:
        return progress  # It answers something older: sent once for each, a probe would multiply.
    begin = max(reply.has, synced)
    return replace(progress, sending=Sending.STREAM, awaits=None, next=begin)


def _on_rejection(work: Work, node: NodeId, rejected: Position, hint: Position) -> None:
    """Its log has nothing that ends there: try where the two may be the same."""
    state = work.state
    progress, log = state.peers[node], state.log
    if progress.sending is Sending.PROBE and rejected.index != progress.next:
        return
    if rejected.index <= progress.synced and progress.sending is Sending.STREAM:
        return
    place = log.end_of_term(hint.term)
    begin = min(place.index, hint.index) if place is not None else -1
    if begin < log.base.index:
        _offer_files(work, node)
        return
    begin = max(begin, progress.synced)
    probe = replace(progress, sending=Sending.PROBE, awaits=None, next=begin)
    _note(work, node, replace(probe, has=min(progress.has, begin)))


def _offer_files(work: Work, node: NodeId) -> None:
    state, base = work.state, work.state.log.base
    _note(work, node, replace(state.peers[node], sending=Sending.FILES, next=base.index))
    work.send(node, BeginAt(state.term, base, state.round))


def _note(work: Work, node: NodeId, progress: Progress) -> None:
    work.state.peers = {**work.state.peers, node: progress}


def count_copies(work: Work) -> None:
    """What a majority has durably is committed, once it reaches into the own term."""
    state = work.state
    copies = {node: progress.synced for node, progress in state.peers.items()}
    index = state.members.quorum_of(copies | {state.node: state.synced})
    if index <= state.commit or state.log.term_at(index) != state.term:
        return
    work.commit_to(index)
    if state.node not in state.members.voters and state.is_member_change_committed:
        step_down(work)  # It was removed, and has seen to it that everybody knows.


def propose(work: Work, end_offset: int) -> None:
    """A client's entry, whose bytes end there."""
    reason = work.state.refusal()
    if reason is not None:
        work.effects.append(Refused(reason))
        return
    work.add_bytes(end_offset)
    _accept(work)


def propose_members(work: Work, members: Members) -> None:
    """Another configuration; it counts from here on."""
    state = work.state
    reason, detail = state.refusal(), ""
    if reason is None and not state.is_member_change_committed:
        reason = Refusal.MEMBERS_UNDER_WAY
    if reason is None:
        detail = state.members.fault_of(members)
        reason = Refusal.WRONG_MEMBERS if detail else None
    if reason is None:
        behind = [node for node in members.voters if _is_behind(work, node)]
        reason = Refusal.NOT_CAUGHT_UP if behind else None
        detail = ", ".join(behind)
    if reason is None and not members.agree(_heard(work)):
        reason = Refusal.NO_MAJORITY
    if reason is not None:
        work.effects.append(Refused(reason, detail))
        return
    work.add_mark(state.term, members)
    begin = Progress(next=state.log.end_index, heard_ms=work.now_ms)
    others = [node for node in members.all if node != state.node]
    state.peers = {node: state.peers.get(node, begin) for node in others}
    _accept(work)


def _is_behind(work: Work, node: NodeId) -> bool:
    """Would a new voter hold the others up? One that lacks a message or less does not."""
    state = work.state
    if node in state.members.voters:
        return False
    return state.peers[node].synced + state.settings.append_bytes_max < state.commit


def _accept(work: Work) -> None:
    work.effects.append(Accepted(work.state.log.last))
    for node in work.state.peers:
        send_log(work, node)


def read_index(work: Work, key: int) -> None:
    """A question that may be answered when a majority says, after now, that this node leads."""
    state = work.state
    if state.role is not Role.LEADER or state.log.term_at(state.visible) != state.term:
        work.effects.append(ReadReady(key, None))
        return
    is_asking = any(read.round <= state.round for read in state.reads)
    state.reads = (*state.reads, Read(key, state.commit, state.round + 1))
    if not is_asking:
        beat(work)
        answer_reads(work)


def answer_reads(work: Work) -> None:
    """Those whose heartbeat a majority has answered."""
    state = work.state
    if not state.reads:
        return
    rounds = {node: progress.round for node, progress in state.peers.items()}
    answered = state.members.quorum_of(rounds | {state.node: state.round})
    ready = [read for read in state.reads if read.round <= answered]
    state.reads = state.reads[len(ready) :]
    work.effects += [ReadReady(read.key, read.index) for read in ready]
    if ready and state.reads:
        beat(work)  # Questions that came meanwhile share the next one.


def transfer_to(work: Work, node: NodeId) -> None:
    """Hand over to a voter once it has all of the log; nothing is appended meanwhile."""
    state = work.state
    if state.role is not Role.LEADER:
        work.effects.append(Refused(Refusal.NOT_LEADER))
    elif node not in state.peers or node not in state.members.voters:
        work.effects.append(Refused(Refusal.NO_VOTER, node))
    elif state.transfer is not None:
        work.effects.append(Refused(Refusal.TRANSFER_UNDER_WAY, state.transfer.to))
    else:
        state.transfer = Transfer(node, work.now_ms + state.settings.election_timeout_ms)
        _go_on_handing_over(work)


def _go_on_handing_over(work: Work) -> None:
    state, transfer = work.state, work.state.transfer
    if transfer is None or transfer.is_sent:
        return
    if transfer.to not in state.peers:
        state.transfer = None
    elif state.peers[transfer.to].synced == state.log.end_index:
        state.transfer = replace(transfer, is_sent=True)
        state.has_handed_over = True
        work.send(transfer.to, TimeoutNow(state.term))


def _heard(work: Work) -> list[NodeId]:
    """Who is there: this node, and whom it heard from within an election time-out."""
    state = work.state
    oldest_ms = work.now_ms - state.settings.election_timeout_ms
    return [state.node, *(node for node, p in state.peers.items() if p.heard_ms > oldest_ms)]


def on_tick(work: Work) -> None:
    """A leader gives up whom nobody hears, or who makes nothing durable; else it beats."""
    state, settings = work.state, work.state.settings
    is_late = work.now_ms - state.synced_ms >= settings.election_timeout_ms
    is_grey = is_late and state.synced < state.log.end_index
    if is_grey or not state.members.agree(_heard(work)):
        step_down(work)
        return
    if state.transfer is not None and work.now_ms >= state.transfer.until_ms:
        state.transfer = None
    if not state.rounds or work.now_ms - state.rounds[-1][1] >= settings.heartbeat_ms:
        beat(work)
