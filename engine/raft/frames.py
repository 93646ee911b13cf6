"""The bytes of what nodes of a group say to each other. Pure.

Each message is the body of a one-way remoting command with a code of our own, 52001. DLedger's
codes (51001 to 51006) have other words, an index a message and JSON around the bytes: who used
them for this would be taken for a DLedger node.

    u8 version | u8 kind | u16 length of sender | u16 length of receiver | sender | receiver |
    i64 time by the sender's clock, in ms | i64 term | what the kind has | bytes of the log

Place in the walk: `node` writes and reads them. Invariant: what `packed` makes `unpacked` gives
back; whatever arrives is a letter, or refused. Absent on purpose: checksums of records, which have
their own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from struct import Struct
from typing import Final

from engine.foundation.errors import RemoteProtocolError
from engine.raft.log_shape import Base, Mark, Position
from engine.raft.members import Members, NodeId
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

REQUEST_CODE: Final = 52_001
VERSION: Final = 1

_HEAD: Final = Struct(">BBHH")
_CLOCK_AND_TERM: Final = Struct(">qq")
_TERM: Final = Struct(">q")
_VOTE_REQUEST: Final = Struct(">qqBB")
_VOTE_REPLY: Final = Struct(">BB")
_APPEND: Final = Struct(">qqqqqB")
_REPLY: Final = Struct(">qqqBqqqq")
_BASE: Final = Struct(">qqqq")
_COUNT: Final = Struct(">H")
_KINDS: Final = (VoteRequest, VoteReply, Append, AppendReply, BeginAt, TimeoutNow, Gone)
_NO_MARK, _TERM_MARK, _MEMBERS_MARK = range(3)


@dataclass(frozen=True, slots=True)
class Letter:
    """A message with who sends it to whom, and the bytes that come with it."""

    sender: NodeId
    to: NodeId
    message: Message
    data: bytes = b""
    sent_ms: int = 0
    """When it was sent, by the sender's clock, in ms since 1970: nodes compare their clocks."""


def packed(letter: Letter) -> bytes:
    """The body of its command."""
    sender, to = letter.sender.encode(), letter.to.encode()
    message = letter.message
    kind = _KINDS.index(type(message))
    head = _HEAD.pack(VERSION, kind, len(sender), len(to))
    return b"".join(
        [
            *(head, sender, to, _CLOCK_AND_TERM.pack(letter.sent_ms, message.term)),
            *(_fields(message), bytes(letter.data)),
        ]
    )


def _fields(message: Message) -> bytes:
    match message:
        case VoteRequest(_, last, is_pre, by_transfer):
            return _VOTE_REQUEST.pack(last.term, last.index, is_pre, by_transfer)
        case VoteReply(_, is_pre, granted):
            return _VOTE_REPLY.pack(is_pre, granted)
        case Append(_, prev, end, commit, number, mark, _):
            kind = _NO_MARK if mark is None else _TERM_MARK + (mark.members is not None)
            fields = _APPEND.pack(prev.term, prev.index, end, commit, number, kind)
            if mark is None:
                return fields
            members = _members(mark.members) if mark.members is not None else b""
            return fields + _TERM.pack(mark.term) + members
        case AppendReply(_, number, has, synced, rejected, hint):
            is_rejected = rejected is not None and hint is not None
            places = (rejected or Position(), hint or Position())
            numbers = [number for place in places for number in (place.term, place.index)]
            return _REPLY.pack(number, has, synced, is_rejected, *numbers)
        case BeginAt(_, base, number):
            fields = _BASE.pack(base.index, base.term, base.offset, number)
            return fields + _members(base.members)
        case Gone(_, node):
            return _text(node)
        case TimeoutNow():
            return b""


def _text(text: str) -> bytes:
    data = text.encode()
    return _COUNT.pack(len(data)) + data


def _members(members: Members) -> bytes:
    groups = (members.voters, members.learners)
    return b"".join(_COUNT.pack(len(group)) + b"".join(map(_text, group)) for group in groups)


def unpacked(body: bytes) -> Letter:
    """The letter. Raises RemoteProtocolError for bytes that are none."""
    try:
        return _Reader(body).letter()
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise RemoteProtocolError(
            f"{len(body)} bytes are no message of a group: {error}"
        ) from error


class _Reader:
    """Takes one field after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def letter(self) -> Letter:
        version, kind, sender_length, to_length = self._take(_HEAD)
        if version != VERSION or kind >= len(_KINDS):
            raise RemoteProtocolError(f"version {version}, kind {kind} of a message of a group")
        sender, to = self._bytes(sender_length).decode(), self._bytes(to_length).decode()
        sent_ms, term = self._take(_CLOCK_AND_TERM)
        message = self._message(_KINDS[kind], self._number(term))
        data = self._body[self._at :]
        if data and not isinstance(message, Append):
            raise RemoteProtocolError(f"{len(data)} bytes behind a {type(message).__name__}")
        if isinstance(message, Append) and len(data) != message.end - message.prev.index:
            raise RemoteProtocolError(
                f"{len(data)} bytes from {message.prev.index} to {message.end}"
            )
        return Letter(sender, to, message, data, sent_ms)

    def _message(self, kind: type[Message], term: int) -> Message:
        if kind is VoteRequest:
            last_term, index, is_pre, by_transfer = self._take(_VOTE_REQUEST)
            last = self._position(last_term, index)
            return VoteRequest(term, last, bool(is_pre), bool(by_transfer))
        if kind is VoteReply:
            return VoteReply(term, *map(bool, self._take(_VOTE_REPLY)))
        if kind is Append:
            return self._append(term)
        if kind is AppendReply:
            number, has, synced, is_rejected, *places = self._take(_REPLY)
            if not is_rejected:
                return AppendReply(term, number, self._number(has), self._number(synced))
            rejected, hint = self._position(*places[:2]), self._position(*places[2:])
            return AppendReply(term, number, has, synced, rejected, hint)
        if kind is BeginAt:
            index, base_term, offset, number = self._take(_BASE)
            place = self._position(base_term, index)
            base = Base(place.index, place.term, self._number(offset), self._members())
            return BeginAt(term, base, number)
        if kind is Gone:
            return Gone(term, self._text())
        return TimeoutNow(term)

    def _append(self, term: int) -> Append:
        prev_term, index, end, commit, number, mark_kind = self._take(_APPEND)
        prev = self._position(prev_term, index)
        mark = None
        if mark_kind > _MEMBERS_MARK:
            raise RemoteProtocolError(f"a mark of kind {mark_kind}")
        if mark_kind != _NO_MARK:
            (mark_term,) = self._take(_TERM)
            members = self._members() if mark_kind == _MEMBERS_MARK else None
            mark = Mark(index, self._number(mark_term), members)
        return Append(term, prev, self._number(end), self._number(commit), number, mark)

    def _members(self) -> Members:
        voters, learners = (
            tuple(self._text() for _ in range(self._take(_COUNT)[0])) for _ in range(2)
        )
        return Members(voters, learners)

    def _text(self) -> str:
        (length,) = self._take(_COUNT)
        return self._bytes(length).decode()

    def _position(self, term: int, index: int) -> Position:
        return Position(self._number(term), self._number(index))

    def _number(self, number: int) -> int:
        if number < 0:
            raise RemoteProtocolError(f"{number} is no term and no index")
        return number

    def _take(self, fields: Struct) -> tuple[int, ...]:
        found = fields.unpack_from(self._body, self._at)
        self._at += fields.size
        return found

    def _bytes(self, length: int) -> bytes:
        begin, self._at = self._at, self._at + length
        if self._at > len(self._body):
            raise RemoteProtocolError(f"{length} bytes at {begin} of {len(self._body)}")
        return self._body[begin : self._at]
