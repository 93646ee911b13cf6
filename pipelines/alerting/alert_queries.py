"""Queries alerts for commands, and builds silences from command arguments.

Place in the walk: between the store and the commands; `terminal` writes what is found here, `board`
is the same for pages. Invariant: the beginning of a fingerprint finds one alert, or nothing. Absent
on purpose: deciding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from engine.foundation.errors import Faulty, MustBe
from pipelines.alerting.alerts import Alert, State
from pipelines.alerting.matchers import Matcher, MatcherFault, all_match, labels_of, matchers_of
from pipelines.alerting.rule_status import JudgedRule
from pipelines.alerting.rules import Severity
from pipelines.alerting.silence_rows import silences_of
from pipelines.alerting.silences import DAYS, Recurring, Silence, active
from pipelines.alerting.store import people, steps
from pipelines.alerting.store.people import Ack
from pipelines.database.database import Database

OPEN: Final = frozenset(State) - {State.RESOLVED}
INTERNAL: Final = ("course",)
"""What the life cycle remembers for itself."""
_STATES: Final = {
    state: rank
    for rank, state in enumerate(
        (
            *(State.FIRING, State.EVAL_ERROR, State.NO_DATA, State.WITHHELD),
            *(State.PENDING, State.RESOLVED),
        )
    )
}
_SEVERITIES: Final = {severity.value: rank for rank, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class ShownAlert:
    """An alert, and what people said of it."""

    alert: Alert
    ack: Ack | None = None
    """The person who looks after it."""
    silences: tuple[Silence, ...] = ()
    """Those that hold, under which it falls."""
    judged: JudgedRule | None = None
    """How its rule fared last, where that was asked."""

    def as_json(self) -> dict[str, Any]:
        """For machines: moments are µs since 1970 UTC."""
        shown: dict[str, Any] = msgspec.to_builtins(self.alert)
        for name in INTERNAL:
            del shown[name]
        shown["acked_by"] = None if self.ack is None else self.ack.author
        shown["ack"] = None if self.ack is None else msgspec.to_builtins(self.ack)
        shown["silenced_by"] = self.silences[0].silence_id if self.silences else None
        shown["silences"] = [
            {
                "silence_id": one.silence_id,
                "matchers": [str(matcher) for matcher in one.matchers],
                "end_us": one.end_us,
                "author": one.author,
                "comment": one.comment,
            }
            for one in self.silences
        ]
        return shown


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which alerts of a list are meant: all that are open unless something is named."""

    rule: str = ""
    group: str = ""
    severity: str = ""
    owner: str = ""
    state: str = ""
    matchers: Sequence[Matcher] = ()
    all_of_them: bool = False
    """Resolved ones, too, as long as they are kept."""
    _equal: Mapping[str, str] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        named = {
            "alertname": self.rule,
            "group": self.group,
            "severity": self.severity,
            "owner": self.owner,
        }
        known = {name: value for name, value in named.items() if value}
        object.__setattr__(self, "_equal", known)

    def takes(self, alert: Alert) -> bool:
        """Is this one of them?"""
        if self.state:
            if alert.state.value != self.state:
                return False
        elif alert.state not in OPEN and not self.all_of_them:
            return False
        labels = labels_of(alert)
        is_named = all(labels.get(name, "") == value for name, value in self._equal.items())
        return is_named and all_match(self.matchers, labels)


def wanted_of(matchers: Iterable[str], *, state: str = "", **named: Any) -> Wanted:
    """What is asked for, as commands are given it. ConfigError for what is no matcher or state."""
    texts = list(matchers)
    states = [one.value for one in State]
    if state and state.upper() not in states:
        raise MustBe("state", state, f"one of {', '.join(states)}")
    try:
        read = matchers_of(texts) if texts else ()
    except MatcherFault as error:
        raise Faulty("matcher", str(error)) from error
    return Wanted(matchers=read, state=state.upper(), **named)


def listed(
    database: Database, lake: str, *, now_us: int, wanted: Wanted = Wanted()
) -> list[ShownAlert]:
    """The alerts that are asked for, the worst first."""
    held = [one for one in steps.load(database, lake).alerts if wanted.takes(one)]
    acks = {(one.fingerprint, one.active_at_us): one for one in people.acks_of(database, lake)}
    kept, _ = silences_of(people.silences_of(database, lake, ending_after_us=now_us))
    standing = active(kept, now_us)
    return [
        ShownAlert(
            alert,
            acks.get((alert.fingerprint, alert.active_at_us)),
            tuple(one for one in standing if all_match(one.matchers, labels_of(alert))),
        )
        for alert in sorted(held, key=urgency)
    ]


def one_alert(database: Database, lake: str, beginning: str) -> Alert:
    """The alert whose fingerprint begins so; ConfigError for none, and for several."""
    found = [
        alert
        for alert in steps.load(database, lake).alerts
        if beginning and alert.fingerprint.startswith(beginning)
    ]
    if len(found) != 1:
        what = "none begins so" if not found else f"{len(found)} begin so, write more of it"
        raise MustBe("fingerprint", beginning, f"one of `tidemark alerts list`: {what}")
    return found[0]


def one_shown(database: Database, lake: str, beginning: str, *, now_us: int) -> ShownAlert:
    """The same with what people said of it, and how its rule fared last."""
    alert = one_alert(database, lake, beginning)
    every = listed(database, lake, now_us=now_us, wanted=Wanted(all_of_them=True))
    shown = next(one for one in every if one.alert.fingerprint == alert.fingerprint)
    judged = steps.judged_of(database, lake, [alert.rule]).get(alert.rule)
    return ShownAlert(shown.alert, shown.ack, shown.silences, judged)


def new_silence(
    silence_id: str,
    matchers: list[str],
    *,
    begin_us: int,
    end_us: int,
    author: str,
    comment: str,
    recurring: Recurring | None = None,
) -> Silence:
    """A silence as somebody asks for it; ConfigError for what is none, and for one that is about
    no label: it would silence everything that there is.
    """
    try:
        made = matchers_of(matchers)
        if all(one.matches({}) for one in made):
            raise ValueError(
                "each of these holds for an alert without any label, so all alerts would be "
                'silenced: name one that must be there, like group=~".+"'
            )
        return Silence(silence_id, made, begin_us, end_us, author, comment, recurring)
    except (MatcherFault, ValueError) as error:
        raise Faulty("silence", str(error)) from error


def recurring_of(days: str, at: str, length_us: int, zone: str) -> Recurring | None:
    """When a silence comes back: days like `mon,tue`, or none for every day; a time like 22:00.
    None: neither is given."""
    if not days and not at:
        return None
    if not at:
        raise MustBe("at", at, "given with --days: the time of day at which it begins")
    try:
        numbers = frozenset(DAYS.index(day) for day in days.lower().split(",") if day)
        hour, minute = (int(part) for part in at.split(":"))
        return Recurring(numbers, 60 * hour + minute, length_us, zone)
    except ValueError as error:
        allowed = f"days of {','.join(DAYS)} and a time like 22:00 ({error})"
        raise MustBe("silence", f"{days} {at}", allowed) from error


def urgency(alert: Alert) -> tuple[int, int, int, str]:
    """Less is more urgent: firing ones first, the worst and newest of them first; then those of
    rules that cannot be judged, pending ones, those for information alone, and resolved ones."""
    rank = _STATES[alert.state]
    if alert.state is State.RESOLVED:
        return rank + 1, 0, -(alert.resolved_at_us or 0), alert.fingerprint
    if alert.severity == Severity.INFO.value:
        rank = _STATES[State.RESOLVED]
    severity = _SEVERITIES.get(alert.severity, len(_SEVERITIES))
    began_us = alert.fired_at_us or alert.active_at_us
    return rank, severity, -began_us, alert.fingerprint
