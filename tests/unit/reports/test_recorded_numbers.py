"""Numbers made again from a recorded cut: whatever upkeep has dropped since, they are the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from engine.foundation.errors import LakeError
from pipelines.reports.lag_report import lag_report
from pipelines.reports.numbers import Numbers
from pipelines.reports.objectives import Objectives
from pipelines.reports.recorded import as_recorded
from tests.unit.reports.gathered import BEGIN, HOUR, at, course, gathered

RAN = {
    "run_id": "r", "suite": "s", "expectation": "gapless", "table": "consumer_lag",
    "severity": "CRITICAL", "success": False, "observed_value": "a gap", "failed_rows": 1,
    "checked_rows": 9, "observed_at": at(30), "started_at": at(31), "judged_from": at(0),
}  # fmt: skip
DAY = BEGIN.date()
LATER = DAY + timedelta(days=1)


def told(*results: dict[str, object]) -> Numbers:
    found = gathered(course("orders", [5] * 60), results=list(results))
    return lag_report(found, Objectives(), lake="lake")


RECORDED = told(RAN)
WITHOUT = told()
"""The same once outcomes of checks are dropped."""


@pytest.mark.parametrize("checks_from", [None, LATER])
def test_what_checks_found_and_withheld_is_taken_from_the_recorded_numbers(
    checks_from: date | None,
) -> None:
    assert WITHOUT.digest != RECORDED.digest
    again = as_recorded(WITHOUT, RECORDED, checks_from=checks_from)
    assert again == RECORDED
    assert again.digest == RECORDED.digest
    assert "withheld" in again.headline


def test_what_the_table_has_counts() -> None:
    assert as_recorded(WITHOUT, RECORDED, checks_from=DAY) == WITHOUT
    assert as_recorded(RECORDED, WITHOUT, checks_from=DAY) == RECORDED


def test_another_cut_takes_nothing() -> None:
    newer = replace(WITHOUT, cycle=8)
    assert as_recorded(newer, RECORDED, checks_from=None) == newer


def test_a_period_of_which_gold_was_dropped_is_refused() -> None:
    assert RECORDED.known_from_us is not None
    for known_from_us in (None, RECORDED.known_from_us + 1):
        with pytest.raises(
            LakeError, match=r"not kept any more: of lag it tells (of no|from 2026)"
        ):
            as_recorded(replace(WITHOUT, known_from_us=known_from_us), RECORDED, checks_from=None)
    earlier = replace(RECORDED, known_from_us=RECORDED.known_from_us - 1)
    assert as_recorded(earlier, RECORDED, checks_from=DAY) == earlier
    assert str(HOUR) == RECORDED.title
