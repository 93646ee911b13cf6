"""Derives each rule's status: when it was last evaluated, and its row count or error.

Place in the walk: outcomes of a look → the store, with the step that they led to → page, commands.

Invariant: pure; a rule that was not judged at a look stays as it was. What could not be judged has
no number, and says why. Absent on purpose: alerts about it, which are the life cycle's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pipelines.alerting.evaluating import EvalError, NoData, Outcome, Signals
from pipelines.base.time_units import moment_at
from pipelines.base.wording import clock, plural
from pipelines.sentences.alert_reasons import why_not_judged

JUDGED: Final = "JUDGED"
REASON_MAX: Final = 1_000
"""Characters of why a rule could not be judged."""


@dataclass(frozen=True, slots=True)
class JudgedRule:
    """The last look at gold by one rule."""

    rule: str
    judged_us: int
    """By the clock of the process that judged it, µs."""
    data_us: int | None
    """The moment of data time that this was about."""
    outcome: str
    """JUDGED, or why not: NO_DATA, EVAL_ERROR, WITHHELD."""
    matched: int | None
    """Rows for which its condition held; None when it could not be judged."""
    reason: str
    """Why it could not be judged; empty when it was."""
    sound_us: int | None
    """When it was JUDGED last, by the same clock; None: never."""

    def came_to(self, now_us: int) -> str:
        """The result: a number of rows, or why there is none, and when there was one."""
        if self.matched is not None:
            return plural(self.matched, "row")
        last = "never judged"
        if self.sound_us is not None:
            last = f"judged last at {clock_of(self.sound_us, now_us)}"
        reason = self.reason.removeprefix("withheld: ")
        return f"{why_not_judged(self.outcome)}: {reason} ({last})"

    def in_words(self, now_us: int) -> str:
        """A rule in a line: its name, when it was judged last, and what came of it."""
        return f"{self.rule:32} {clock_of(self.judged_us, now_us)}  {self.came_to(now_us)}"


def judged_rules(
    outcomes: Mapping[str, Outcome],
    before: Mapping[str, JudgedRule],
    *,
    data_us: int | None,
    now_us: int,
) -> tuple[JudgedRule, ...]:
    """The rules that were judged at a look, as they fared. before: at the looks before it."""
    return tuple(
        _judged(rule, outcome, before.get(rule), data_us, now_us=now_us)
        for rule, outcome in outcomes.items()
    )


def _judged(
    rule: str, outcome: Outcome, before: JudgedRule | None, data_us: int | None, *, now_us: int
) -> JudgedRule:
    if isinstance(outcome, Signals):
        return JudgedRule(rule, now_us, data_us, JUDGED, outcome.matched, "", now_us)
    word = "WITHHELD"
    if isinstance(outcome, NoData):
        word = "NO_DATA"
    elif isinstance(outcome, EvalError):
        word = "EVAL_ERROR"
    sound_us = None if before is None else before.sound_us
    reason = outcome.reason[:REASON_MAX]
    return JudgedRule(rule, now_us, data_us, word, None, reason, sound_us)


def clock_of(moment_us: int, now_us: int) -> str:
    """A moment of today as a time of day, else with its date; UTC."""
    moment: datetime = moment_at(moment_us)
    return clock(moment, day=moment.date() != moment_at(now_us).date())
