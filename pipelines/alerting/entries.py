"""Entries of the alert history: how an alert stands after each of its changes.

Place in the walk: a step, or what somebody said → entries in SQL, in the same transaction → the
Delta table `alerts` (`history`).

Invariant: values only. An entry says how the alert stands after its change, so that the newest
entry of a fingerprint is that alert's present state. Absent on purpose: changes of which nobody
hears (figures, what the life cycle remembers), and sequence numbers, which the store gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipelines.alerting.alerts import Alert

ACKED: Final = "ACKED"
"""The one kind that no step makes: somebody said that he looks after it."""
INACTIVE: Final = "INACTIVE"
"""The state of an alert that was pending and is no more."""


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
