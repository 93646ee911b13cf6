"""A report's name names nothing else, and a difference is called good or bad only where it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pipelines.reading.report_names import name_of
from pipelines.reports.comparing import Tendency, differences, judged, revised
from pipelines.reports.numbers import GroupFigures, Numbers, StallCause, Verdict
from tests.unit.reports.test_shelf import NUMBERS, RUN

BETTER, WORSE, OPEN = Tendency.BETTER, Tendency.WORSE, Tendency.OPEN
(ORDERS,) = NUMBERS.groups
STALL = StallCause("FROZEN_HEAD", 1, 1, 60, 0, 0, 0, 60, "orders", "")


def with_group(figures: GroupFigures = ORDERS, **fields: Any) -> Numbers:
    return replace(NUMBERS, groups=(replace(figures, **fields),))


def marks(before: Numbers, after: Numbers) -> dict[str, Tendency]:
    return {one.difference.figure: one.tendency for one in judged(before, after)}


def test_a_name_is_read_as_it_is_written() -> None:
    name = name_of(RUN.name)
    assert name is not None
    assert (name.report, name.window, name.number) == (RUN.report, RUN.window, RUN.number)
    assert str(name) == RUN.name


@pytest.mark.parametrize(
    "text",
    [
        "", "lag-daily", f"{RUN.name}/..", f"../{RUN.name}", f"{RUN.name}\n", f" {RUN.name}",
        "lag-daily/../1", "..%2f/20260301T000000Z-86400s/1", "--conf/20260301T000000Z-86400s/1",
        "lag-daily/20260301T000000Z-86400s/0", "lag-daily/20260301T000000Z-86400s/-1",
        "lag-daily/20260301T000000Z-86400s/٣", "lag-daily/20260301T000000Z-86400s/1' OR '1'='1",
        "lag-daily/20260301T000000Z-86400s/9999999", "lag daily/20260301T000000Z-86400s/1",
    ],
)  # fmt: skip
def test_what_is_no_name_is_none(text: str) -> None:
    assert name_of(text) is None


def test_less_lag_is_better_and_more_of_what_nobody_wants_is_worse() -> None:
    before = with_group(worst_ms=5_000, redelivered=0, share_percent=90.0)
    after = with_group(worst_ms=9_000, redelivered=4, share_percent=95.0)
    assert marks(before, after) == {
        "worst_ms": WORSE,
        "redelivered": WORSE,
        "share_percent": BETTER,
    }
    assert set(marks(after, before).values()) == {BETTER, WORSE}
    assert marks(after, after) == {}


def test_a_verdict_is_judged_when_both_are_known() -> None:
    kept, missed = with_group(verdict=Verdict.KEPT), with_group(verdict=Verdict.MISSED)
    unclear = with_group(verdict=Verdict.UNCLEAR)
    assert marks(kept, missed)["verdict"] is WORSE
    assert marks(missed, kept)["verdict"] is BETTER
    assert marks(unclear, kept)["verdict"] is OPEN
    assert marks(kept, unclear)["verdict"] is OPEN


def test_what_is_unknown_on_one_side_or_no_good_by_itself_is_not_judged() -> None:
    assert marks(with_group(worst_ms=None), with_group(worst_ms=5)) == {"worst_ms": OPEN}
    assert marks(with_group(state="OK"), with_group(state="SLOW")) == {"state": OPEN}
    assert marks(with_group(unknown_s=0), with_group(unknown_s=9)) == {"unknown_s": OPEN}


def test_another_objective_makes_shares_of_it_no_better_and_no_worse() -> None:
    before = with_group(share_percent=90.0, worst_ms=5, objective_ms=1)
    after = with_group(share_percent=99.0, worst_ms=4, objective_ms=60_000)
    found = marks(before, after)
    assert (found["share_percent"], found["worst_ms"]) == (OPEN, BETTER)


def test_a_verdict_that_is_withheld_is_not_judged() -> None:
    before, after = with_group(verdict=Verdict.KEPT), with_group(verdict=Verdict.MISSED)
    withheld = with_group(verdict=Verdict.MISSED, withheld="offsets_known fails")
    assert marks(before, after)["verdict"] is WORSE
    assert marks(before, withheld)["verdict"] is OPEN


def test_sums_of_periods_of_other_lengths_are_not_judged() -> None:
    hour = with_group(worst_ms=5_000, dead_letters=1)
    longer = replace(
        with_group(worst_ms=9_000, dead_letters=24), end_us=NUMBERS.end_us + 3_600_000_000
    )
    assert marks(hour, longer) == {"worst_ms": WORSE, "dead_letters": OPEN}


def test_a_stall_that_came_is_worse_and_one_that_went_is_better() -> None:
    none, one = replace(NUMBERS, stalls=()), replace(NUMBERS, stalls=(STALL,))
    assert marks(none, one) == {"row": WORSE}
    assert marks(one, none) == {"row": BETTER}


def test_what_was_made_again_from_an_earlier_cut_does_not_speak_of_what_came_later() -> None:
    later = replace(with_group(worst_ms=9), cycle=NUMBERS.cycle + 1)
    assert differences(NUMBERS, later)
    assert "What came later changed 1 figure" in revised(NUMBERS, later, 2)
    assert "What had not come by then changed 1 figure" in revised(later, NUMBERS, 3)
