"""Numbers made again from a recorded cut: whatever upkeep has dropped since, they are the same."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from pipelines.alerting.objectives import Objectives
from pipelines.reports import notebook, page
from pipelines.reports.cuts import as_recorded
from pipelines.reports.lag_report import lag_report
from pipelines.reports.notebook import Report
from pipelines.reports.numbers import Numbers, as_json, read_json
from tests.unit.reports.gathered import BEGIN, HOUR, at, course, gathered

RAN = {
    "run_id": "r", "suite": "s", "expectation": "gapless", "table": "consumer_lag",
    "severity": "CRITICAL", "success": False, "observed_value": "a gap", "failed_rows": 1,
    "checked_rows": 9, "observed_at": at(30), "started_at": at(31), "judged_from": at(0),
}  # fmt: skip
DAY = BEGIN.date()
LATER = DAY + timedelta(days=1)


def rebuilt(tmp_path: Path, **given: object) -> Report:
    """What the notebook shows of a cut whose gold is not there any more."""
    kept = tmp_path / "kept.json"
    kept.write_bytes(as_json(RECORDED))
    return notebook.told(
        {
            "lake": str(tmp_path / "no lake"), "period": "hourly", "begin": HOUR.begin.isoformat(),
            "end": HOUR.end.isoformat(), "zone": "UTC", "run_id": "gone", "cycle": 7,
            "told_at_us": 5, "numbers": str(tmp_path / "numbers.json"), "recorded": str(kept),
            "recorded_at": "2026-03-01T13:05:00Z", "is_gone": True, **given,
        }
    )  # fmt: skip


def test_numbers_whose_gold_is_gone_are_the_kept_ones_and_the_page_says_so(tmp_path: Path) -> None:
    found = rebuilt(tmp_path)
    assert (found.numbers, found.revised) == (RECORDED, "")
    assert read_json((tmp_path / "numbers.json").read_bytes()) == RECORDED
    sentence = "Rebuilt from the numbers kept on 01 March 2026 13:05 UTC"
    assert found.rebuilt.startswith(sentence)
    assert sentence in page.top(found.numbers, rebuilt=found.rebuilt)
    assert sentence not in page.top(found.numbers)


def numbers_of(*results: dict[str, object]) -> Numbers:
    found = gathered(course("orders", [5] * 60), results=list(results))
    return lag_report(found, Objectives(), lake="lake")


RECORDED = numbers_of(RAN)
WITHOUT = numbers_of()
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


def test_of_a_period_whose_gold_was_dropped_all_numbers_are_the_recorded_ones() -> None:
    assert RECORDED.known_from_us is not None
    for known_from_us in (None, RECORDED.known_from_us + 1):
        less = replace(WITHOUT, known_from_us=known_from_us)
        assert as_recorded(less, RECORDED, checks_from=DAY) is RECORDED
    earlier = replace(RECORDED, known_from_us=RECORDED.known_from_us - 1)
    assert as_recorded(earlier, RECORDED, checks_from=DAY) == earlier
    assert str(HOUR) == RECORDED.title
