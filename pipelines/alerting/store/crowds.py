"""Merges older notices into newer ones when too many wait for one receiver.

Invariant: pure. An alert that only an older notice shows as resolved is in the one that takes over;
the newest of a group stays, and so does one that a sender has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipelines.alerting.alerts import Notice, State


@dataclass(frozen=True, slots=True)
class QueuedNotice:
    """A notice that is not yet delivered, as far as its place in the queue goes."""

    seq: int
    group_id: str
    is_sending: bool


def replacements(queue: Sequence[QueuedNotice], waiting_max: int) -> list[tuple[int, int]]:
    """Which notice is replaced by which, as pairs of their seq, the oldest first, until no more
    than `waiting_max` are left or nothing else can be replaced. `queue` is in order of seq.
    """
    excess = len(queue) - waiting_max
    if excess <= 0:
        return []
    newer: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    for waiting in reversed(queue):
        if waiting.is_sending:
            continue
        if waiting.group_id in newer:
            pairs.append((waiting.seq, newer[waiting.group_id]))
        newer[waiting.group_id] = waiting.seq
    return pairs[::-1][:excess]


def merged(older: Notice, newer: Notice, alerts_max: int) -> Notice:
    """The newer notice with the alerts that the older one would have reported as resolved.

    A firing alert that only the older one names is not taken over: the newer one names all that
    fire, but for those it counts as left out.
    """
    firing = {alert.fingerprint for alert in newer.alerts}
    lacking = [
        alert
        for alert in older.alerts
        if alert.state is State.RESOLVED and alert.fingerprint not in firing
    ]
    room = max(0, alerts_max - len(newer.alerts))
    return replace(
        newer,
        alerts=newer.alerts + tuple(lacking[:room]),
        truncated_alerts=newer.truncated_alerts + len(lacking[room:]),
    )
