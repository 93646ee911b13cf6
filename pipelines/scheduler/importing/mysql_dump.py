"""Pure functions that parse table rows from mysqldump output.

CREATE TABLE (order of columns), INSERT and REPLACE (rows) are read and all else is passed over.
Strings are read as MySQL writes them (backslash escapes, `''` for a quote), hex values (`0x…`,
`X'…'`) as UTF-8. Invariant: a value is a text or None; a row with another number of values than its
table has columns is an error, not a guess.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from engine.foundation.errors import MustBe

Row = Mapping[str, str | None]
"""By the name of the column, in small letters."""

DUMP_BYTES_MAX: Final = 1024 * 1024 * 1024

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|\#[^\n]*|/\*.*?\*/)
    |(?P<text>'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|"[^"\\]*(?:(?:\\.|"")[^"\\]*)*")
    |(?P<name>`(?:[^`]|``)*`)
    |(?P<hex>0x[0-9A-Fa-f]+\b|[xX]'[0-9A-Fa-f]*')
    |(?P<word>[^\s'"`(),;.=]+(?:\.\d+)?)
    |(?P<sign>[(),;.=])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_ESCAPED: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
_NO_COLUMNS: Final = frozenset(
    {"PRIMARY", "KEY", "UNIQUE", "CONSTRAINT", "INDEX", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK"}
)

Token = tuple[str, str]
"""What kind it is of, and its text."""


def tables_of(dump: str, wanted: Collection[str]) -> dict[str, list[Row]]:
    """The rows of those tables that the dump has, in its order; raises ConfigError."""
    columns: dict[str, list[str]] = {}
    found: dict[str, list[Row]] = {}
    for statement in _statements(dump):
        words = [text.upper() for kind, text in statement[:4] if kind == "word"]
        if words[:2] == ["CREATE", "TABLE"]:
            name, at = _table(statement, 5 if words[2:4] == ["IF", "NOT"] else 2)
            columns[name] = _columns_of(statement, at)
        elif words[:1] in (["INSERT"], ["REPLACE"]):
            into = next(at for at, token in enumerate(statement) if token[1].upper() == "INTO")
            name, at = _table(statement, into + 1)
            if name in wanted:
                found.setdefault(name, []).extend(_rows(statement, at, columns.get(name, [])))
    return found


def _statements(dump: str) -> Iterator[list[Token]]:
    statement: list[Token] = []
    at = 0
    while at < len(dump):
        match = _TOKEN.match(dump, at)
        if match is None:
            raise MustBe("dump", dump[at : at + 32], "what mysqldump writes")
        at = match.end()
        kind = match.lastgroup or ""
        if kind == "space":
            continue
        if match[0] == ";":
            if statement:
                yield statement
            statement = []
        else:
            statement.append((kind, match[0]))
    if statement:
        yield statement


def _table(statement: list[Token], at: int) -> tuple[str, int]:
    """The name of a table that begins there, without that of its database, and where it ends."""
    try:
        if statement[at + 1][1] == ".":
            at += 2
        return _name(statement[at]), at + 1
    except IndexError as error:
        raise MustBe("dump", _shown(statement), "a table by its name") from error


def _name(token: Token) -> str:
    kind, text = token
    return (text[1:-1].replace("``", "`") if kind == "name" else text).lower()


def _columns_of(statement: list[Token], at: int) -> list[str]:
    """The columns that a CREATE TABLE names: the first word of each definition within its
    brackets, but for keys.
    """
    columns: list[str] = []
    depth = 0
    begins = False
    for token in statement[at:]:
        kind, text = token
        if begins and kind in {"name", "word"}:
            if kind == "name" or text.upper() not in _NO_COLUMNS:
                columns.append(_name(token))
            begins = False
        if text == "(" and kind == "sign":
            depth += 1
            begins = depth == 1
        elif text == ")" and kind == "sign":
            depth -= 1
            if depth == 0:
                break
        elif text == "," and kind == "sign":
            begins = depth == 1
    return columns


def _rows(statement: list[Token], at: int, columns: list[str]) -> Iterator[Row]:
    """The rows of an INSERT, after the name of its table."""
    tokens = iter(statement[at:])
    kind, text = next(tokens, ("", ""))
    if text == "(" and kind == "sign":
        columns = []
        for token in tokens:
            if token == ("sign", ")"):
                break
            if token[0] != "sign":
                columns.append(_name(token))
        kind, text = next(tokens, ("", ""))
    if text.upper() not in {"VALUES", "VALUE"}:
        raise MustBe("dump", _shown(statement), "INSERT … VALUES")
    values: list[str | None] | None = None
    for token in tokens:
        if token == ("sign", "("):
            values = []
        elif token == ("sign", ")"):
            if values is None or len(values) != len(columns):
                allowed = f"rows of {len(columns)} values; a dump with its CREATE TABLE statements"
                raise MustBe("dump", _shown(statement), allowed)
            yield dict(zip(columns, values, strict=True))
            values = None
        elif token[0] != "sign" and values is not None and not _is_introducer(token):
            values.append(_value(token))


def _is_introducer(token: Token) -> bool:
    """Does it only say how the next value is written, as `_binary` does?"""
    return token[0] == "word" and token[1].startswith("_")


def _value(token: Token) -> str | None:
    kind, text = token
    if kind == "text":
        return _ESCAPE.sub(_plain, text[1:-1])
    if kind == "hex":
        digits = text[2:].rstrip("'")
        return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2)).decode("utf-8", "replace")
    return None if text.upper() == "NULL" else text


def _plain(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped is None:
        return match[0][0]
    if escaped in "%_":
        return match[0]
    return _ESCAPED.get(escaped, escaped)


def _shown(statement: list[Token]) -> str:
    return " ".join(text for _, text in statement[:6])[:64]
