"""Row D3: laws of SQL92 selectors for any text and any properties."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import RequestRefused
from engine.foundation.limits import FILTER_EXPRESSION_CHARS_MAX
from engine.protocol.codes import ResponseCode
from engine.protocol.sql92 import Selector, compile_selector
from engine.protocol.sql92.java_values import NotComparable
from tests import selectors

NASTY = st.sampled_from(("(", "NOT ", "- ", "a = ", "/*", "'", "''", "*", "--", "((a))", "1E", " "))


def compiled(expression: str) -> Selector | None:
    try:
        return compile_selector(expression)
    except RequestRefused as refused:
        refusal = refused
    assert refusal.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert len(refusal.remark) < 600, "a remark does not repeat a long expression"
    return None


@given(
    st.one_of(
        st.text(max_size=200),
        selectors.word_salad,
        selectors.careless,
        st.builds("{}{}".format, selectors.sound, st.text(max_size=20)),
    ),
    selectors.properties,
)
def test_any_text_is_a_selector_or_a_refusal_and_matching_never_raises(
    expression: str, properties: dict[str, str]
) -> None:
    selector = compiled(expression)
    if selector is not None:
        assert selector.matches(properties) in (True, False)
        assert expression.endswith(selector.ignored)


# A quadratic step would take minutes and meet the suite's time limit.
@given(NASTY, NASTY, st.integers(1, FILTER_EXPRESSION_CHARS_MAX))
def test_no_repetition_takes_long_or_exhausts_the_stack(one: str, other: str, count: int) -> None:
    selector = compiled(((one * count) + other * 3)[:FILTER_EXPRESSION_CHARS_MAX])
    if selector is not None:
        selector.matches({"a": "1"})


@given(selectors.sound, selectors.sound, selectors.properties)
def test_and_or_and_not_obey_the_tables_of_three_values(
    left: str, right: str, properties: dict[str, str]
) -> None:
    def value(expression: str) -> bool | None:
        selector = compiled(expression)
        if selector is None or selector.ignored:
            raise NotComparable("not about logic")
        return selector.evaluate(properties)

    try:
        one, two = value(left), value(right)
        both, either = value(f"({left}) AND ({right})"), value(f"({left}) OR ({right})")
        neither = value(f"NOT ({left})")
    except NotComparable:
        return
    values = (one, two)
    assert both is (False if False in values else None if None in values else True)
    assert either is (True if True in values else None if None in values else False)
    assert neither is (None if one is None else not one)
