"""Compiles an SQL92 selector and matches it against messages.

Place in the walk: clients have it checked (CHECK_CLIENT_CONFIG), heartbeats bring it to the
broker, pulls filter with it.

Invariant: pure; `matches` never raises, `compile_selector` raises RequestRefused alone, and both
end in a time that grows with the length of the expression, which is at most
FILTER_EXPRESSION_CHARS_MAX.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from engine.foundation.errors import LocalProtocolError
from engine.foundation.limits import FILTER_EXPRESSION_CHARS_MAX, FILTER_MEMO_ENTRIES_MAX
from engine.protocol.sql92.java_values import NotComparable
from engine.protocol.sql92.operands import Evaluate, Properties
from engine.protocol.sql92.parser import Parser, Tokens, refuse

SQL92_EXPRESSION: Final = "SQL92"
"""The expression type of a subscription by selector."""


@dataclass(frozen=True, slots=True)
class Selector:
    """One expression, ready for messages."""

    expression: str
    ignored: str
    """Text behind the condition that has no meaning; empty when there is none."""
    remark: str
    """Why it selects less than somebody may think who wrote it; empty when nothing says so."""
    _evaluate: Evaluate

    def matches(self, properties: Properties) -> bool:
        """Is the condition true for these properties? Unknown and errors are not."""
        try:
            return self._evaluate(properties) is True
        except NotComparable:
            return False

    def evaluate(self, properties: Properties) -> bool | None:
        """True, false or unknown (None). Raises NotComparable where RocketMQ has an error."""
        value = self._evaluate(properties)
        assert value is None or isinstance(value, bool), f"{value!r} is no truth value"
        return value


@lru_cache(FILTER_MEMO_ENTRIES_MAX)
def compile_selector(expression: str) -> Selector:
    """Compile an expression.

    Raises RequestRefused with SUBSCRIPTION_PARSE_FAILED, saying what is wrong and where.
    """
    if len(expression) > FILTER_EXPRESSION_CHARS_MAX:
        refuse(
            expression,
            f"it has {len(expression)} characters, at most {FILTER_EXPRESSION_CHARS_MAX} are "
            "allowed",
        )
    tokens = Tokens(expression)
    parser = Parser(tokens)
    try:
        condition = parser.parse()
    except LocalProtocolError as error:
        refuse(expression, str(error))
    ignored = expression[tokens.peek().position :]
    made = Selector(expression, ignored, parser.misplaced, condition.evaluate)
    if not parser.names_property and not made.matches({}):
        return replace(
            made, remark="no property is named in it, and it is not true: nothing matches"
        )
    return made
