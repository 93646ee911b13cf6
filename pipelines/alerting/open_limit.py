"""Caps the number of open alerts: beyond the bound, no new alert begins.

Place in the walk: the end of judging; before grouping, and before the store, whose rows are bounded
by it. A rule has a bound of its own for what holds at a look; alerts of which nobody knows, and
those of which one thing after the other is wrong, go on beside these.

Invariant: pure. What is open stays; what would begin beyond the bound does not, the least bad
first, and it is said of which rules. Of the resolved ones, which are remembered for a while, those
that no notice has named go early. Absent on purpose: the bounds, which are the store's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pipelines.alerting.alerts import Alert, State
from pipelines.alerting.life_cycle import Change, ChangeKind
from pipelines.alerting.rules import Severity

_SEVERITIES = {severity.value: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Bounded:
    """What is kept of a step."""

    alerts: Sequence[Alert]
    changes: Sequence[Change]
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many alerts of which rules did not begin."""


def bounded(
    alerts: Sequence[Alert],
    changes: Sequence[Change],
    *,
    before: Mapping[str, Alert],
    notified: Collection[str],
    most: tuple[int, int],
) -> Bounded:
    """The alerts of a step, and its changes, within bounds.

    before: the alerts before it, by fingerprint. notified: fingerprints that some receiver knows.
    most: how many may be open, and how many may be remembered as resolved.
    """
    open_max, resolved_max = most
    is_open = [alert for alert in alerts if alert.state is not State.RESOLVED]
    excess = len(is_open) - open_max
    rested = len(alerts) - len(is_open) - resolved_max
    if excess <= 0 and rested <= 0:
        return Bounded(alerts, changes)
    new = [alert for alert in is_open if not _was_open(before.get(alert.fingerprint))]
    new.sort(key=_worst_first)
    out = {alert.fingerprint: alert for alert in new[len(new) - min(excess, len(new)) :]}
    if excess <= 0:
        out = {}
    untold = [
        alert
        for alert in alerts
        if alert.state is State.RESOLVED and alert.fingerprint not in notified
    ]
    untold.sort(key=lambda alert: (alert.course.phase_us, alert.fingerprint))
    early = {alert.fingerprint: alert for alert in untold[: max(0, rested)]}
    kept = [
        before.get(alert.fingerprint, alert) if alert.fingerprint in out else alert
        for alert in alerts
        if alert.fingerprint not in early
        and (alert.fingerprint not in out or alert.fingerprint in before)
    ]
    forgotten = [
        Change(ChangeKind.FORGOTTEN, alert) for one, alert in early.items() if one in before
    ]
    still = [
        change
        for change in changes
        if change.alert.fingerprint not in out and change.alert.fingerprint not in early
    ]
    left_out = Counter(alert.rule for alert in out.values())
    return Bounded(kept, [*still, *forgotten], dict(sorted(left_out.items())))


def _was_open(alert: Alert | None) -> bool:
    return alert is not None and alert.state is not State.RESOLVED


def _worst_first(alert: Alert) -> tuple[int, str]:
    return _SEVERITIES.get(alert.severity, len(_SEVERITIES)), alert.fingerprint
