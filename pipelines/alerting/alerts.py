"""Value types for alerting: signals, alerts, notices and history entries.

Place in the walk: between all of its parts; each takes these and hands these on. Invariant: values
only. An alert is the same as long as its fingerprint is, made of its rule's name and its labels;
the newest entry of a fingerprint is that alert's present state. Absent on purpose: changes of which
nobody hears, and sequence numbers, which the store gives.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

ALERT_NAME = "alertname"
"""The label that carries the name of the rule, as in Alertmanager."""

Figure = bool | float | int | str | None
"""A value of a row; None is unknown."""

OBSERVED = "observed"
"""The text of an alert that says that it rests on facts that were polled, and how exact they are.
"""

OUTCOME = "outcome"
"""The label of an alert about a rule that cannot be judged: NO_DATA, EVAL_ERROR or WITHHELD."""
ACKED: Final = "ACKED"
"""The one kind that no step makes: somebody said that he looks after it."""
INACTIVE: Final = "INACTIVE"
"""The state of an alert that was pending and is no more."""


class State(StrEnum):
    """Where an alert stands. An alert that is in none is inactive, and not kept."""

    PENDING = "PENDING"
    """The condition holds, not yet for as long as the rule asks."""
    FIRING = "FIRING"
    RESOLVED = "RESOLVED"
    NO_DATA = "NO_DATA"
    """Nothing was reported by which the condition could be judged."""
    EVAL_ERROR = "EVAL_ERROR"
    """The rule could not be evaluated."""
    WITHHELD = "WITHHELD"
    """The verdict that it rests on is withheld, for a check of data quality failed."""


@dataclass(frozen=True, slots=True)
class Signal:
    """The condition of a rule holds for these labels, in one cycle of gold."""

    labels: Mapping[str, str]
    """With those of the rule, without its name."""
    since_us: int | None
    """Since when the facts say so, µs of data time; None: from this cycle on. A rule waits from
    then on.
    """
    evidence: str
    """One sentence of gold's that says what is seen; it may hold names that others gave."""
    figures: Mapping[str, Figure]
    """What the texts of the rule may name; None is unknown."""
    began_us: int | None = None
    """The earliest beginning that is proven, as pages show it; None: `since_us`."""


@dataclass(frozen=True, slots=True)
class Course:
    """What the life cycle remembers of an alert, beside what notices show. Times are µs of a clock
    that no change of the wall clock moves (`wait_clock`)."""

    holds: bool = True
    """Does the condition hold, as far as anybody knows?"""
    phase_us: int = 0
    """Since when it has held, or has not; time in which nobody knew is left out."""
    unknown_us: int | None = None
    """Since when nobody knows; None while somebody does."""
    changes_us: tuple[int, ...] = ()
    """When it lately began to fire, or was resolved; the newest last."""
    is_flapping: bool = False
    """It changed too often: it is held as firing until it rests."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One thing that is wrong, from the moment that it was seen first."""

    fingerprint: str
    rule: str
    severity: str
    owner: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    """Texts: summary, description, evidence, first_step, observed, runbook_url, page_url,
    notebook_url."""
    figures: Mapping[str, Figure]
    state: State
    reason: str
    """Why it is in this state, when that is not the condition itself; else empty."""
    active_at_us: int
    """Since when the condition holds, µs of data time."""
    fired_at_us: int | None
    """When it began to fire, µs of data time."""
    resolved_at_us: int | None
    last_true_us: int
    """Newest moment at which the condition was seen to hold, µs of data time."""
    course: Course = Course()
    """To be stored with it: without, a restart would begin its waits anew."""
    muted: str = ""
    """Why nobody is notified of it now, while it fires; empty: its receivers are notified."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notification for one receiver about one group of alerts: the outbox delivers it."""

    notice_id: str
    """The same for the same notice, whoever makes it, and however often."""
    receiver: str
    group_key: str
    group_labels: Mapping[str, str]
    alerts: tuple[Alert, ...]
    """Those that fire and those that were resolved since the notice before."""
    truncated_alerts: int
    """How many more there are than `alerts` names."""
    created_us: int
    """µs of the clock of the process."""
    subject: str = ""
    """What it is about, where that is no alert but a report; empty: its alerts say it."""
    attachment: str = ""
    """A file that goes with it, where a channel can carry one; a path on the sending machine."""

    @property
    def is_firing(self) -> bool:
        """Does any of them fire still?"""
        return any(alert.state is not State.RESOLVED for alert in self.alerts)


def fingerprint_of(rule: str, labels: Mapping[str, str]) -> str:
    """Sixteen hexadecimal digits that identify this alert."""
    identity = json.dumps([rule, sorted(labels.items())])
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of one alert, and how the alert stands after it. Moments are µs since 1970."""

    kind: str
    """BEGUN, FIRED, RESOLVED, DROPPED, FLAPPING, RESTED, MUTED, UNMUTED or ACKED."""
    fingerprint: str
    rule: str
    severity: str
    owner: str
    labels: Mapping[str, str]
    state: str
    """As of alerts, or INACTIVE."""
    reason: str
    muted: str
    """Why nobody is notified; empty: its receivers are notified."""
    is_flapping: bool
    summary: str
    evidence: str
    active_at_us: int
    fired_at_us: int | None
    resolved_at_us: int | None
    observed_us: int
    """Data time at which it was decided; of what people say, the clock of where they said it."""
    recorded_us: int
    """Clock of the process that noted it."""
    author: str = ""
    """Empty where nobody had to decide it."""
    comment: str = ""


def entry_of(
    alert: Alert,
    kind: str,
    *,
    observed_us: int,
    recorded_us: int,
    state: str | None = None,
    author: str = "",
    comment: str = "",
) -> Entry:
    """The entry of a change after which an alert stands like this. state: None is the alert's."""
    return Entry(
        kind=kind,
        fingerprint=alert.fingerprint,
        rule=alert.rule,
        severity=alert.severity,
        owner=alert.owner,
        labels=alert.labels,
        state=alert.state.value if state is None else state,
        reason=alert.reason,
        muted=alert.muted,
        is_flapping=alert.course.is_flapping,
        summary=alert.annotations.get("summary", ""),
        evidence=alert.annotations.get("evidence", ""),
        active_at_us=alert.active_at_us,
        fired_at_us=alert.fired_at_us,
        resolved_at_us=alert.resolved_at_us,
        observed_us=observed_us,
        recorded_us=recorded_us,
        author=author,
        comment=comment,
    )
