"""Converts alerts, alert groups and the wait clock to database rows and back.

Place in the walk: between `step`, which is pure and typed, and the store, to which these are
opaque texts. Invariant: what was kept is read as the same value. Absent on purpose: SQL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from pipelines.alerting.alerts import INACTIVE, Alert, Entry, entry_of
from pipelines.alerting.grouping import Group
from pipelines.alerting.life_cycle import ChangeKind
from pipelines.alerting.step import Decided, Known
from pipelines.alerting.store.changes import value_of
from pipelines.alerting.store.steps import Cursor, GroupAt, Held, Step
from pipelines.alerting.wait_clock import Steady

_OF_HISTORY = (
    ChangeKind.BEGUN, ChangeKind.FIRED, ChangeKind.RESOLVED, ChangeKind.DROPPED,
    ChangeKind.FLAPPING, ChangeKind.RESTED, ChangeKind.MUTED, ChangeKind.UNMUTED,
)  # fmt: skip
"""The changes that history records."""


def known_of(held: Held) -> Known:
    """What the last step left; StorageError when the database holds something else."""
    groups = {at.group_key: value_of(state, Group) for at, state in held.groups.items()}
    clock = "" if held.cursor is None else held.cursor.clock
    return Known(held.alerts, groups, value_of(clock, Steady) if clock else Steady())


def step_of(
    before: Known,
    written: Mapping[str, Alert],
    decided: Decided,
    place: tuple[str, int] | None,
    *,
    all_figures: bool,
    now_us: int,
) -> Step:
    """What is to be stored of a step.

    written: the alerts as they are stored, by fingerprint. Those that are as they were but for
    their figures are stored only with `all_figures`: a thousand that fire would be written anew
    each cycle. place: run and cycle that were judged; None: none was. now_us: µs of the clock of
    this process.
    """
    known = decided.known
    changed = {change.alert.fingerprint for change in decided.changes}
    alerts = [
        alert
        for alert in known.alerts
        if alert.fingerprint in changed
        or (all_figures and written.get(alert.fingerprint) != alert)
        or alert.fingerprint not in written
    ]
    there = {alert.fingerprint: alert for alert in known.alerts}
    groups = {
        GroupAt(group.receiver, key): _text(group)
        for key, group in known.groups.items()
        if before.groups.get(key) != group
    }
    ended = [
        GroupAt(group.receiver, key)
        for key, group in before.groups.items()
        if key not in known.groups
    ]
    return Step(
        alerts,
        [one for one in written if one not in there],
        groups,
        ended,
        decided.notices,
        None if place is None else Cursor(*place, _text(known.clock)),
        _entries(decided, there, now_us),
    )


def _entries(decided: Decided, alerts: Mapping[str, Alert], now_us: int) -> list[Entry]:
    """What history says of a step. alerts: as they stand at its end, by fingerprint."""
    data_us = decided.known.clock.data_us
    return [
        entry_of(
            alerts.get(change.alert.fingerprint, change.alert),
            change.kind.value,
            observed_us=now_us if data_us is None else data_us,
            recorded_us=now_us,
            state=None if change.alert.fingerprint in alerts else INACTIVE,
        )
        for change in decided.changes
        if change.kind in _OF_HISTORY
    ]


def _text(value: Group | Steady) -> str:
    return json.dumps(msgspec.to_builtins(value))
