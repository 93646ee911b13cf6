"""Row D3: what SQL92 selectors mean, case by case; the answers were RocketMQ 5.5's own."""

from __future__ import annotations

import pytest

from engine.foundation.errors import RequestRefused
from engine.foundation.limits import FILTER_DEPTH_MAX, FILTER_EXPRESSION_CHARS_MAX
from engine.protocol.codes import ResponseCode
from engine.protocol.sql92 import compile_selector
from engine.protocol.sql92.java_values import NotComparable
from tests.selectors import REFUSED, Row, known_rows, message_properties

PAINT = {"color": "red", "n": "5", "size": "5.5", "on": "True", "note": "it's"}


def refusal(expression: str) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        compile_selector(expression)
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    return caught.value


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("color = 'red'", True),
        ("color <> 'red'", False),
        ("color IN ('blue', 'red')", True),
        ("color not in ('blue', 'red')", False),
        ("note = 'it''s'", True),
        ("n > 4 AND n <= 5", True),
        ("4 < n", True),
        ("n BETWEEN 6 AND 9", False),
        ("n NOT BETWEEN 6 AND 9", True),
        ("n BETWEEN -5 AND 5", True),
        ("size > 5.0", True),
        ("n = 5.0", True),
        ("size > n", True),
        ("on = TRUE", True),
        ("color = TRUE", False),
        ("color", False),
        ("color CONTAINS 'e'", True),
        ("color STARTSWITH 're' AND color ENDSWITH 'ed'", True),
        ("color NOT CONTAINS 'x'", True),
        ("color CONTAINS ''", False),
        ("color NOT CONTAINS ''", False),
        ("(color = 'red') = (n = 5)", True),
        ("color = 'blue' OR n = 5", True),
        ("NOT n = 5", False),  # NOT binds first: what is compared with 5 is `NOT n`.
        ("color = 'red' -- as paint\n AND /* really */ n = 5", True),
    ],
)
def test_conditions_over_known_properties(expression: str, answer: bool) -> None:
    assert compile_selector(expression).evaluate(PAINT) is answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("gone = 'red'", None),
        ("gone > 5", None),
        ("gone IN ('red')", None),
        ("gone", None),
        ("NOT (gone = 'red')", None),
        ("gone = 'red' AND color = 'blue'", False),
        ("gone = 'red' AND color = 'red'", None),
        ("gone = 'red' OR color = 'red'", True),
        ("gone = 'red' OR color = 'blue'", None),
        ("gone IS NULL", True),
        ("color IS NOT NULL", True),
        ("gone = lost", True),
        ("color = gone", False),
        ("gone = color", None),
        ("gone CONTAINS 'x'", False),
        ("gone NOT CONTAINS 'x'", False),
        ("NOT (gone CONTAINS 'x')", True),
        ("NULL", None),
    ],
)
def test_unknown_properties_follow_rocketmqs_three_values(
    expression: str, answer: bool | None
) -> None:
    assert compile_selector(expression).evaluate(PAINT) is answer
    assert compile_selector(expression).matches(PAINT) is (answer is True)


@pytest.mark.parametrize(
    "expression",
    [
        "color = 5",
        "size > 5",  # '5.5' is read as a whole number, because 5 is one.
        "color > n",
        "TRUE = color",
        "color = 5 OR n = 5",
    ],
)
def test_an_error_of_types_ends_the_evaluation_and_nothing_matches(expression: str) -> None:
    with pytest.raises(NotComparable):
        compile_selector(expression).evaluate(PAINT)
    assert not compile_selector(expression).matches(PAINT)
    assert compile_selector(f"n = 5 OR {expression}").matches(PAINT), "what decides, decides first"


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "is missing at its end"),
        ("color =", "is missing at its end"),
        ("color = NULL", "IS NULL"),
        ("color > 'a'", "numbers and properties only"),
        ("(n > 1) > 0", "numbers and properties only"),
        ("'red'", "a value where a condition belongs"),
        ("n BETWEEN 9 AND 6", "holds nothing"),
        ("5 IN ('5')", "only a property"),
        ("n IN (5)", "a text in quotes is missing before '5'"),
        ("n = 9223372036854775808", "greater than 9223372036854775807"),
        ("n = 0.0", "is not between"),
        ("n = #", "begins with '#'"),
        ("TRUE = 5", "cannot be compared with a number"),
        ("n NOT 5", "no BETWEEN, IN or search before '5'"),
        ("color = 'red", 'begins with "\'"'),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(expression: str, reason: str) -> None:
    assert reason in refusal(expression).remark


def test_what_stands_behind_a_condition_is_ignored_as_in_rocketmq_and_logged() -> None:
    selector = compile_selector("n = 5 ) AND color = 'blue'")
    assert selector.matches(PAINT)
    assert selector.ignored == ") AND color = 'blue'"
    assert compile_selector("n = 5 ").ignored == ""


def test_long_and_deep_selectors_are_refused_by_their_limits() -> None:
    clause = "n = 5 OR "
    fitting = clause * (FILTER_EXPRESSION_CHARS_MAX // len(clause) - 1) + "n = 5"
    assert compile_selector(fitting).matches(PAINT), "a chain of ORs is wide, not deep"
    assert "characters" in refusal("n = 5 " + " " * FILTER_EXPRESSION_CHARS_MAX).remark
    depth = FILTER_DEPTH_MAX - 3
    assert compile_selector("(" * depth + "n = 5" + ")" * depth).matches(PAINT)
    deep = FILTER_DEPTH_MAX + 1
    for expression in (
        "(" * deep + "n = 5" + ")" * deep,
        "NOT " * deep + "n",
        "n = 5" + " = TRUE" * deep,
        "color" + " CONTAINS 'r'" * deep,
    ):
        assert "deeper" in refusal(expression).remark


def said_here(expression: str) -> Row:
    try:
        selector = compile_selector(expression)
    except RequestRefused:
        return REFUSED
    return [name for name, given in message_properties().items() if selector.matches(given)]


def test_each_selector_says_what_a_real_rocketmq_said_on_the_wire() -> None:
    rows = known_rows()
    assert len(rows) > 130
    assert {one: said_here(one) for one in rows} == rows


@pytest.mark.parametrize(
    ("expression", "remark"),
    [
        ("TRUE = color", "on the left of property color"),
        ("n = 5 OR NOT FALSE <> color", "write the property first, as in `color = TRUE`"),
        ("(n = 5) = color", "the message does not match"),
        ("1 = 2", "nothing matches"),
        ("FALSE", "nothing matches"),
        ("NULL OR 'x' = 5", "nothing matches"),
        ("1 = 1", ""),
        ("color = TRUE", ""),
        ("TRUE = (color = 'red')", ""),
        ("'red' = color", ""),
    ],
)
def test_a_selector_that_selects_less_than_it_seems_to_says_so(
    expression: str, remark: str
) -> None:
    found = compile_selector(expression).remark
    assert remark in found
    assert bool(remark) == bool(found)
