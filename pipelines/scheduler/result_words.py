"""Shortens long result texts to their beginning and end, or to a single line.

Place in the walk: an executor's process cuts what a handler has raised or said, the wire and the
store what they are given; `jobs history` shows a line of it.

Invariant: of a text that is too long the beginning, the end, and how much is left out between them
are kept, and of an exception its type, however long its text or its traceback is. Pure.
"""

from __future__ import annotations

import traceback
from typing import Final

MESSAGE_CHARS_MAX: Final = 15_000
"""Characters that are stored of an answer or a result, as in XXL-Job."""

LINE_CHARS_MAX: Final = 160
"""Of the line of a run in a list."""

GAP_CHARS_MAX: Final = 48
_TRACEBACK: Final = "Traceback (most recent call last):"
_GROUP_TRACEBACK: Final = "+ Exception Group Traceback (most recent call last):"
_GAP: Final = "…"


def head_and_tail(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """The text; of one that is longer, its beginning and its end, and how much is left out."""
    if len(text) <= chars_max:
        return text
    kept = chars_max - GAP_CHARS_MAX
    if kept < 2:
        return text[:chars_max]
    tail = kept // 2
    gap = f"\n{_GAP} {len(text) - kept:,} characters are left out {_GAP}\n"
    return f"{text[: kept - tail]}{gap}{text[len(text) - tail :]}"


def failure_of(error: BaseException, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """The traceback of what a handler has raised; both its frames and its last words are cut, so
    that the type of the exception stays.
    """
    whole = "".join(traceback.format_exception(error))
    last = "".join(traceback.format_exception_only(error))
    at = whole.rfind(last)
    if len(whole) <= chars_max or not whole.endswith(last):  # A group ends with its members.
        return head_and_tail(whole, chars_max)
    frames = head_and_tail(whole[:at], chars_max // 2)
    if len(frames) < at:
        begin, gap, end = frames.rpartition(f"{_GAP}\n")
        frames = begin + gap + end[end.find("\n") + 1 :]  # No part of a line.
    return frames + head_and_tail(last, chars_max - len(frames))


def line_of(message: str, chars_max: int = LINE_CHARS_MAX) -> str:
    """The line of a message that says most: of a traceback, what was raised; else the first. What
    cannot be printed is written as an escape.
    """
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    if _TRACEBACK in lines:
        after = len(lines) - lines[::-1].index(_TRACEBACK)
        raised = [line for line in lines[after:] if not line.startswith((" ", _GAP))]
        lines = raised or lines
    elif _GROUP_TRACEBACK in (bare := [line.strip() for line in lines]):
        members = bare[bare.index(_GROUP_TRACEBACK) + 1 :]
        lines = [line[2:] for line in members if line[:2] == "| " and line[2:3] != " "] or lines
    said = lines[0].strip() if lines else ""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in said)
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}{_GAP}"
