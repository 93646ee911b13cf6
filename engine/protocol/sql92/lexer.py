"""Lexer of selectors: from text to tokens, one at a time.

    blank | -- comment to the end of its line | /* comment */        passed over
    5  5L  5.5  .5  5E10  'it''s'  name  =  <>  <  <=  >  >=  ( ) , + -

Place in the walk: the parser asks for the next token when it looks at it, not before, because
RocketMQ does so: what nobody looks at may be no token at all.

Invariant: each character is looked at a bounded number of times; the only error is RequestRefused
with SUBSCRIPTION_PARSE_FAILED. Absent on purpose: hexadecimal and octal numbers, LIKE, arithmetic.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple, NoReturn

from engine.foundation.errors import RequestRefused
from engine.protocol.codes import ResponseCode

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
