"""Row C11: the bytes of what nodes say to each other."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import RemoteProtocolError
from engine.raft.frames import Letter, packed, unpacked
from engine.raft.log_shape import Base, Mark, Position
from engine.raft.members import Members
from engine.raft.messages import (
    Append,
    AppendReply,
    BeginAt,
    Gone,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from tests.amounts import examples

MEMBERS = Members(("a:1/ä", "b"), ("c",))
LETTERS = [
    Letter("a", "b", VoteRequest(3, Position(2, 9), is_pre=True)),
    Letter("a", "b", VoteRequest(3, Position(2, 9), by_transfer=True)),
    Letter("a", "b", VoteReply(3, is_pre=False, granted=True)),
    Letter("a", "b", Append(3, Position(2, 9), 12, 8, 77), b"xyz"),
    Letter("a", "b", Append(3, Position(2, 9), 9, 8, 77, Mark(9, 3))),
    Letter("a", "b", Append(3, Position(2, 9), 9, 8, 77, Mark(9, 3, MEMBERS))),
    Letter("a", "b", AppendReply(3, 77, 12, 10)),
    Letter("a", "b", AppendReply(3, 77, 0, 0, Position(2, 9), Position(1, 4))),
    Letter("a", "b", BeginAt(3, Base(9, 2, 7, MEMBERS), 77)),
    Letter("a", "b", TimeoutNow(3), sent_ms=1_795_806_413_639),
    Letter("a/1", "", Gone(3, "b/2")),
]


@pytest.mark.parametrize("letter", LETTERS, ids=[str(at) for at in range(len(LETTERS))])
def test_a_letter_is_read_as_it_was_written(letter: Letter) -> None:
    assert unpacked(packed(letter)) == letter


@pytest.mark.parametrize("letter", LETTERS, ids=[str(at) for at in range(len(LETTERS))])
def test_no_part_of_a_letter_is_a_letter(letter: Letter) -> None:
    body = packed(letter)
    for length in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            unpacked(body[:length])


@given(letter=st.sampled_from(LETTERS), place=st.integers(0, 80), byte=st.integers(0, 255))
@examples(200, in_full=5000)
def test_hostile_bytes_are_refused_or_a_letter(letter: Letter, place: int, byte: int) -> None:
    body = bytearray(packed(letter))
    body[place % len(body)] = byte
    with suppress(RemoteProtocolError):
        unpacked(bytes(body))
