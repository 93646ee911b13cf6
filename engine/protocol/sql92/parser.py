"""Parser of selectors: RocketMQ 5.5's grammar, by recursive descent.

    or         := and (OR and)*
    and        := equality (AND equality)*
    equality   := compared (= compared | <> compared | IS [NOT] NULL)*
    compared   := unary ( < unary | <= unary | > unary | >= unary
                        | [NOT] BETWEEN unary AND unary
                        | [NOT] IN ( 'text' (, 'text')* )
                        | [NOT] CONTAINS 'text' | [NOT] STARTSWITH 'text' | [NOT] ENDSWITH 'text' )*
    unary      := + unary | - unary | NOT unary | primary
    primary    := 'text' | number | TRUE | FALSE | NULL | property | ( or )

NOT binds more closely than a comparison: `NOT a = 'x'` compares `NOT a`.

Invariant: parentheses and signs nest at most FILTER_DEPTH_MAX deep, so no expression exhausts the
stack; only RequestRefused comes out. Absent on purpose: an end. RocketMQ stops at the first token
that continues nothing and ignores the rest; so do we, and `Selector.ignored` says it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.foundation.limits import FILTER_DEPTH_MAX
from engine.protocol.sql92 import operands
from engine.protocol.sql92.java_values import INT_MAX, LONG_MAX, Long
from engine.protocol.sql92.lexer import Kind, Tokens
from engine.protocol.sql92.operands import Form, Operand

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
