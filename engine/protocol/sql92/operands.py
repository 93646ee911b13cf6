"""Selector operands: functions that compute a value from a message's properties.

Place in the walk: the parser puts them together, `Selector` evaluates them. A part is a function
from the message's properties to a value; what is known of it before any message decides where it
may stand.

Three truth values, as in RocketMQ 5.5: an unknown property makes a comparison unknown, with four
exceptions that are RocketMQ's own. A property that is missing equals another that is missing;
what is known never equals what is unknown (false, not unknown); CONTAINS, STARTSWITH, ENDSWITH and
their negations are false for a missing property; an empty search text is found nowhere, and not
missing anywhere either. Only TRUE matches.

Invariant: parts are evaluated from left to right and no further than the answer needs, because an
error in one of them ends the whole (java_values). No part is deeper than FILTER_DEPTH_MAX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn

from engine.foundation.errors import LocalProtocolError
from engine.foundation.limits import FILTER_DEPTH_MAX
from engine.protocol.sql92.java_values import Long, Value, equals, order

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]


class Form(Enum):
    """What is known of a part without a message."""

    CONSTANT = "a constant"
    PROPERTY = "a property"
    TRUTH = "a condition"
    NEGATED = "a negated value"


@dataclass(frozen=True, slots=True)
class Operand:
    """One part."""

    form: Form
    evaluate: Evaluate
    constant: Value = None
    """The value of a constant; None is NULL."""
    depth: int = 1

    @property
    def is_condition(self) -> bool:
        """May it stand where RocketMQ wants a boolean expression?"""
        return self.form is Form.TRUTH or (
            self.form is Form.CONSTANT and (self.constant is None or _is_truth(self.constant))
        )


def _is_truth(value: Value) -> bool:
    return isinstance(value, bool)


def refuse(fault: str) -> NoReturn:
    """Raise LocalProtocolError; the parser adds the expression and the place."""
    raise LocalProtocolError(fault)


def constant(value: Value) -> Operand:
    """A literal."""
    return Operand(Form.CONSTANT, lambda _properties: value, value)


def named(name: str) -> Operand:
    """A property."""
    return Operand(Form.PROPERTY, lambda properties: properties.get(name))


def _condition(evaluate: Evaluate, *parts: Operand, form: Form = Form.TRUTH) -> Operand:
    depth = 1 + max(part.depth for part in parts)
    if depth > FILTER_DEPTH_MAX:
        refuse(f"it is nested deeper than {FILTER_DEPTH_MAX} levels")
    return Operand(form, evaluate, depth=depth)


def as_condition(part: Operand) -> Operand:
    """The part as a condition; a property alone is one that a text never fulfils."""
    if part.is_condition:
        return part
    if part.form is not Form.PROPERTY:
        refuse("it is a value where a condition belongs")
    inner = part.evaluate
    return _condition(lambda properties: None if inner(properties) is None else False, part)


def negated_value(part: Operand) -> Operand:
    """`- part`: a number with its other sign; nothing else has one."""
    inner = part.evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        if value is None or isinstance(value, bool | str):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    return _condition(evaluate, part, form=Form.NEGATED)


def negation(part: Operand) -> Operand:
    """NOT."""
    inner = as_condition(part).evaluate

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else not value

    return _condition(evaluate, part)


def conjunction(parts: Sequence[Operand]) -> Operand:
    """AND: false when one is, else unknown when one is, else true."""
    return _joined(parts, decides=False)


def disjunction(parts: Sequence[Operand]) -> Operand:
    """OR: true when one is, else unknown when one is, else false."""
    return _joined(parts, decides=True)


def _joined(parts: Sequence[Operand], *, decides: bool) -> Operand:
    evaluates = [as_condition(part).evaluate for part in parts]

    def evaluate(properties: Properties) -> Value:
        outcome: Value = not decides
        for inner in evaluates:
            value = inner(properties)
            if value is decides:
                return decides
            if value is None:
                outcome = None
        return outcome

    return _condition(evaluate, *parts)


def equality(left: Operand, right: Operand) -> Operand:
    """`left = right`."""
    for part in (left, right):
        if part.form is Form.CONSTANT and part.constant is None:
            refuse("NULL cannot be compared: use IS NULL")
    both_constant = left.form is right.form is Form.CONSTANT
    if both_constant and _is_truth(left.constant) and not _is_truth(right.constant):
        refuse("TRUE and FALSE cannot be compared with a number or text")
    return _equality(left, right)


def is_null(part: Operand) -> Operand:
    """`part IS NULL`."""
    return _equality(part, constant(None))


def _equality(left: Operand, right: Operand) -> Operand:
    left_value, right_value = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        known, other = left_value(properties), right_value(properties)
        if known is None:
            return True if other is None else None
        return False if other is None else equals(known, other)

    return _condition(evaluate, left, right)


def comparison(sign: str, left: Operand, right: Operand) -> Operand:
    """`<`, `<=`, `>`, `>=`."""
    for part in (left, right):
        is_number = isinstance(part.constant, int | float) and not _is_truth(part.constant)
        if part.is_condition or (part.form is Form.CONSTANT and not is_number):
            refuse(f"{sign} compares numbers and properties only")
    left_value, right_value, holds = left.evaluate, right.evaluate, _HOLDS[sign]

    def evaluate(properties: Properties) -> Value:
        known = left_value(properties)
        if known is None:
            return None
        compared = order(known, right_value(properties))
        return None if compared is None else holds(compared)

    return _condition(evaluate, left, right)


_HOLDS: Mapping[str, Callable[[int], bool]] = {
    "<": lambda compared: compared < 0,
    "<=": lambda compared: compared <= 0,
    ">": lambda compared: compared > 0,
    ">=": lambda compared: compared >= 0,
}


def between(part: Operand, low: Operand, high: Operand) -> Operand:
    """`part BETWEEN low AND high`."""
    at_least, at_most = comparison(">=", part, low), comparison("<=", part, high)
    if low.form is high.form is Form.CONSTANT:
        compared = order(high.constant, low.constant)
        if compared is not None and compared < 0:
            refuse(f"BETWEEN {low.constant} AND {high.constant} holds nothing")
    return conjunction([at_least, at_most])


def not_between(part: Operand, low: Operand, high: Operand) -> Operand:
    """`part NOT BETWEEN low AND high`."""
    return disjunction([comparison("<", part, low), comparison(">", part, high)])


def membership(part: Operand, texts: Sequence[str], *, negative: bool) -> Operand:
    """`part [NOT] IN ('a', 'b')`."""
    if part.form is not Form.PROPERTY:
        refuse("only a property can be IN a list")
    inner, listed = part.evaluate, frozenset(texts)

    def evaluate(properties: Properties) -> Value:
        value = inner(properties)
        return None if value is None else (value in listed) is not negative

    return _condition(evaluate, part)


def search(word: str, part: Operand, sought: str, *, negative: bool) -> Operand:
    """`part [NOT] CONTAINS | STARTSWITH | ENDSWITH 'text'`."""
    inner, found = part.evaluate, _FOUND[word]

    def evaluate(properties: Properties) -> Value:
        if not sought:
            return False
        value = inner(properties)
        return isinstance(value, str) and found(value, sought) is not negative

    return _condition(evaluate, part)


_FOUND: Mapping[str, Callable[[str, str], bool]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
