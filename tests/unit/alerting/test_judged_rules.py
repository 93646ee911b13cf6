"""How each rule fared when it was judged last: a number of rows, or why there is none."""

from __future__ import annotations

import pytest

from pipelines.alerting.evaluating import EvalError, NoData, Outcome, Signals, Withheld
from pipelines.alerting.rule_status import REASON_MAX, JudgedRule, judged_rules

SECOND_US = 1_000_000
NOON_US = 1_772_366_400 * SECOND_US
"""2026-03-01 12:00 UTC."""
SOUND = JudgedRule("R", NOON_US - SECOND_US, None, "JUDGED", 3, "", NOON_US - SECOND_US)


def judged(outcome: Outcome, *before: JudgedRule) -> JudgedRule:
    there = {one.rule: one for one in before}
    [one] = judged_rules({"R": outcome}, there, data_us=NOON_US - 2 * SECOND_US, now_us=NOON_US)
    return one


def test_a_rule_that_was_judged_has_a_number_of_rows_and_a_moment() -> None:
    one = judged(Signals((), 1_200))
    assert (one.outcome, one.matched, one.reason) == ("JUDGED", 1_200, "")
    assert (one.judged_us, one.data_us, one.sound_us) == (
        NOON_US,
        NOON_US - 2 * SECOND_US,
        NOON_US,
    )
    assert one.came_to(NOON_US) == "1,200 rows"
    assert one.in_words(NOON_US).split() == ["R", "12:00:00", "1,200", "rows"]


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (NoData("there is no table"), "its table has no data"),
        (EvalError("there is no table"), "its evaluation fails"),
        (Withheld("withheld: there is no table"), "a check of its data failed"),
    ],
)
def test_one_that_could_not_be_judged_has_no_number_and_says_when_it_could(
    outcome: Outcome, word: str
) -> None:
    first, later = judged(outcome), judged(outcome, SOUND)
    assert first.matched is later.matched is None
    assert first.came_to(NOON_US) == f"{word}: there is no table (never judged)"
    assert later.came_to(NOON_US) == f"{word}: there is no table (judged last at 11:59:59)"


def test_a_long_reason_is_kept_in_part() -> None:
    assert len(judged(EvalError("x" * 100_000)).reason) == REASON_MAX


def test_of_a_rule_that_was_not_judged_nothing_is_said_anew() -> None:
    assert judged_rules({}, {"R": SOUND}, data_us=None, now_us=NOON_US) == ()
