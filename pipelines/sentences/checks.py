"""Sentences about the latest data-quality checks and the verdicts that they withhold.

Place in the walk: gold dq_results, `pipelines/reading/trust` → pages, alerts, `tm`. Pure.
Invariant: a sentence on what is withheld says which check failed, when, and on what.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from pipelines.base.wording import duration, plural
from pipelines.sentences.answers import NAMED_MAX
from pipelines.sentences.figures import listed, moment, whole

NEVER_RAN: Final = "No check has run: `tidemark check` runs them."
NOTHING_TO_CHECK: Final = "The newest run had nothing to check here."
WITHHELD: Final = "WITHHELD"
"""The state of a group whose verdict is withheld."""
REASON_MAX: Final = 200
"""Characters of a reason that are shown beside a verdict; the page of checks has it whole."""
Named = tuple[str, str]
"""Whom a failure is about, and why (`failed`)."""


def too_old(age_ms: float) -> str:
    """That the newest run says nothing about now."""
    return whole(f"the last run is {duration(age_ms)} old: `tidemark check` runs them again")


def hold(checks: int, ran_at: datetime | None) -> str:
    """That all of them hold."""
    verb = "holds" if checks == 1 else "hold"
    at = "" if ran_at is None else f", run at {moment(ran_at)}"
    return whole(f"{plural(checks, 'check')} {verb}{at}")


def fail(names: Sequence[str], checks: int) -> str:
    """Which of them fail."""
    verb = "fails" if len(names) == 1 else "fail"
    return whole(f"{len(names):,} of {plural(checks, 'check')} {verb}: {listed(names)}")


def failed(check: str, at: datetime, reason: str) -> str:
    """Which check failed, when, and on what."""
    short = reason if len(reason) <= REASON_MAX else f"{reason[:REASON_MAX]}…"
    return f"{check} failed at {moment(at, day=True)}: {short}"


def is_withheld(why: str) -> str:
    """The reason of a state that is withheld."""
    return f"withheld: {why}"


def withheld(why: str, group: str | None, *, about: str = "") -> str:
    """That a verdict cannot be believed, and why; `about`: what can be said all the same."""
    rows = about or "The rows are as they were computed."
    return f"This is withheld: {why}{_whose(group)}. {rows}"


def of_whom(groups: int, brokers: int) -> str:
    """`2 groups and all groups of 1 broker`; nothing of none."""
    said = [plural(groups, "group")] if groups else []
    said += [f"all groups of {plural(brokers, 'broker')}"] if brokers else []
    return " and ".join(said)


def some_withheld(about: str, each: Sequence[Named]) -> str:
    """How many are withheld (`of_whom`), and each with its own reason."""
    are = "is" if about == "1 group" else "are"
    return f"{about[0].upper()}{about[1:]} {are} withheld: {_each(each)}."


def found_since(why: str, group: str | None) -> str:
    """That checks which ran after an answer was given withhold all of it."""
    return f"A check that ran since withholds this: {why}{_whose(group)}."


def some_found_since(each: Sequence[Named]) -> str:
    """The same of some of those that it is about."""
    return f"Checks that ran since withhold a part of this: {_each(each)}."


def _whose(group: str | None) -> str:
    return "" if group is None else f" (about group {group})"


def _each(each: Sequence[Named]) -> str:
    """Names, each reason once; further names are counted."""
    named: dict[str, list[str]] = {}
    for whose, why in each[:NAMED_MAX]:
        named.setdefault(why, []).append(whose)
    said = [f"{', '.join(names)}, because {why}" for why, names in named.items()]
    more = len(each) - NAMED_MAX
    return "; ".join([*said, f"and {more:,} more"] if more > 0 else said)
