"""Parses a rule's condition on one table into a Polars expression.

    state = 'STALLED' and time_lag_ms > 5m and not (queues_known < queues)
    law = 'MONOTONIC' and cause in ('TWO_WRITERS', 'UNEXPLAINED')
    first_failed_at < now - 1h or reason is null

Operators, from loose to tight: or; and; not; = != < <= > >= in, not in, like, is null, is not
null; + -; * /. Values are numbers, 'texts' ('' within one is a quote), true, false, `now` (the
moment that is judged) and spans of time: 250ms 30s 5m 1h30m 1d. A column whose name ends in _ms or
_us may be held against a span. Words of the language may be columns: "group" needs no quotes.

Own, and not Polars' SQL: there `group` is a word of the language, a span is held against
milliseconds without a word, a state that does not exist is never true, without an error.

A condition of a row is true, false or, where a column that decides is null, unknown: null. A
figure that is unknown in part has a lower bound in a column of its own: comparisons that
the bound decides are true or false by it, all others unknown.

Invariant: a text that is read yields one truth value a row, whatever the rows; it reaches nothing
but columns of its table. Texts, their depth and lists are bounded. Absent on purpose: functions.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Final, NamedTuple

import polars as pl

from engine.telemetry.tables import Column, ColumnType
from pipelines.base.wording import bound_of

TEXT_MAX: Final = 2_000
"""Characters of a condition."""
DEPTH_MAX: Final = 40
"""Brackets and nots within each other."""
LIST_MAX: Final = 500
"""Values of one list."""

NOW: Final = "__now"
"""The column that carries the moment that is judged, beside those of the table."""

SPANS_US: Final = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_UNITS_US: Final = {"_ms": 1_000, "_us": 1}

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)(?P<unit>[a-zA-Z][a-zA-Z0-9]*)?|(?P<text>'(?:[^']|'')*')"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\"(?P<quoted>[^\"]*)\""
    r"|(?P<sign><=|>=|!=|<>|==|[=<>+\-*/(),]))"
)
_KINDS: Final = {
    ColumnType.STRING: "text",
    ColumnType.INT: "number",
    ColumnType.LONG: "number",
    ColumnType.BOOLEAN: "truth",
    ColumnType.TIMESTAMP: "moment",
    ColumnType.DATE: "day",
}
_COMPARED: Final[Mapping[str, Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SAME: Final = {"<>": "!=", "==": "="}
_MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CONSTANT: Final = re.compile(r"\b[A-Z][A-Z_]+\b")
_NOT_A_WORD: Final = ("NEXT", "AT", "UTC", "UNIQ_KEY", "SIGKILL")


class ConditionFault(Exception):
    """A condition that cannot be read: what is wrong, and what would be right."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that was read."""

    text: str
    expression: pl.Expr
    columns: frozenset[str]
    """What it looks at."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Condition) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


class _Token(NamedTuple):
    kind: str
    value: str
    unit: str
    at: int


@dataclass(frozen=True, slots=True)
class _Value:
    """A part of a condition: its expression, kind, and what it was made of."""

    expression: pl.Expr
    kind: str
    says: str
    unit_us: int | None = None
    """Of a number: how many µs one of it stands for, when its column's name has a unit."""
    column: Column | None = None
    literal: str | None = None
    """Of a text that was written down."""
    bound: pl.Expr | None = None
    """Of a figure that may be unknown: its lower bound."""


def read_condition(text: str, columns: tuple[Column, ...]) -> Condition:
    """The condition that a text says of a table with these columns. ConditionFault says what is
    wrong with it, where, and what would be right."""
    if len(text) > TEXT_MAX:
        raise ConditionFault(f"it has {len(text)} characters; at most {TEXT_MAX} are read")
    reader = _Reader(_tokens(text), {column.name: column for column in columns})
    value = reader.either(0)
    left = reader.peek()
    if left is not None:
        raise ConditionFault(f"`{left.value}` at {left.at + 1} is one too many: and, or?")
    if value.kind != "truth":
        raise ConditionFault(f"{value.says} is a {value.kind}, not something true or false")
    return Condition(text, value.expression, frozenset(reader.used))


def span_us(text: str) -> int | None:
    """µs of a span like 30s, 5m or 1h30m; None when it is none."""
    parts = re.findall(r"(\d+)(ms|s|m|h|d)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(int(number) * SPANS_US[unit] for number, unit in parts)


def _tokens(text: str) -> list[_Token]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            rest = text[at:].strip()
            at += len(text[at:]) - len(text[at:].lstrip())
            what = "a text without its closing quote" if rest[:1] == "'" else "not understood"
            raise ConditionFault(f"`{rest[:20]}` at {at + 1} is {what}")
        kind = match.lastgroup or ""
        if kind == "unit":
            kind = "number"
        value = match[kind]
        start = match.start(kind)
        if kind == "quoted":
            kind = "name"
        if kind == "sign":
            value = _SAME.get(value, value)
        found.append(_Token(kind, value, match["unit"] or "", start))
        at = match.end()
    return found


class _Reader:
    """Reads tokens from left to right; each method reads what binds as tightly, or tighter."""

    def __init__(self, tokens: list[_Token], columns: Mapping[str, Column]) -> None:
        self._tokens = tokens
        self._columns = columns
        self._at = 0
        self.used: set[str] = set()

    def peek(self) -> _Token | None:
        """The next token; None at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def either(self, depth: int) -> _Value:
        """… or …"""
        left = self._all_of(depth)
        while self._takes("or"):
            left = _joined("or", left, self._all_of(depth))
        return left

    def _all_of(self, depth: int) -> _Value:
        left = self._denied(depth)
        while self._takes("and"):
            left = _joined("and", left, self._denied(depth))
        return left

    def _denied(self, depth: int) -> _Value:
        if depth > DEPTH_MAX:
            raise ConditionFault(f"brackets lie deeper than {DEPTH_MAX}")
        if not self._takes("not"):
            return self._compared(depth)
        value = self._denied(depth + 1)
        _require(value, "truth", "not")
        return replace(value, expression=~value.expression, says=f"not {value.says}")

    def _compared(self, depth: int) -> _Value:
        left = self._sum(depth)
        token = self.peek()
        if token is not None and token.kind == "sign" and token.value in _COMPARED:
            self._at += 1
            return _comparison(token.value, left, self._sum(depth))
        if self._takes("is"):
            is_not = self._takes("not")
            self._must("null")
            test = left.expression.is_not_null() if is_not else left.expression.is_null()
            return _Value(test, "truth", f"{left.says} is null")
        denied = self._takes("not")
        if self._takes("in"):
            found = self._one_of(left, depth)
        elif self._takes("like"):
            found = self._alike(left)
        elif denied:
            raise self._expected("in or like after not")
        else:
            return left
        return replace(found, expression=~found.expression) if denied else found

    def _one_of(self, left: _Value, depth: int) -> _Value:
        self._must("(")
        tests: list[pl.Expr] = []
        while not tests or self._takes(","):
            tests.append(_comparison("=", left, self._sum(depth)).expression)
            if len(tests) > LIST_MAX:
                raise ConditionFault(f"a list has more than {LIST_MAX} values")
        self._must(")")
        return _Value(pl.any_horizontal(tests), "truth", f"{left.says} in …")

    def _alike(self, left: _Value) -> _Value:
        _require(left, "text", "like")
        token = self.peek()
        if token is None or token.kind != "text":
            raise self._expected("a text like '%RETRY%' after like")
        self._at += 1
        shape = "".join(
            {"%": ".*", "_": "."}.get(one, re.escape(one)) for one in _unquoted(token.value)
        )
        test = left.expression.str.contains(f"(?s)^{shape}$")
        return _Value(test, "truth", f"{left.says} like …")

    def _sum(self, depth: int) -> _Value:
        left = self._product(depth)
        while (sign := self._takes_sign("+", "-")) is not None:
            left = _added(sign, left, self._product(depth))
        return left

    def _product(self, depth: int) -> _Value:
        left = self._atom(depth)
        while (sign := self._takes_sign("*", "/")) is not None:
            right = self._atom(depth)
            for one in (left, right):
                _require(one, "number", sign)
            made = left.expression * right.expression
            if sign == "/":
                whole = right.expression != 0
                made = pl.when(whole).then(left.expression / right.expression)
            left = _Value(made, "number", f"{left.says} {sign} {right.says}")
        return left

    def _atom(self, depth: int) -> _Value:
        token = self.peek()
        if token is None:
            raise self._expected("a column or a value")
        self._at += 1
        match token.kind:
            case "number":
                return _number(token)
            case "text":
                text = _unquoted(token.value)
                return _Value(pl.lit(text), "text", token.value, literal=text)
            case "name":
                return self._named(token)
        if token.value == "(" and depth < DEPTH_MAX:
            inner = self.either(depth + 1)
            self._must(")")
            return inner
        if token.value == "-":
            inner = self._atom(depth + 1) if depth < DEPTH_MAX else self._atom(0)
            _require(inner, "number", "-")
            return replace(inner, expression=-inner.expression, says=f"-{inner.says}", bound=None)
        self._at -= 1
        raise self._expected("a column or a value")

    def _named(self, token: _Token) -> _Value:
        name = token.value
        column = self._columns.get(name)
        if column is not None:
            kind = _KINDS.get(column.type)
            if kind is None:
                raise ConditionFault(f"{name} is a list, of which a condition says nothing")
            self.used.add(name)
            unit_us = _UNITS_US.get(name[-3:]) if kind == "number" else None
            least = bound_of(name)
            bound = pl.col(least) if least in self._columns else None
            if bound is not None:
                self.used.add(least)
            return _Value(pl.col(name), kind, name, unit_us, column, bound=bound)
        match name.lower():
            case "true" | "false":
                return _Value(pl.lit(name.lower() == "true"), "truth", name)
            case "now":
                return _Value(pl.col(NOW), "moment", "now")
        raise ConditionFault(unknown_name(name, self._columns, "column"))

    def _takes(self, word: str) -> bool:
        token = self.peek()
        if token is None or token.kind not in ("name", "sign") or token.value.lower() != word:
            return False
        self._at += 1
        return True

    def _takes_sign(self, *signs: str) -> str | None:
        return next((sign for sign in signs if self._takes(sign)), None)

    def _must(self, word: str) -> None:
        if not self._takes(word):
            raise self._expected(f"`{word}`")

    def _expected(self, what: str) -> ConditionFault:
        token = self.peek()
        where = f"`{token.value}` at {token.at + 1}" if token is not None else "the end"
        return ConditionFault(f"{what} is expected at {where}")


def unknown_name(name: str, known: Mapping[str, object], noun: str) -> str:
    """Says that there is no such thing, and names what is near, or all there are."""
    near = get_close_matches(name, list(known), n=3)
    return f"there is no {noun} {name!r}; " + (
        f"near it: {', '.join(near)}" if near else f"there are {', '.join(known) or 'none'}"
    )


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _number(token: _Token) -> _Value:
    says = token.value + token.unit
    if not token.unit:
        number = float(token.value) if "." in token.value else int(token.value)
        return _Value(pl.lit(number), "number", says)
    span = span_us(says)
    if span is None:
        raise ConditionFault(
            f"{says} is no span of time: whole ms, s, m, h or d, like 90s or 1m30s"
        )
    return _Value(pl.duration(microseconds=span), "span", says)


def _require(value: _Value, kind: str, sign: str) -> None:
    if value.kind != kind:
        raise ConditionFault(f"{value.says} is a {value.kind}; `{sign}` takes a {kind}")


def _joined(word: str, left: _Value, right: _Value) -> _Value:
    for one in (left, right):
        _require(one, "truth", word)
    how = operator.or_ if word == "or" else operator.and_
    says = f"{left.says} {word} {right.says}"
    return _Value(how(left.expression, right.expression), "truth", says)


def _added(sign: str, left: _Value, right: _Value) -> _Value:
    how = operator.add if sign == "+" else operator.sub
    made = how(left.expression, right.expression)
    says = f"{left.says} {sign} {right.says}"
    kinds = (left.kind, right.kind)
    if kinds in (("number", "number"), ("span", "span"), ("moment", "span")):
        return _Value(made, left.kind, says, left.unit_us if kinds[0] == "number" else None)
    if kinds == ("moment", "moment") and sign == "-":
        return _Value(made, "span", says)
    raise ConditionFault(f"{says}: a {left.kind} {sign} a {right.kind} means nothing")


def _comparison(sign: str, left: _Value, right: _Value) -> _Value:
    left, right = _as_span(left, right), _as_span(right, left)
    if left.kind != right.kind:
        raise ConditionFault(
            f"{left.says} is a {left.kind}, {right.says} a {right.kind}: they cannot be compared"
        )
    for column, word in ((left.column, right.literal), (right.column, left.literal)):
        if column is not None and word is not None and sign in ("=", "!="):
            _require_word(column, word)
    made = _COMPARED[sign](left.expression, right.expression)
    by_bound = _by_bound(sign, left, right)
    if by_bound is not None:
        made = pl.coalesce(made, by_bound)
    return _Value(made, "truth", f"{left.says} {sign} {right.says}")


def _by_bound(sign: str, left: _Value, right: _Value) -> pl.Expr | None:
    """What the lower bound of one side says of a comparison: null where it decides nothing; None
    when neither side has one."""
    if left.bound is None and right.bound is None:
        return None
    if left.bound is None:
        left, right, sign = right, left, _MIRRORED[sign]
    assert left.bound is not None
    match sign:
        case ">" | ">=":
            return pl.when(_COMPARED[sign](left.bound, right.expression)).then(pl.lit(value=True))
        case "<" | "<=":
            is_beyond = ~_COMPARED[sign](left.bound, right.expression)
            return pl.when(is_beyond).then(pl.lit(value=False))
    is_beyond = left.bound > right.expression
    return pl.when(is_beyond).then(pl.lit(sign == "!="))


def _as_span(value: _Value, other: _Value) -> _Value:
    """A number of milliseconds that is held against a span of time is one itself."""
    if other.kind != "span" or value.kind != "number" or value.unit_us is None:
        return value
    span = pl.duration(microseconds=value.expression * value.unit_us)
    bound = None if value.bound is None else pl.duration(microseconds=value.bound * value.unit_us)
    return replace(value, expression=span, kind="span", bound=bound)


def _require_word(column: Column, word: str) -> None:
    """A column whose meaning lists its words never has another one."""
    words = [one for one in _CONSTANT.findall(column.meaning) if one not in _NOT_A_WORD]
    if len(words) < 2 or "..." in column.meaning or word in words or word == "WITHHELD":
        return
    raise ConditionFault(f"{column.name} is never {word!r}: it is one of {', '.join(words)}")
