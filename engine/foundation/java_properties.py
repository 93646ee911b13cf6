"""Reads Java .properties files as java.util.Properties does, and edits them in place.

Place in the walk: before it. Brokers and name servers take RocketMQ's configuration files as they
are; a setting changed while running is written back between the user's own comments.

    # comment            ! comment too
    key=value            also `key: value` and `key value`
    key = a, \\           a backslash at the end of a line continues it; the blanks
          b              before the next line's first word are dropped
    \\u00e4 \\t \\n \\: \\=    escapes, in keys and values alike

Invariant: `changed(text, {})` is `text`; what was written by `changed` reads back as given. Absent
on purpose: what the keys mean. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from engine.foundation.errors import ConfigError

_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_HEX_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Property:
    """One setting of a file: `line` counts from 1, a continued setting stands at its first line."""

    key: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class _LogicalLine:
    """One setting or nothing, over the natural lines [first, end)."""

    text: str
    first: int
    end: int


def parse(text: str) -> list[Property]:
    """Every setting of the file, in order; the later of equal keys is the one that counts.

    Raises ConfigError for a \\u without four hexadecimal digits.
    """
    found = []
    for logical in _logical_lines(text):
        if logical.text and logical.text[0] not in "#!":
            key, value = _split(logical.text)
            line = logical.first + 1
            found.append(Property(_plain(key, line), _plain(value, line), line))
    return found


def changed(text: str, changes: Mapping[str, str]) -> str:
    """The file with these settings set: the line that counts is replaced, a new key is appended."""
    lines = _natural_lines(text)
    places: dict[str, tuple[int, int]] = {}
    for logical in _logical_lines(text):
        if logical.text and logical.text[0] not in "#!":
            key = _plain(_split(logical.text)[0], logical.first + 1)
            if key in changes:
                places[key] = (logical.first, logical.end)
    for key, (first, end) in sorted(places.items(), key=lambda place: -place[1][0]):
        lines[first:end] = [written(key, changes[key])]
    missing = [written(key, changes[key]) for key in changes if key not in places]
    if not missing:
        return "".join(lines)
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += "\n\n" if _continues(lines[-1]) else "\n"
    return "".join([*lines, *missing])


def written(key: str, value: str) -> str:
    """One line that reads back as this setting."""
    name = "".join(f"\\{char}" if char in " :=#!" else _ESCAPED.get(char, char) for char in key)
    text = "".join(_ESCAPED.get(char, char) for char in value)
    if text.startswith(" "):
        text = f"\\{text}"
    return f"{name}={text}\n"


def _natural_lines(text: str) -> list[str]:
    """Lines with their ends, as `_logical_lines` counts them; no text, no line."""
    ends = [match.end() for match in _LINE_END.finditer(text)]
    cuts = [0, *ends, len(text)]
    return [text[a:b] for a, b in pairwise(cuts) if a < b]


def _logical_lines(text: str) -> Iterator[_LogicalLine]:
    """Lines with their continuations joined, and without the blanks before their first word."""
    lines = [line.rstrip("\r\n").lstrip(_BLANKS) for line in _natural_lines(text)]
    at = 0
    while at < len(lines):
        first, joined = at, lines[at]
        at += 1
        comment = joined[:1] in {"#", "!"}
        while not comment and _continues(joined):
            joined = joined[:-1]
            if at == len(lines):
                break
            joined += lines[at]
            at += 1
        yield _LogicalLine(joined, first, at)


def _continues(line: str) -> bool:
    """Does it end with a backslash that no other backslash escapes?"""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Key and value as written: the key ends at the first blank, `=` or `:` that is no escape."""
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANKS)
    if rest[:1] in {"=", ":"}:
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _plain(text: str, line: int) -> str:
    """Without escapes."""
    if "\\" not in text:
        return text
    parts, at = [], 0
    while at < len(text):
        if text[at] != "\\":
            parts.append(text[at])
            at += 1
            continue
        letter = text[at + 1 : at + 2]
        at += 2
        if letter != "u":
            parts.append(_ESCAPES.get(letter, letter))
            continue
        digits = text[at : at + _HEX_DIGITS]
        if not re.fullmatch("[0-9a-fA-F]{4}", digits):
            raise ConfigError(f"line {line}", text, "four hexadecimal digits after a \\u")
        parts.append(chr(int(digits, 16)))
        at += _HEX_DIGITS
    return "".join(parts)
