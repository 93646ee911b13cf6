"""Row C11: what a follower makes of one message."""

from __future__ import annotations

from engine.raft.core import begin, step
from engine.raft.events import Cut, Effect, Install, InstallFailed, Received, Send, WriteBytes
from engine.raft.log_shape import Base, LogShape, Mark, Position
from engine.raft.members import Members
from engine.raft.messages import Append, AppendReply, BeginAt
from engine.raft.state import RaftSettings, State

LOG = LogShape(Base(members=Members(("a", "b", "c"))), (Mark(0, 1),), 30)
"""The mark of term 1, and 30 bytes of it."""


def follower() -> State:
    return begin(
        "b",
        RaftSettings(),
        log=LOG,
        synced=LOG.end_index,
        term=1,
        vote=None,
        now_ms=0,
        below=lambda bound: 0,
    )


def after(state: State, message: Append) -> tuple[State, tuple[Effect, ...]]:
    return step(state, Received("a", message), now_ms=1, below=lambda bound: 0)


def replies(effects: tuple[Effect, ...]) -> list[AppendReply]:
    return [
        effect.message
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, AppendReply)
    ]


def test_what_was_not_compared_is_not_committed() -> None:
    state, effects = after(follower(), Append(2, Position(1, 11), 17, 25, 1))
    assert state.commit == 17
    assert state.log == LOG
    assert [(each.has, each.synced) for each in replies(effects)] == [(17, 17)]


def test_an_old_message_cuts_nothing() -> None:
    state, _ = after(follower(), Append(1, Position(1, 31), 40, 0, 2))
    state, effects = after(state, Append(1, Position(1, 11), 17, 0, 1))
    assert state.log.end_index == 40
    assert not [effect for effect in effects if isinstance(effect, Cut | WriteBytes)]


def test_a_message_that_begins_in_the_known_is_written_from_its_end() -> None:
    state, effects = after(follower(), Append(1, Position(1, 11), 40, 0, 2))
    assert state.log.end_index == 40
    assert [effect for effect in effects if isinstance(effect, WriteBytes)] == [WriteBytes(31, 40)]


def test_a_mark_where_this_log_has_bytes_cuts_them() -> None:
    state, effects = after(follower(), Append(2, Position(1, 21), 21, 0, 1, Mark(21, 2)))
    assert state.log == LOG.cut(21).with_mark(2)
    assert [effect for effect in effects if isinstance(effect, Cut)] == [Cut(21, 20)]
    assert [(each.has, each.synced) for each in replies(effects)] == [(22, 21)]


def test_bytes_where_this_log_has_a_mark_cut_it() -> None:
    state = follower()
    state, _ = after(state, Append(2, Position(1, 31), 31, 0, 1, Mark(31, 2)))
    state, effects = after(state, Append(3, Position(1, 11), 35, 0, 1))
    assert state.log == LOG.with_bytes(34)
    assert [effect for effect in effects if isinstance(effect, Cut | WriteBytes)] == [
        Cut(31, 30),
        WriteBytes(31, 35),
    ]


def test_a_place_that_it_has_not_is_refused_with_the_end_of_that_term() -> None:
    _, effects = after(follower(), Append(3, Position(2, 40), 50, 0, 1))
    assert [(each.rejected, each.hint) for each in replies(effects)] == [
        (Position(2, 40), Position(1, 31))
    ]


def test_a_leader_of_an_earlier_term_learns_the_newer() -> None:
    state, _ = after(follower(), Append(5, Position(1, 31), 31, 0, 1))
    _, effects = after(state, Append(4, Position(1, 31), 40, 0, 1))
    assert [each.term for each in replies(effects)] == [5]


def test_files_that_could_not_be_had_are_offered_again() -> None:
    base = Base(90, 2, 80, Members(("a", "b", "c")))
    offer, beat = BeginAt(3, base, 1), Append(3, Position(2, 90), 90, 0, 2)
    state, effects = step(follower(), Received("a", offer), now_ms=1, below=lambda bound: 0)
    assert [effect for effect in effects if isinstance(effect, Install)] == [Install("a", base)]
    state, effects = step(state, Received("a", offer), now_ms=1, below=lambda bound: 0)
    assert not [effect for effect in effects if isinstance(effect, Install)]
    state, effects = after(state, beat)
    assert [each.rejected for each in replies(effects)] == [None]
    state, _ = step(state, InstallFailed(), now_ms=1, below=lambda bound: 0)
    _, effects = after(state, beat)
    assert [each.rejected for each in replies(effects)] == [beat.prev]
