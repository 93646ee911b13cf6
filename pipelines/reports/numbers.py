"""Types for the numbers in a lag report, stored as JSON and comparable between runs.

Place in the walk: `lag_report` makes them; the page, the terminal, the table of reports and
`comparing` take them from here.

Invariant: what is unknown is None, with a word or a sentence beside it, never 0. The same rows give
the same numbers, in the same order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from pipelines.base.wording import duration, or_more

FORMAT = 1
"""Of the document. Numbers of another format are not read."""


class Verdict(StrEnum):
    """Of a group and its objective, the worst first."""

    MISSED = "MISSED"
    UNCLEAR = "UNCLEAR"
    """What is unknown decides it: with the best of it kept, with the worst missed."""
    KEPT = "KEPT"


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """One group in the period."""

    cluster: str
    group: str
    verdict: Verdict
    objective_ms: int
    target_percent: float
    within_s: int
    behind_s: int
    unknown_s: int
    share_percent: float | None
    """Within the objective, of the time that is known; None: nothing is."""
    share_before_percent: float | None
    """The same of the period before; None: nothing is known of it, or it was not there."""
    was_there: bool
    """Was it there in the period before?"""
    worst_ms: int | None
    worst_at_us: int | None
    """The end of the slot in which it was that far behind."""
    lag_max: int | None
    end_ms: int | None
    """In the last slot of which something is known."""
    state: str
    """The last report; UNKNOWN when nothing is known of the end."""
    stalls: int
    stood_s: int
    """Of its queues together."""
    redelivered: int
    at_risk: int
    dead_letters: int
    withheld: str
    """Why its verdict is not to be believed; empty: it may be."""
    course_ms: tuple[int | None, ...]
    course: str
    """A letter a part of the period: w within, b behind, ? unknown, - not there."""
    is_part: bool = False
    """Was the lag of a queue unknown at times? Then worst_ms and lag_max are the least."""
    end_is_part: bool = False
    """Was it in the last slot of which something is known? Then end_ms is the least."""
    again_is_least: bool = False
    """Is it unknown of some windows what came again? Then redelivered is the least."""

    @property
    def again(self) -> str:
        """Its repeated deliveries, in words."""
        return _least_if(self.again_is_least, self.redelivered)

    @property
    def worst(self) -> str:
        """How far it was behind at worst, in words."""
        return or_more(None if self.is_part else self.worst_ms, self.worst_ms, duration)


@dataclass(frozen=True, slots=True)
class StallCause:
    """Queues that stood still, of one kind."""

    kind: str
    windows: int
    groups: int
    stood_s: int
    open_at_end: int
    unknown: int
    """Of these, windows of which nothing is known any more."""
    windows_before: int | None
    longest_s: int
    longest_of: str
    longest_evidence: str


@dataclass(frozen=True, slots=True)
class DuplicateCause:
    """Risks of a second delivery that began in the period, by cause: predicted and observed."""

    cause: str
    windows: int
    groups: int
    predicted: int
    """At most, of those that came out: confirmed or passed."""
    certain: int | None
    """Of these, known to be finished before: at least as many were to come again; None: unknown"""
    redelivered: int
    confirmed: int
    passed: int
    possible: int
    """Those of which nothing can be said yet, or ever."""
    open_at_most: int
    """Messages at risk in these."""
    exceeded: int
    """Windows of which more came again than predicted."""
    redelivered_before: int | None
    again_is_least: bool = False
    """Is it unknown of some windows what came again? Then redelivered is the least."""

    @property
    def again(self) -> str:
        """Repeated deliveries, in words."""
        return _least_if(self.again_is_least, self.redelivered)


def all_again(rows: Iterable[GroupFigures | DuplicateCause]) -> str:
    """Repeated deliveries of all these rows, in words."""
    several = tuple(rows)
    is_least = any(one.again_is_least for one in several)
    return _least_if(is_least, sum(one.redelivered for one in several))


def _least_if(is_least: bool, number: int) -> str:
    """A number, at least so many, or unknown where nothing was seen."""
    return or_more(None if is_least else number, number or None)


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Of one group: messages given up, and what became of dead letters."""

    cluster: str
    group: str
    letters: int
    topics: int
    reason: str
    """Of most of them."""
    redriven: int | None
    """In the period, as the next two; None: totals began anew, or were not reported."""
    discarded: int | None
    expired: int | None
    waiting: int | None
    """At its end, whenever they were given up."""
    letters_before: int | None


@dataclass(frozen=True, slots=True)
class RetentionRisk:
    """Unread messages that retention deletes, or has deleted."""

    cluster: str
    group: str
    retained_until_us: int | None
    """When the first go, at the rate of the end of the period; None: they are gone."""
    evidence: str


@dataclass(frozen=True, slots=True)
class Emitter:
    """Whether what an emitter reported is there, whole and once."""

    emitter: str
    missing_rows: int | None
    """None: no shipment of the period is known."""
    doubled_rows: int | None
    judged_to_us: int
    reaches_end: bool
    polled_each_ms: int | None = None
    """How often it polls a broker that it watches from outside; None: it reports itself, or has not
    said."""


@dataclass(frozen=True, slots=True)
class Check:
    """What a check of data quality found in its runs about the period."""

    expectation: str
    table: str
    severity: str
    runs: int
    failed_runs: int
    observed: str
    """Of its last failure, else of its last run."""


@dataclass(frozen=True, slots=True)
class News:
    """Something that was not so in the period before."""

    kind: str
    about: str
    text: str
    is_better: bool


@dataclass(frozen=True, slots=True)
class Numbers:
    """All of it."""

    format: int
    lake: str
    period: str
    begin_us: int
    end_us: int
    zone: str
    title: str
    slot_s: int
    run_id: str
    cycle: int
    told_at_us: int
    known_from_us: int | None
    before_is_known: bool
    headline: str
    groups: tuple[GroupFigures, ...]
    stalls: tuple[StallCause, ...]
    duplicates: tuple[DuplicateCause, ...]
    dead_letters: tuple[DeadLetters, ...]
    retention: tuple[RetentionRisk, ...]
    emitters: tuple[Emitter, ...]
    checks: tuple[Check, ...]
    violations: int | None
    """Broken laws of offsets; None: not reported."""
    unaccounted: int | None
    news: tuple[News, ...]

    def count(self, verdict: Verdict) -> int:
        """Groups of a verdict."""
        return sum(one.verdict is verdict for one in self.groups)

    @property
    def digest(self) -> str:
        """Of everything but cut and place: equal numbers have equal digests."""
        values = msgspec.to_builtins(self)
        for name in ("lake", "run_id", "cycle", "told_at_us"):
            del values[name]
        for row in (*values["groups"], *values["duplicates"]):  # Earlier versions knew none.
            for name in ("is_part", "end_is_part", "again_is_least"):
                if not row.get(name, True):
                    del row[name]
        return hashlib.sha256(msgspec.json.encode(values, order="deterministic")).hexdigest()[:16]


def as_json(numbers: Numbers) -> bytes:
    """The document that is kept."""
    return msgspec.json.format(msgspec.json.encode(numbers), indent=1)


def read_json(data: bytes) -> Numbers:
    """The reverse. Raises msgspec.DecodeError for what is none of this format."""
    numbers = msgspec.json.decode(data, type=Numbers)
    if numbers.format != FORMAT:
        raise msgspec.DecodeError(f"numbers of format {numbers.format}, not {FORMAT}")
    return numbers


def builtins(value: Any) -> Any:
    """As JSON would have it, for a terminal."""
    return msgspec.to_builtins(value)
