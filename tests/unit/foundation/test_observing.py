"""A change of state that an operator has to know is reported in both places in the same words."""

from __future__ import annotations

import logging

import pytest

from engine.foundation.observing import Fact, LifecycleEvent, SilentObserver, report


class Rows(SilentObserver):
    """Keeps what it observes."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def observe(self, fact: Fact) -> None:
        """Keep it."""
        self.facts.append(fact)


def test_a_reported_change_is_a_row_and_a_line_of_its_modules_log_in_the_same_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows, log = Rows(), logging.getLogger("engine.store.some_module")
    event = LifecycleEvent("DAMAGED_FILE", "topics.json is 100% damaged: %s is no table")
    report(rows, log, event)
    report(rows, log, event, level=logging.ERROR)
    assert rows.facts == [event, event]
    assert caplog.record_tuples == [
        ("engine.store.some_module", logging.WARNING, event.detail),
        ("engine.store.some_module", logging.ERROR, event.detail),
    ]
