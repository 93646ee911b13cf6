"""JSON as fastjson writes it: reading its two liberties, writing the one that clients expect.

    {0:"127.0.0.1:10911"}                       integers as keys, without quotes
    {{"brokerName":"b","queueId":0}:12}         objects as keys

Place in the walk: bodies about queues, offset files, routes of older peers.

Read, an integer key is its text, so both spellings give the same table; an object as a key is a
tuple of its (name, value) pairs, sorted by name. Written, integer keys are quoted (fastjson reads
both) and such tuples become objects again.

Invariant: `loads(dumps(x))` is x with integer keys as text; only RemoteProtocolError comes out of
reading, whatever the bytes. Absent on purpose: the rest of what fastjson tolerates (comments,
single quotes, type names). Source: spec, wire (section 1).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from engine.foundation.errors import LocalProtocolError, RemoteProtocolError
from engine.foundation.limits import FRAME_BYTES_MAX

DEPTH_MAX: Final = 64
"""More levels than this is hostile; RocketMQ's own documents have six."""

TEXT_BYTES_MAX: Final = 4 * FRAME_BYTES_MAX
"""A longer document is refused: no frame holds it, and no table of ours grows to it."""

_INT64_MAX: Final = 2**63 - 1
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\.)*+)"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,39})(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,4})?")
_LONG_NUMBER = re.compile(r"[0-9]{19}")
"""May exceed 64 bits; orjson would take it for a fraction."""
_INTEGER_KEY = re.compile(r"-?[0-9]{1,20}")
_PLAIN_KEYS: Final = frozenset({str, int})
_PLAIN_VALUES: Final = frozenset({str, int, bool, type(None)})
_WORDS: Final = (("true", True), ("false", False), ("null", None))

ObjectKey = tuple[tuple[str, Any], ...]


def object_key(fields: Mapping[str, Any]) -> ObjectKey:
    """An object in the form in which it can be a key."""
    return tuple(sorted(fields.items()))


def loads(data: bytes | bytearray | memoryview | str) -> Any:
    """The document in `data`. Raises RemoteProtocolError saying where it is wrong."""
    if len(data) > TEXT_BYTES_MAX:
        raise RemoteProtocolError(f"{len(data)} bytes of JSON, at most {TEXT_BYTES_MAX} are read")
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"JSON is not UTF-8: {error}") from error
    if not _LONG_NUMBER.search(text):
        try:
            value = orjson.loads(text)
        except ValueError:
            pass  # fastjson's liberties, or wrong: the reader knows.
        else:
            if _levels_within(value, DEPTH_MAX):
                return value
    reader = _Reader(text)
    value = reader.value(0)
    reader.end()
    return value


def _levels_within(value: Any, levels: int) -> bool:
    """Is `value` nested no deeper?"""
    if isinstance(value, dict):
        inner: Iterable[Any] = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        return True
    if levels == 0:
        return False
    for one in inner:
        if isinstance(one, dict | list) and not _levels_within(one, levels - 1):
            return False
    return True


class _Reader:
    """One pass over a text; `_at` only moves forward."""

    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self, depth: int) -> Any:
        self._skip_space()
        text, at = self._text, self._at
        first = text[at : at + 1]
        if first == '"':
            return self._string()
        if first in ("{", "["):
            if depth >= DEPTH_MAX:
                raise self._wrong(f"more than {DEPTH_MAX} levels")
            self._at += 1
            return self._object(depth + 1) if first == "{" else self._array(depth + 1)
        for word, meaning in _WORDS:
            if text.startswith(word, at):
                self._at += len(word)
                return meaning
        return self._number()

    def end(self) -> None:
        self._skip_space()
        if self._at != len(self._text):
            raise self._wrong("more text behind the document")

    def _object(self, depth: int) -> dict[Any, Any]:
        table: dict[Any, Any] = {}
        if self._take("}"):
            return table
        while True:
            key = self._key(depth)
            self._need(":")
            table[key] = self.value(depth)
            if self._take("}"):
                return table
            self._need(",")

    def _array(self, depth: int) -> list[Any]:
        values: list[Any] = []
        if self._take("]"):
            return values
        while True:
            values.append(self.value(depth))
            if self._take("]"):
                return values
            self._need(",")

    def _key(self, depth: int) -> str | ObjectKey:
        self._skip_space()
        first = self._text[self._at : self._at + 1]
        if first == '"':
            return self._string()
        if first == "{":
            fields = self.value(depth)
            if not all(
                isinstance(name, str) and not isinstance(value, dict | list)
                for name, value in fields.items()
            ):
                raise self._wrong("an object as a key holds plain values only")
            return object_key(fields)
        match = _INTEGER_KEY.match(self._text, self._at)
        if match is None:
            raise self._wrong("no key")
        self._at = match.end()
        return match[0]

    def _string(self) -> str:
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self._wrong("a string without an end, or with a control character")
        inner = match[1]
        if "\\" in inner:
            try:
                inner = json.loads(match[0])
                inner.encode()  # Half of a surrogate pair can be spelled, but is no text.
            except ValueError as error:
                raise self._wrong(f"a string that is none ({error})") from error
        self._at = match.end()
        return inner

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            raise self._wrong("no value")
        if match[1] is None and match[2] is None:
            integer = int(match[0])
            if not -_INT64_MAX - 1 <= integer <= _INT64_MAX:
                raise self._wrong(f"{match[0]} exceeds 64 bits")
            self._at = match.end()
            return integer
        number = float(match[0])
        if not math.isfinite(number):
            raise self._wrong(f"{match[0]} is no number a computer holds")
        self._at = match.end()
        return number

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None, "it matches nothing at all as well"
        self._at = match.end()

    def _take(self, sign: str) -> bool:
        self._skip_space()
        if self._text.startswith(sign, self._at):
            self._at += 1
            return True
        return False

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise self._wrong(f"no {sign!r}")

    def _wrong(self, what: str) -> RemoteProtocolError:
        found = self._text[self._at : self._at + 20]
        return RemoteProtocolError(f"JSON at character {self._at}: {what}, but {found!r}")


def dumps(value: Any) -> bytes:
    """The document as bytes. Raises LocalProtocolError for what JSON cannot carry."""
    parts: list[str] = []
    _write(value, parts, 0)
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"not text: {error}") from error


def _write(value: Any, parts: list[str], depth: int) -> None:
    if depth > DEPTH_MAX:
        raise LocalProtocolError(f"a document of more than {DEPTH_MAX} levels")
    if type(value) is dict and _is_plain(value):
        parts.append(_plain(value))
    elif isinstance(value, Mapping):
        sign = "{"
        for key, item in value.items():
            parts.append(sign)
            _write_key(key, parts, depth)
            parts.append(":")
            _write(item, parts, depth + 1)
            sign = ","
        parts.append("}" if sign == "," else "{}")
    elif isinstance(value, list | tuple):
        sign = "["
        for item in value:
            parts.append(sign)
            _write(item, parts, depth + 1)
            sign = ","
        parts.append("]" if sign == "," else "[]")
    else:
        parts.append(_scalar(value))


def _is_plain(table: dict[Any, Any]) -> bool:
    """May a table, of a queue's offsets or a topic's settings, be written in one go?"""
    return _PLAIN_KEYS.issuperset(map(type, table)) and _PLAIN_VALUES.issuperset(
        map(type, table.values())
    )


def _write_key(key: Any, parts: list[str], depth: int) -> None:
    if isinstance(key, tuple):
        _write(dict(key), parts, depth + 1)
    elif isinstance(key, str):
        parts.append(_scalar(key))
    elif isinstance(key, int) and not isinstance(key, bool):
        parts.append(f'"{key:d}"')
    else:
        raise LocalProtocolError(f"{key!r} cannot be a key: text, integer and object_key() can")


def _scalar(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise LocalProtocolError(f"{value} cannot be written as JSON")
    if value is not None and not isinstance(value, str | bool | int | float):
        raise LocalProtocolError(f"{value!r} cannot be written as JSON")
    return _plain(value)


def _plain(value: Any) -> str:
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError as error:  # Its encoding errors are of this type.
        raise LocalProtocolError(f"{value!r:.60} cannot be written as JSON: {error}") from error
