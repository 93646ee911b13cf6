"""A round of several runs says of each check the worst that a run found."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from expectations.batch import Batch
from expectations.check import Check, Outcome, Severity
from expectations.checkpoints import CheckRun
from expectations.memory import Memory
from expectations.rounds import Round

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def outcome(found: str, severity: Severity = Severity.CRITICAL) -> Outcome:
    """What one run found: `fails` and `holds` have looked at rows, `sees nothing` has not."""
    check = Check("retry_sheet_closes", "retry_flow", severity)
    checked = 0 if found == "sees nothing" else 7
    broken = int(found == "fails")
    return Outcome(check, severity, not broken, found, broken, checked, 1, 3)


def run(number: int, *outcomes: Outcome) -> CheckRun:
    batch = Batch("r", number, number + 1, (), is_last=False)
    return CheckRun(f"run {number}", NOON, NOON, NOON, outcomes, batch, Memory())


def round_of(*found: str) -> Round:
    return Round(tuple(run(number, outcome(what)) for number, what in enumerate(found)), ())


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (("fails", "holds"), "fails"),
        (("holds", "fails", "sees nothing"), "fails"),
        (("holds", "sees nothing"), "holds"),
        (("sees nothing", "holds"), "holds"),
        (("sees nothing",), "sees nothing"),
    ],
)
def test_no_later_run_hides_what_an_earlier_one_found(found: tuple[str, ...], said: str) -> None:
    [one] = round_of(*found).outcomes
    assert one.observed_value == said
    assert round_of(*found).failed(Severity.CRITICAL) is (said == "fails")


def test_of_runs_that_found_as_much_the_last_one_speaks() -> None:
    first, last = outcome("holds"), outcome("holds")
    [one] = Round((run(0, first), run(1, last)), ()).outcomes
    assert one is last


def test_a_round_fails_by_what_an_earlier_one_found_and_by_no_lesser_check() -> None:
    assert Round((run(0, outcome("holds")),), ("emitters_speak failed",)).failed(Severity.CRITICAL)
    lesser = Round((run(0, outcome("fails", Severity.WARNING)),), ())
    assert not lesser.failed(Severity.CRITICAL)
    assert lesser.failed(Severity.WARNING)
