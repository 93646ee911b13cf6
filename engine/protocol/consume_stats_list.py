"""Incrementally parses a response with the progress of all groups on a broker (code 317).

    {"brokerAddr":"…","consumeStatsList":[{"group":[{"consumeTps":0.0,"offsetTable":{
        {"brokerName":"b","queueId":0,"topic":"t"}:{"brokerOffset":9,"consumerOffset":7,…},…}}]},…]}

Place in the walk: between a frame's body and its requester. It is the longest of all answers: of a
large cluster 24,000 entries in 5 MB, of a hostile broker a whole frame. So it is not read at once,
as `fastjson` reads, but in slices, and the reader lets others run in between.

Invariant: an entry is what `fastjson` would make of it; a slice takes some milliseconds, whatever
the text; only RemoteProtocolError comes out. What is not of this form is refused, also where it
would be JSON. Absent on purpose: whether figures can be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from engine.foundation.errors import RemoteProtocolError
from engine.foundation.limits import LOOSE_KEYS_MAX
from engine.foundation.units import Buffer
from engine.protocol import fastjson
from engine.protocol.bodies_admin import OffsetWrapper
from engine.protocol.body_codec import Part, WireQueue
from engine.protocol.message import MessageQueue

PIECE_CHARS_MAX: Final = 16 * 1024
"""Of an entry, a name or a figure; names of topics and groups have some hundreds."""
MEMBERS_MAX: Final = 64
"""Of an answer and of a group's figures; real ones have four."""
LOOSE_KEYS_AN_ENTRY_MAX: Final = 16
SLICE_CHARS_MAX: Final = 64 * 1024
SLICE_ENTRIES_MAX: Final = 200
"""A slice ends with either; an entry is read in 3 µs, in 100 when it is written as nobody does."""

Entry = tuple[MessageQueue, OffsetWrapper]
Named = tuple[str, Entry | None]
"""(group, how far it is in a queue); None where figures of a group begin, of which it may have
none.
"""

_SPACE: Final = r"[ \t\r\n]*+"
_STRING: Final = r'"(?:[^"\\\x00-\x1f]|\\.)*+"'
_OBJECT: Final = rf'\{{(?:[^"{{}}]++|{_STRING})*+\}}'
_NAME: Final = re.compile(rf"{_SPACE}({_STRING}){_SPACE}:")
_SCALAR: Final = re.compile(rf"{_SPACE}(?:{_STRING}|[-+.0-9A-Za-z]++)")
_NOTHING: Final = re.compile(rf"{_SPACE}\{{{_SPACE}\}}")
_NULL: Final = re.compile(rf"{_SPACE}null")
_ENTRY: Final = re.compile(rf"{_SPACE}({_OBJECT}){_SPACE}:{_SPACE}({_OBJECT}){_SPACE}([,}}])")
_SIGNS: Final = {sign: re.compile(rf"{_SPACE}\{sign}") for sign in "{}[],"}

_QUEUES: Final = msgspec.json.Decoder(WireQueue)
_FIGURES: Final = msgspec.json.Decoder(OffsetWrapper)
_Part = TypeVar("_Part", bound=Part)


def consume_stats_in_slices(body: Buffer) -> Iterator[list[Named]]:
    """The entries of a body, in its order. Raises RemoteProtocolError where it is wrong."""
    try:
        scan = _Scan(str(body, "utf-8"))
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"figures of groups are not UTF-8: {error}") from error
    entries: list[Named] = []
    end = SLICE_CHARS_MAX
    for count, one in enumerate(_groups(scan), 1):
        if count > LOOSE_KEYS_MAX:
            raise RemoteProtocolError(f"figures of groups on more than {LOOSE_KEYS_MAX} queues")
        entries.append(one)
        if len(entries) >= SLICE_ENTRIES_MAX or scan.at >= end:
            yield entries
            entries, end = [], scan.at + SLICE_CHARS_MAX
    yield entries


def _groups(scan: _Scan) -> Iterator[Named]:
    for name in scan.members(count_max=MEMBERS_MAX):
        if name != "consumeStatsList" or scan.has(_NULL):
            scan.take(_SCALAR, "a figure")
            continue
        for _ in scan.items():
            if scan.has(_NOTHING):  # However many there are, nothing would be reported.
                raise scan.wrong("a group")
            for group in scan.members():
                yield group, None
                for _ in scan.items():
                    yield group, None
                    for entry in _entries(scan):
                        yield group, entry


def _entries(scan: _Scan) -> Iterator[Entry]:
    """Of one topic, or of however many a broker reports together."""
    for name in scan.members(count_max=MEMBERS_MAX):
        if name != "offsetTable" or scan.has(_NULL):
            scan.take(_SCALAR, "a figure")
        else:
            yield from _table(scan)


def _table(scan: _Scan) -> Iterator[Entry]:
    scan.take(_SIGNS["{"], "a table")
    if scan.skips(_SIGNS["}"]):
        return
    end = ","
    while end == ",":
        key, figures, end = scan.take(_ENTRY, "a queue with its figures").groups()
        yield _part(key, _QUEUES).queue(), _part(figures, _FIGURES)


def _part(text: str, decoder: msgspec.json.Decoder[_Part]) -> _Part:
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError):  # Not strict: fastjson's, or wrong.
        kind: type[_Part] = decoder.type
        return kind.from_json(fastjson.loads(text, keys_max=LOOSE_KEYS_AN_ENTRY_MAX))


class _Scan:
    """A text, and how far it was read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.at = 0

    def has(self, pattern: re.Pattern[str]) -> bool:
        """Does such a piece come next? It stays there."""
        return self._match(pattern) is not None

    def skips(self, pattern: re.Pattern[str]) -> bool:
        """Is such a piece there? It is taken then."""
        found = self._match(pattern)
        if found is not None:
            self.at = found.end()
        return found is not None

    def take(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """The next piece. Raises RemoteProtocolError when it is another one."""
        found = self._match(pattern)
        if found is None:
            raise self.wrong(what)
        self.at = found.end()
        return found

    def members(self, *, count_max: int | None = None) -> Iterator[str]:
        """The names of an object's members; whoever asks takes each value."""
        self.take(_SIGNS["{"], "an object")
        if self.skips(_SIGNS["}"]):
            return
        count = 0
        while True:
            count += 1
            if count_max is not None and count > count_max:
                raise self.wrong(f"no more than {count_max} members")
            name = fastjson.loads(self.take(_NAME, "a name")[1])
            yield str(name)
            if not self.skips(_SIGNS[","]):
                break
        self.take(_SIGNS["}"], "the end of an object")

    def items(self) -> Iterator[None]:
        """Once for each of a list's items; whoever asks takes it."""
        self.take(_SIGNS["["], "a list")
        if self.skips(_SIGNS["]"]):
            return
        yield
        while self.skips(_SIGNS[","]):
            yield
        self.take(_SIGNS["]"], "the end of a list")

    def wrong(self, wanted: str) -> RemoteProtocolError:
        """The error that something else is there."""
        found = self._text[self.at : self.at + 20]
        return RemoteProtocolError(
            f"figures of groups at character {self.at}: {wanted} is expected, but {found!r}"
        )

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.match(self._text, self.at, self.at + PIECE_CHARS_MAX)
