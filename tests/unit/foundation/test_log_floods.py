"""A log under floods: bounded, and honest about what is not in it."""

from __future__ import annotations

import logging

from engine.foundation.limits import LOG_KINDS_MAX, LOG_LINES_PER_SECOND_MAX
from engine.foundation.log_lines import FloodFilter

START_S = 1_800_000_000.0


class Log:
    """Lines that pass one filter."""

    def __init__(self) -> None:
        self.filter = FloodFilter()
        self.lines: list[str] = []

    def write(self, at_s: float, text: str, *values: object) -> None:
        record = logging.LogRecord("engine", logging.WARNING, "x.py", 1, text, values, None)
        record.created = START_S + at_s
        if self.filter.filter(record):
            self.lines.append(record.getMessage())


def test_a_flood_leaves_its_first_lines_of_each_second_and_the_number_of_the_others() -> None:
    log = Log()
    for number in range(500):
        log.write(number / 250, "closed %s", f"10.0.0.{number}")
    kept = LOG_LINES_PER_SECOND_MAX
    assert log.lines[:kept] == [f"closed 10.0.0.{number}" for number in range(kept)]
    others = 250 - kept
    assert log.lines[kept] == f"closed 10.0.0.250 (and {others} like it that are not written)"
    assert len(log.lines) == 2 * kept


def test_a_flood_hides_no_other_line() -> None:
    log = Log()
    for number in range(500):
        log.write(0.1, "closed %s", number)
    log.write(0.2, "the disk is full: 100% of it")
    assert log.lines[-1] == "the disk is full: 100% of it"


def test_a_line_that_says_per_cent_is_kept_as_it_was() -> None:
    log = Log()
    for at_s in (0.0, 1.0):
        for _ in range(LOG_LINES_PER_SECOND_MAX + 1):
            log.write(at_s, "%s full", "90%")
    assert log.lines[LOG_LINES_PER_SECOND_MAX] == "90% full (and 1 like it that are not written)"


def test_the_kinds_counted_apart_are_bounded() -> None:
    log = Log()
    for number in range(3 * LOG_KINDS_MAX):
        log.write(0.0, f"kind {number}")
    assert len(log.lines) == 3 * LOG_KINDS_MAX
    assert len(log.filter._kinds) == LOG_KINDS_MAX
