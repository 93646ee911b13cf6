"""Makes external text safe to print by escaping control characters and line breaks.

Place in the walk: between every text and the eyes of a reader, in logs, on terminals, in remarks of
answers. Client ids, message ids, keys and bodies are what their senders like; a line break in one
would make a line of its own, and an escape sequence would move the reader's cursor.

Invariant: what leaves here is printable as Python sees it (`str.isprintable`), which leaves out
control characters, line and paragraph separators, what turns the direction of writing, and lone
surrogates. Absent on purpose: markup of pages (dashboards).
"""

from __future__ import annotations

import re
from typing import Final

_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_JSON_OUTSIDE_ASCII = re.compile(r"[^\n -~]")


def printable(text: str) -> str:
    """The text as one line, whatever is in it: `\\n`, `\\x1b`, `\\u202e` stand for the rest."""
    if text.isprintable():
        return text
    return "".join([char if char.isprintable() else _escaped(char) for char in text])


def printable_lines(text: str) -> str:
    """As `printable`, but its lines stay lines: for what we lay out ourselves."""
    return "\n".join([printable(line) for line in text.split("\n")])


def printable_json(document: str) -> str:
    """A JSON document with JSON's own escapes for what cannot be printed; it says the same."""
    return _JSON_OUTSIDE_ASCII.sub(_json_escaped, document)


def _escaped(char: str) -> str:
    return _NAMED.get(char) or char.encode("unicode_escape").decode()


def _json_escaped(found: re.Match[str]) -> str:
    char = found.group()
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
