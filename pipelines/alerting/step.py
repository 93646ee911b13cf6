"""Computes one alerting step: new state and notices from the old state and a view of gold.

Place in the walk: rules, `Looked` and what the last step left → alerts, groups, notices → the
store. Invariant: pure: a process that does not know whether its step was stored loads, decides
again, and sends nothing twice. Alerts of rules that were not judged stay as they are. Beyond the
bound on open alerts no new one begins, the least bad first, and it is said of which rules.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pipelines.alerting import grouping, life_cycle
from pipelines.alerting.alert_context import Owned, PolledFacts
from pipelines.alerting.alerts import Alert, Notice, State
from pipelines.alerting.evaluating import Looked, Outcome, evaluate
from pipelines.alerting.grouping import Group
from pipelines.alerting.life_cycle import Change, ChangeKind, Now
from pipelines.alerting.routing import Routing
from pipelines.alerting.rules import Rule, Severity
from pipelines.alerting.silences import Silence
from pipelines.alerting.sql import Answering, answered
from pipelines.alerting.wait_clock import Steady
from pipelines.database.limits import OPEN_MAX, REMEMBERED_MAX

_SEVERITIES = {severity.value: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Known:
    """What a step leaves for the next one."""

    alerts: tuple[Alert, ...] = ()
    groups: Mapping[str, Group] = field(default_factory=dict)
    """By their keys."""
    clock: Steady = field(default_factory=Steady)


@dataclass(frozen=True, slots=True)
class Decided:
    """What a step came to."""

    known: Known
    changes: tuple[Change, ...] = ()
    notices: tuple[Notice, ...] = ()
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Of the rules that were judged, by name."""
    muted: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints of alerts of which nobody is notified now, and why."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many alerts of which rules did not begin, since too many are open."""


def judge(
    known: Known,
    rules: Sequence[Rule],
    looked: Looked,
    *,
    now_us: int,
    of_lake_alone: bool = False,
    owners: Sequence[Owned] = (),
    answering: Answering = answered,
) -> Decided:
    """Judge the rules in force by a look at gold; nobody is notified yet.

    of_lake_alone: gold is as it was, and only rules about the lake itself are judged, for these
    change with the clock. So it is while gold is made anew: its rows of the past end nothing that
    goes on, and no notice is sent twice. owners: who owns alerts whose rules name nobody.
    answering: what works out the queries of rules.
    """
    clock = known.clock.advanced(looked.data_us, now_us)
    of_lake_alone = of_lake_alone or clock.is_of_the_past
    data_us = now_us if clock.data_us is None else clock.data_us
    at, of_lake = Now(data_us, clock.total_us), Now(data_us, clock.process_us)
    of_rule: defaultdict[str, list[Alert]] = defaultdict(list)
    for alert in known.alerts:
        of_rule[alert.rule].append(alert)
    judged = [rule for rule in rules if rule.is_of_lake or not of_lake_alone]
    outcomes = evaluate(judged, looked, of_rule, answering=answering)
    polled = PolledFacts(looked.reached)
    kept: list[Alert] = []
    changes: list[Change] = []
    for rule in judged:
        stepped = life_cycle.step(
            *(rule, of_rule.pop(rule.name, ()), outcomes[rule.name]),
            of_lake if rule.is_of_lake else at,
            gone=looked.gone,
            owners=owners,
            polled=polled,
        )
        kept += stepped.alerts
        changes += stepped.changes
    for rule in rules:
        kept += of_rule.pop(rule.name, ())
    orphans = life_cycle.without_rule((one for ones in of_rule.values() for one in ones), at)
    kept += orphans.alerts
    changes += orphans.changes
    held = bounded(
        kept,
        changes,
        before={alert.fingerprint: alert for alert in known.alerts},
        notified={one for group in known.groups.values() for one in group.told},
        most=(OPEN_MAX, REMEMBERED_MAX),
    )
    alerts = tuple(sorted(held.alerts, key=lambda one: one.fingerprint))
    return Decided(
        Known(alerts, known.groups, clock),
        tuple(held.changes),
        outcomes=outcomes,
        left_out=held.left_out,
    )


def notify(
    decided: Decided,
    rules: Sequence[Rule],
    routing: Routing,
    *,
    silences: Iterable[Silence],
    now_us: int,
) -> Decided:
    """The same step, with the notices to send by now."""
    known = decided.known
    grouped = grouping.step(
        known.groups,
        known.alerts,
        routing,
        silences=silences,
        rules={rule.name: rule for rule in rules},
        now_us=now_us,
    )
    alerts, changes = _with_muted(known.alerts, grouped.muted)
    return replace(
        decided,
        known=replace(known, alerts=alerts, groups=grouped.groups),
        changes=(*decided.changes, *changes),
        notices=grouped.notices,
        muted=grouped.muted,
    )


def _with_muted(
    alerts: Sequence[Alert], muted: Mapping[str, str]
) -> tuple[tuple[Alert, ...], list[Change]]:
    """The alerts with why nobody is notified of them. One that fires no more is sent as over, muted
    or not: nothing changes for it here."""
    kept: list[Alert] = []
    changes: list[Change] = []
    for alert in alerts:
        why = muted.get(alert.fingerprint, "")
        if why == alert.muted:
            kept.append(alert)
            continue
        shown = replace(alert, muted=why)
        kept.append(shown)
        if why:
            changes.append(Change(ChangeKind.MUTED, shown))
        elif alert.state not in (State.PENDING, State.RESOLVED):
            changes.append(Change(ChangeKind.UNMUTED, shown))
        else:
            changes.append(Change(ChangeKind.NOTED, shown))
    return tuple(kept), changes


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
