"""Recursive-descent parser for selectors, with RocketMQ 5.5's tokens and grammar.

    or         := and (OR and)*
    and        := equality (AND equality)*
    equality   := compared (= compared | <> compared | IS [NOT] NULL)*
    compared   := unary ( < unary | <= unary | > unary | >= unary
                        | [NOT] BETWEEN unary AND unary
                        | [NOT] IN ( 'text' (, 'text')* )
                        | [NOT] CONTAINS 'text' | [NOT] STARTSWITH 'text' | [NOT] ENDSWITH 'text' )*
    unary      := + unary | - unary | NOT unary | primary
    primary    := 'text' | number | TRUE | FALSE | NULL | property | ( or )

    blank | -- comment to the end of its line | /* comment */        passed over
    5  5L  5.5  .5  5E10  'it''s'  name  =  <>  <  <=  >  >=  ( ) , + -

NOT binds more closely than a comparison: `NOT a = 'x'` compares `NOT a`. A token is read when it is
looked at, not before: what nobody looks at may be no token at all, as in RocketMQ.

Invariant: parentheses and signs nest at most FILTER_DEPTH_MAX deep, so no expression exhausts the
stack; each character is looked at a bounded number of times; only RequestRefused comes out. Absent
on purpose: hexadecimal and octal numbers, LIKE, arithmetic, and an end: RocketMQ stops at the first
token that continues nothing and ignores the rest; so do we, and `Selector.ignored` says it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple, NoReturn

from engine.foundation.errors import RequestRefused
from engine.foundation.limits import FILTER_DEPTH_MAX
from engine.protocol.codes import ResponseCode
from engine.protocol.sql92 import operands
from engine.protocol.sql92.java_values import INT_MAX, LONG_MAX, Long
from engine.protocol.sql92.operands import Form, Operand

RESERVED: Final = frozenset(
    (
        *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    )
)
"""Words that name no property, in any case of their letters."""

_TOKEN: Final = re.compile(
    r"""
      (?P<PASSED_OVER> [ \t\n\r\f]+
                     | --[^\n\r]*(?:\r\n|\n|\r)
                     | /\*[^*]*\*(?:\*|[^*/][^*]*\*)*/ )
    | (?P<FLOAT>   [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?
                 | \.[0-9]+(?:[eE][+-]?[0-9]+)?
                 | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<INTEGER> 0 | [1-9][0-9]*[lL]? )
    | (?P<STRING>  '(?:''|[^'])*' )
    | (?P<NAME>    [a-zA-Z_$][a-zA-Z0-9_$]* )
    | (?P<SIGN>    <> | <= | >= | [=<>(),+-] )
    """,
    re.VERBOSE,
)


class Kind(Enum):
    """What a token is."""

    FLOAT = "a number with a point or exponent"
    INTEGER = "a whole number"
    STRING = "a text in quotes"
    NAME = "a property"
    SIGN = "a sign"
    WORD = "a reserved word"
    END = "the end"


class Token(NamedTuple):
    """One token: its text as written (a reserved word in capitals) and where it begins."""

    kind: Kind
    text: str
    position: int


class Tokens:
    """The tokens of one expression, in order."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._position = 0
        self._next: Token | None = None

    def peek(self) -> Token:
        """The next token, left where it is. Raises RequestRefused when there is none to be made."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """The next token; the one behind it is the next one now."""
        token = self.peek()
        self._next = None
        return token

    def take_if(self, text: str) -> bool:
        """Take the next token if it is this sign or reserved word; was it?"""
        token = self.peek()
        if token.text == text and token.kind in (Kind.SIGN, Kind.WORD):
            self._next = None
            return True
        return False

    def expect(self, text: str) -> None:
        """Take this sign or reserved word. Raises RequestRefused when it is not the next one."""
        if not self.take_if(text):
            self.refuse(f"{text} is missing")

    def refuse(self, fault: str) -> NoReturn:
        """Raise RequestRefused with `fault` and the place of the next token."""
        token = self.peek()
        before = "at its end" if token.kind is Kind.END else f"before {token.text[:40]!r}"
        refuse(self.expression, f"{fault} {before} (character {token.position})")

    def _read(self) -> Token:
        expression, position = self.expression, self._position
        while position < len(expression):
            match = _TOKEN.match(expression, position)
            if match is None:
                refuse(
                    expression,
                    f"no number, text, name or sign begins with {expression[position]!r} "
                    f"(character {position})",
                )
            position = match.end()
            if match.lastgroup != "PASSED_OVER":
                self._position = position
                text = match.group()
                kind = Kind[match.lastgroup or ""]
                if kind is Kind.NAME and text.upper() in RESERVED:
                    return Token(Kind.WORD, text.upper(), match.start())
                return Token(kind, text, match.start())
        self._position = position
        return Token(Kind.END, "", len(expression))


def refuse(expression: str, fault: str) -> NoReturn:
    """Raise RequestRefused: the expression has this fault."""
    shown = expression if len(expression) <= 200 else f"{expression[:200]}…"
    raise RequestRefused(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"Invalid MessageSelector. {shown!r}: {fault}"
    )


DOUBLE_MAX = 1.7976931348623157e308
DOUBLE_MIN = 5e-324
SEARCHES = ("CONTAINS", "STARTSWITH", "ENDSWITH")
MISPLACED = (
    "a condition on the left of property {} is an error for every message that has the property, "
    "as in RocketMQ, and the message does not match; write the property first, as in `{} = TRUE`"
)


class Parser:
    """Parses one expression."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._nesting = 0
        self.names_property = False
        """Does what was parsed depend on the message?"""
        self.misplaced = ""
        """Why it selects less than it seems to, if a comparison stands the wrong way round."""

    def parse(self) -> Operand:
        """The whole expression as a condition.

        Raises RequestRefused for what the tokens are not, LocalProtocolError for what no part can
        be.
        """
        part = self._or()
        self._tokens.peek()  # RocketMQ reads the token behind: it must be one.
        return operands.as_condition(part)

    def _or(self) -> Operand:
        parts = [self._and()]
        while self._tokens.take_if("OR"):
            parts.append(self._and())
        return operands.disjunction(parts) if len(parts) > 1 else parts[0]

    def _and(self) -> Operand:
        parts = [self._equality()]
        while self._tokens.take_if("AND"):
            parts.append(self._equality())
        return operands.conjunction(parts) if len(parts) > 1 else parts[0]

    def _equality(self) -> Operand:
        tokens, left = self._tokens, self._compared()
        while True:
            if tokens.take_if("="):
                left = self._equal(left)
            elif tokens.take_if("<>"):
                left = operands.negation(self._equal(left))
            elif tokens.take_if("IS"):
                negative = tokens.take_if("NOT")
                tokens.expect("NULL")
                left = operands.is_null(left)
                if negative:
                    left = operands.negation(left)
            else:
                return left

    def _equal(self, left: Operand) -> Operand:
        name = self._tokens.peek().text
        right = self._compared()
        if left.is_condition and right.form is Form.PROPERTY:
            self.misplaced = MISPLACED.format(name[:40], name[:40])
        return operands.equality(left, right)

    def _compared(self) -> Operand:
        tokens, left = self._tokens, self._unary()
        while True:
            sign = tokens.peek().text
            if tokens.peek().kind is Kind.SIGN and sign in ("<", "<=", ">", ">="):
                tokens.take()
                left = operands.comparison(sign, left, self._unary())
                continue
            negative = tokens.take_if("NOT")
            word = tokens.peek().text if tokens.peek().kind is Kind.WORD else ""
            if word in SEARCHES:
                tokens.take()
                left = operands.search(word, left, self._text(), negative=negative)
            elif tokens.take_if("BETWEEN"):
                low = self._unary()
                tokens.expect("AND")
                high = self._unary()
                inside = operands.not_between if negative else operands.between
                left = inside(left, low, high)
            elif tokens.take_if("IN"):
                left = operands.membership(left, self._texts(), negative=negative)
            elif negative:
                tokens.refuse("NOT is followed by no BETWEEN, IN or search")
            else:
                return left

    def _texts(self) -> list[str]:
        tokens = self._tokens
        tokens.expect("(")
        texts = [self._text()]
        while tokens.take_if(","):
            texts.append(self._text())
        tokens.expect(")")
        return texts

    def _unary(self) -> Operand:
        tokens = self._tokens
        if tokens.take_if("+"):
            return self._nested(self._unary)
        if tokens.take_if("-"):
            return operands.negated_value(self._nested(self._unary))
        if tokens.take_if("NOT"):
            return operands.negation(self._nested(self._unary))
        return self._primary()

    def _nested(self, parse: Callable[[], Operand]) -> Operand:
        self._nesting += 1
        if self._nesting > FILTER_DEPTH_MAX:
            self._tokens.refuse(f"it is nested deeper than {FILTER_DEPTH_MAX} levels")
        part = parse()
        self._nesting -= 1
        return part

    def _primary(self) -> Operand:
        tokens = self._tokens
        if tokens.take_if("("):
            part = self._nested(self._or)
            tokens.expect(")")
            return part
        token = tokens.peek()
        read = _READERS.get(token.kind)
        if read is None or (token.kind is Kind.WORD and token.text not in _TRUTHS):
            tokens.refuse("a value, property or condition is missing")
        tokens.take()
        self.names_property |= token.kind is Kind.NAME
        return read(token.text)

    def _text(self) -> str:
        token = self._tokens.peek()
        if token.kind is not Kind.STRING:
            self._tokens.refuse("a text in quotes is missing")
        self._tokens.take()
        return _unquoted(token.text)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _whole_number(text: str) -> int:
    digits = text.rstrip("lL")
    if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
        operands.refuse(f"{digits[:40]} is greater than {LONG_MAX}")
    value = int(digits)
    return value if value <= INT_MAX else Long(value)


def _double(text: str) -> float:
    """RocketMQ refuses 0.0 as well: it asks for at least the least positive double."""
    value = float(text)
    if not DOUBLE_MIN <= value <= DOUBLE_MAX:
        operands.refuse(f"{text[:40]} is not between {DOUBLE_MIN} and {DOUBLE_MAX}")
    return value


_TRUTHS: Mapping[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}
_READERS: Mapping[Kind, Callable[[str], Operand]] = {
    Kind.STRING: lambda text: operands.constant(_unquoted(text)),
    Kind.INTEGER: lambda text: operands.constant(_whole_number(text)),
    Kind.FLOAT: lambda text: operands.constant(_double(text)),
    Kind.NAME: operands.named,
    Kind.WORD: lambda text: operands.constant(_TRUTHS[text]),
}
