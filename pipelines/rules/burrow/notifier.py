"""Reproduces Burrow's notifier, which tracks incidents and chooses notifications to send.

Place in the walk: after `evaluator`. A group is evaluated once per shortest `interval_s` of all
modules; an incident runs from its first status that is not OK to its first OK, and has an id.

Invariant: its faults are kept: `send_once` hides WARN → ERR, and without `send_close` the group is
never reported again; a group that is gone never ends an incident; a close is sent even by a module
whose threshold was never reached. Absent on purpose: clocks, randomness (`new_id`), senders, the
lock among several Burrows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from engine.foundation.errors import ConfigError
from pipelines.rules.burrow.evaluator import Status

NO_MODULE_INTERVAL_S: Final = 310_536_000
"""How seldom groups are evaluated when nobody wants to be notified."""

GroupKey = tuple[str, str]
"""Cluster and group."""


class Sending(Enum):
    """What a module does after an evaluation."""

    NOTHING = "nothing"
    OPEN = "open"
    """It reports on the status, for the first time or again."""
    CLOSE = "close"
    """It reports that the incident has ended."""


@dataclass(frozen=True, slots=True)
class ModuleSettings:
    """One notifier module; Burrow's names and defaults."""

    name: str
    threshold: Status = Status.WARN
    """Statuses from this one on are reported."""
    interval_s: int = 60
    """How often it wants groups evaluated."""
    send_interval_s: int | None = None
    """Time that must have gone since it last reported on a group; null: `interval_s`."""
    send_close: bool = False
    """Does it report when an incident ends?"""
    send_once: bool = False
    """Does it report on an incident only once?"""

    def __post_init__(self) -> None:
        if self.interval_s < 0 or (self.send_interval_s or 0) < 0:
            worst = min(self.interval_s, self.send_interval_s or 0)
            raise ConfigError("interval, send-interval", worst, "seconds, 0 or more")

    @property
    def pause_ms(self) -> int:
        """Its send interval, in ms."""
        seconds = self.interval_s if self.send_interval_s is None else self.send_interval_s
        return seconds * 1000


@dataclass(frozen=True, slots=True)
class Notice:
    """What one module sends for one evaluation."""

    module: str
    group: GroupKey
    status: Status
    incident_id: str | None
    """Null: the module reports on a group without an incident (threshold OK)."""
    started_ms: int | None
    sending: Sending
    """OPEN or CLOSE."""


@dataclass(slots=True)
class _Watched:
    last_evaluated_ms: int
    incident_id: str | None = None
    started_ms: int | None = None
    notified_ms: dict[str, int] = field(default_factory=dict)


class Notifier:
    """Incidents of all groups of all clusters, in memory only: a restart forgets them."""

    def __init__(self, modules: Sequence[ModuleSettings], *, new_id: Callable[[], str]) -> None:
        self._modules = tuple(modules)
        self._new_id = new_id
        self._watched: dict[GroupKey, _Watched] = {}

    @property
    def interval_ms(self) -> int:
        """Shortest interval of all modules."""
        shortest_s = min((one.interval_s for one in self._modules), default=NO_MODULE_INTERVAL_S)
        return shortest_s * 1000

    def refresh(self, groups: Iterable[GroupKey], *, last_evaluated_ms: int) -> None:
        """Watch these groups and no others. New ones count as evaluated at `last_evaluated_ms`:
        Burrow takes a random moment of the interval that has just gone, to spread the work.
        An incident of a group that is gone is forgotten, and nobody is notified.
        """
        listed = list(groups)
        self._watched = {key: self._watched.get(key, _Watched(last_evaluated_ms)) for key in listed}

    def take_due(self, now_ms: int) -> list[GroupKey]:
        """Groups whose evaluation is due now; they count as evaluated."""
        due = [
            key
            for key, watched in self._watched.items()
            if watched.last_evaluated_ms < now_ms - self.interval_ms
        ]
        for key in due:
            self._watched[key].last_evaluated_ms = now_ms
        return due

    def incident(self, group: GroupKey) -> tuple[str, int] | None:
        """Id and start of the group's open incident."""
        watched = self._watched.get(group)
        if watched is None or watched.incident_id is None or watched.started_ms is None:
            return None
        return watched.incident_id, watched.started_ms

    def evaluated(self, group: GroupKey, status: Status, *, now_ms: int) -> list[Notice]:
        """What is sent for this evaluation. NOTFOUND, and a group not watched, change nothing."""
        watched = self._watched.get(group)
        if watched is None or status is Status.NOTFOUND:
            return []
        if watched.started_ms is None and status > Status.OK:
            watched.incident_id, watched.started_ms = self._new_id(), now_ms
        notices = []
        for module in self._modules:
            sending = decide(
                module,
                status,
                has_incident=watched.started_ms is not None,
                notified_ms=watched.notified_ms.get(module.name),
                now_ms=now_ms,
            )
            if sending is Sending.NOTHING:
                continue
            if sending is Sending.CLOSE:
                watched.notified_ms.pop(module.name, None)
            else:
                watched.notified_ms[module.name] = now_ms
            notices.append(
                Notice(
                    module=module.name,
                    group=group,
                    status=status,
                    incident_id=watched.incident_id,
                    started_ms=watched.started_ms,
                    sending=sending,
                )
            )
        if status is Status.OK:
            watched.incident_id = watched.started_ms = None
        return notices


def decide(
    module: ModuleSettings,
    status: Status,
    *,
    has_incident: bool,
    notified_ms: int | None,
    now_ms: int,
) -> Sending:
    """What a module sends of a group with this status, an incident open or just opened or not.

    `notified_ms` is when it last reported on the group, null when it never did or has reported on
    an end since. The end of an incident is reported whatever the threshold.
    """
    if has_incident and status is Status.OK and module.send_close:
        return Sending.CLOSE
    if status < module.threshold:
        return Sending.NOTHING
    if notified_ms is None:
        return Sending.OPEN
    if module.send_once or now_ms - notified_ms <= module.pause_ms:
        return Sending.NOTHING
    return Sending.OPEN
