"""Alert state machine: inactive → pending → firing → resolved.

Place in the walk: outcomes of rules → alerts → grouping.

                 holds                held for `for`
    inactive ────────────▶ PENDING ──────────────────▶ FIRING ◀──┐ holds again
        ▲                     │ does not hold             │      │ within keep_firing_for
        │◀────────────────────┘                           │ ─────┘
        │        after a while                            │ has not held for keep_firing_for,
        └───────────────────────── RESOLVED ◀─────────────┘ or what it is about is gone
                                      │ holds again: PENDING

That a rule cannot be judged (no data, an error, a withheld verdict) is an alert of its own, which
lives the same way with NO_DATA, EVAL_ERROR or WITHHELD in the place of FIRING.

Four changes within half an hour are flapping: it is sent once, and held as firing until it has
rested for as long.

Invariant: nothing is resolved, and nothing pending dropped, but by rows in which its condition was
seen not to hold, or because what it is about, or its rule, is gone. Nobody knowing changes no
state, and its time counts for no wait. The same outcome at the same moment changes nothing. Absent
on purpose: clocks; waits are measured in time of the `wait_clock`, moments are given in data time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from pipelines.alerting.alert_context import Owned, PolledFacts, links_of, owner_of
from pipelines.alerting.alerts import (
    ALERT_NAME,
    OBSERVED,
    OUTCOME,
    Alert,
    Course,
    Signal,
    State,
    fingerprint_of,
)
from pipelines.alerting.evaluating import EvalError, NoData, Outcome, Signals, Withheld
from pipelines.alerting.rules import Policy, Rule
from pipelines.alerting.texts import rendered, since_text
from pipelines.base.settings import MINUTE_US
from pipelines.sentences.alert_reasons import (
    FLAPPING,
    RESTS,
    RULE_GONE,
    SUBJECT_GONE,
    not_judged,
    unknown_now,
)

FLAP_WINDOW_US: Final = 30 * MINUTE_US
FLAP_CHANGES: Final = 4
"""This many changes within the window are flapping."""
KEPT_FOR_US: Final = 30 * MINUTE_US
"""An alert that was resolved is remembered for so long: whether it flaps is seen by it."""
PATIENCE_US: Final = 2 * MINUTE_US
"""How long a rule must have been impossible to judge before that is reported."""
OF_RULE: Final = (State.NO_DATA, State.EVAL_ERROR, State.WITHHELD)
"""What an alert about a rule is in, in the place of FIRING."""


class ChangeKind(StrEnum):
    """What became of an alert."""

    BEGUN = "BEGUN"
    """It is pending."""
    FIRED = "FIRED"
    RESOLVED = "RESOLVED"
    DROPPED = "DROPPED"
    """It was pending, and its condition no longer holds; one resolved before is that again."""
    FORGOTTEN = "FORGOTTEN"
    """It was resolved long ago."""
    FLAPPING = "FLAPPING"
    RESTED = "RESTED"
    """It no longer flaps."""
    MUTED = "MUTED"
    """Nobody is notified of it: it is silenced, or another one makes it needless."""
    UNMUTED = "UNMUTED"
    NOTED = "NOTED"
    """Its state is the same; what is remembered of it is not."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one alert, which is to be stored; of a DROPPED or FORGOTTEN one, its end."""

    kind: ChangeKind
    alert: Alert


@dataclass(frozen=True, slots=True)
class Now:
    """The moment of a look."""

    data_us: int
    """µs of data time; of a look that found no cycle, that of the one before."""
    steady_us: int
    """Of the clock that the rule waits by: `wait_clock` says which."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a step came to."""

    alerts: tuple[Alert, ...]
    """All that are kept, in the order of their fingerprints. Those that no change names may have
    newer figures all the same."""
    changes: tuple[Change, ...]


def step(
    rule: Rule,
    alerts: Sequence[Alert],
    outcome: Outcome,
    now: Now,
    *,
    gone: Sequence[Mapping[str, str]] = (),
    owners: Sequence[Owned] = (),
    polled: PolledFacts | None = None,
) -> Stepped:
    """What becomes of a rule's alerts by the outcome of its evaluation.

    gone: what is not there any more, by the labels that name it. owners: whose alerts are where the
    rule names nobody. polled: which brokers are watched from outside; None: none is.
    """
    life = _Life(rule, now, owners, polled)
    signals = _signals_of(rule, outcome)
    known = {alert.fingerprint: alert for alert in alerts}
    for fingerprint, alert in known.items():
        signal = signals.get(fingerprint)
        if signal is not None:
            life.holds(alert, signal)
        elif _is_gone(alert, gone):
            life.ends(alert, SUBJECT_GONE)
        else:
            why = _unknown(alert, outcome)
            life.holds_not(alert) if why is None else life.is_unknown(alert, why)
    for fingerprint, signal in signals.items():
        if fingerprint not in known:
            life.begins(fingerprint, signal)
    return life.stepped()


def without_rule(alerts: Iterable[Alert], now: Now) -> Stepped:
    """Ends alerts whose rule is in no file any more."""
    kept, changes = [], []
    for alert in alerts:
        if alert.state is State.PENDING and alert.resolved_at_us is None:
            changes.append(Change(ChangeKind.DROPPED, alert))
        elif alert.state is not State.RESOLVED:
            ended = _resolved(alert, now, RULE_GONE)
            course = replace(ended.course, holds=False, phase_us=now.steady_us)
            kept.append(replace(ended, course=course))
            changes.append(Change(ChangeKind.RESOLVED, kept[-1]))
        elif now.steady_us - alert.course.phase_us < KEPT_FOR_US:
            kept.append(alert)
        else:
            changes.append(Change(ChangeKind.FORGOTTEN, alert))
    return Stepped(tuple(kept), tuple(changes))


def _signals_of(rule: Rule, outcome: Outcome) -> dict[str, Signal]:
    """What holds, by the fingerprint of its alert: that the rule cannot be judged, too."""
    match outcome:
        case Signals():
            found = {fingerprint_of(rule.name, one.labels): one for one in outcome.holds}
            if rule.withheld is Policy.TELL:
                for place, reason in outcome.withheld:
                    found |= _of_rule(rule, State.WITHHELD, reason, place)
            return found
        case NoData() if rule.no_data is Policy.TELL:
            return _of_rule(rule, State.NO_DATA, outcome.reason)
        case EvalError() if rule.eval_error is Policy.TELL:
            return _of_rule(rule, State.EVAL_ERROR, outcome.reason)
        case Withheld() if rule.withheld is Policy.TELL:
            return _of_rule(rule, State.WITHHELD, outcome.reason)
    return {}


def _of_rule(
    rule: Rule, state: State, reason: str, place: Mapping[str, str] | None = None
) -> dict[str, Signal]:
    labels = {**(place or {}), **rule.fixed_labels, OUTCOME: state.value}
    return {fingerprint_of(rule.name, labels): Signal(labels, None, reason, {"matched": 1})}


def _unknown(alert: Alert, outcome: Outcome) -> str | None:
    """Why nobody knows whether an alert's condition holds; None when it was seen not to."""
    if OUTCOME in alert.labels:
        return None  # The rule was judged, or hindered by something else: that is known.
    if isinstance(outcome, Signals):
        return outcome.unknown.get(alert.fingerprint)
    return outcome.reason


def _is_gone(alert: Alert, gone: Sequence[Mapping[str, str]]) -> bool:
    """Do its labels name something that is not there any more, or a part of it?"""
    return any(
        place and all(alert.labels.get(name) == value for name, value in place.items())
        for place in gone
    )


class _Life:
    """One step of the alerts of a rule."""

    def __init__(
        self, rule: Rule, now: Now, owners: Sequence[Owned], polled: PolledFacts | None
    ) -> None:
        self._rule = rule
        self._owners = owners
        self._polled = polled
        self._now = now
        self._kept: list[Alert] = []
        self._changes: list[Change] = []

    def stepped(self) -> Stepped:
        """What came of it."""
        kept = sorted(self._kept, key=lambda alert: alert.fingerprint)
        return Stepped(tuple(kept), tuple(self._changes))

    def begins(self, fingerprint: str, signal: Signal) -> None:
        """A condition holds that did not."""
        now, since_us = self._now, signal.since_us
        lasted_us = 0 if since_us is None else max(0, now.data_us - since_us)
        alert = Alert(
            fingerprint,
            self._rule.name,
            self._rule.severity.value,
            owner_of(self._rule, signal.labels, self._owners),
            dict(signal.labels),
            {},
            signal.figures,
            State.PENDING,
            reason=_reason(signal),
            active_at_us=_began_us(signal, now),
            fired_at_us=None,
            resolved_at_us=None,
            last_true_us=now.data_us,
            course=Course(phase_us=now.steady_us - lasted_us),
        )
        self._waits(alert, signal, ChangeKind.BEGUN)

    def holds(self, alert: Alert, signal: Signal) -> None:
        """The condition of a known alert holds."""
        now, course = self._now, _known_again(alert.course, self._now)
        kind = None if course == alert.course else ChangeKind.NOTED
        if not course.holds:
            course = replace(course, holds=True, phase_us=now.steady_us)
            kind = ChangeKind.NOTED
        seen = replace(
            alert,
            figures=signal.figures,
            annotations=_without_observed(alert) | self._seen(alert.labels, signal),
            last_true_us=max(alert.last_true_us, now.data_us),
            reason=FLAPPING if course.is_flapping else _reason(signal),
            severity=self._rule.severity.value,
            owner=owner_of(self._rule, alert.labels, self._owners),
            course=course,
        )
        if alert.state is State.PENDING and _began_us(signal, now) < alert.active_at_us:
            seen = replace(seen, active_at_us=_began_us(signal, now))
        if (seen.owner, seen.severity, seen.active_at_us) != (
            *(alert.owner, alert.severity, alert.active_at_us),
        ):
            kind = ChangeKind.NOTED
        if alert.state is State.RESOLVED:
            seen = replace(
                seen, state=State.PENDING, active_at_us=_begins_anew_us(alert, signal, now)
            )
            self._waits(seen, signal, ChangeKind.BEGUN)
        elif alert.state is State.PENDING:
            self._waits(seen, signal, kind)
        elif course.is_flapping and now.steady_us - course.phase_us >= FLAP_WINDOW_US:
            rested = replace(course, is_flapping=False, changes_us=())
            self._keep(replace(seen, course=rested, reason=_reason(signal)), ChangeKind.RESTED)
        else:
            self._keep(seen, kind)

    def _waits(self, alert: Alert, signal: Signal, kind: ChangeKind | None) -> None:
        """A pending alert, which fires when its condition has held for long enough."""
        now = self._now
        wait_us = self._rule.for_us
        if OUTCOME in alert.labels:
            wait_us = max(wait_us, PATIENCE_US)
        if now.steady_us - alert.course.phase_us < wait_us:
            self._keep(self._with_texts(alert, signal) if kind is ChangeKind.BEGUN else alert, kind)
            return
        course = _changed(alert.course, now)
        state = State(alert.labels.get(OUTCOME, State.FIRING))
        fired = replace(
            alert, state=state, fired_at_us=now.data_us, resolved_at_us=None, course=course
        )
        if course.is_flapping:
            fired = replace(fired, reason=FLAPPING)
        kind = ChangeKind.FLAPPING if course.is_flapping else ChangeKind.FIRED
        self._keep(self._with_texts(fired, signal), kind)

    def holds_not(self, alert: Alert) -> None:
        """The condition was seen not to hold."""
        now, course = self._now, _known_again(alert.course, self._now)
        is_noted = course != alert.course
        if course.holds:
            course, is_noted = replace(course, holds=False, phase_us=now.steady_us), True
        seen = replace(alert, course=course)
        rested_us = now.steady_us - course.phase_us
        match alert.state:
            case State.RESOLVED if rested_us >= KEPT_FOR_US:
                self._changes.append(Change(ChangeKind.FORGOTTEN, alert))
            case State.RESOLVED:
                self._keep(seen, ChangeKind.NOTED if is_noted else None)
            case State.PENDING if alert.resolved_at_us is None:
                self._changes.append(Change(ChangeKind.DROPPED, alert))
            case State.PENDING:
                self._keep(replace(seen, state=State.RESOLVED), ChangeKind.DROPPED)
            case _:
                self._rests(seen, rested_us, ChangeKind.NOTED if is_noted else None)

    def _rests(self, alert: Alert, rested_us: int, kind: ChangeKind | None) -> None:
        """A firing alert whose condition no longer holds: it is resolved when that has lasted."""
        now, course = self._now, alert.course
        wait_us = FLAP_WINDOW_US if course.is_flapping else self._rule.keep_firing_for_us
        if rested_us < wait_us:
            reason = FLAPPING if course.is_flapping else RESTS
            self._keep(replace(alert, reason=reason), kind)
            return
        ended = _resolved(alert, now, "")
        if course.is_flapping:
            ended = replace(ended, course=replace(ended.course, is_flapping=False, changes_us=()))
        elif ended.course.is_flapping:
            held = replace(alert, reason=FLAPPING, course=ended.course)
            self._keep(held, ChangeKind.FLAPPING)
            return
        self._keep(ended, ChangeKind.RESOLVED)

    def ends(self, alert: Alert, reason: str) -> None:
        """What the alert is about is gone."""
        if alert.state is State.RESOLVED:
            self.holds_not(alert)
        elif alert.state is State.PENDING and alert.resolved_at_us is None:
            self._changes.append(Change(ChangeKind.DROPPED, alert))
        else:
            ended = _resolved(alert, self._now, reason)
            course = replace(
                ended.course,
                holds=False,
                phase_us=self._now.steady_us,
                unknown_us=None,
                is_flapping=False,
            )
            self._keep(replace(ended, course=course), ChangeKind.RESOLVED)

    def is_unknown(self, alert: Alert, why: str) -> None:
        """Nobody knows whether the condition holds: the alert stays where it is."""
        if alert.state is State.RESOLVED:
            self.holds_not(alert)
            return
        course, reason = alert.course, unknown_now(why)
        if course.unknown_us is not None:
            self._keep(replace(alert, reason=reason), None)
            return
        course = replace(course, unknown_us=self._now.steady_us)
        self._keep(replace(alert, course=course, reason=reason), ChangeKind.NOTED)

    def _with_texts(self, alert: Alert, signal: Signal) -> Alert:
        return with_texts(self._rule, replace(alert, annotations=self._seen(alert.labels, signal)))

    def _seen(self, labels: Mapping[str, str], signal: Signal) -> dict[str, str]:
        """The evidence of a signal, and its precision where it was polled."""
        shown = {"evidence": signal.evidence}
        said = "" if self._polled is None else self._polled.said_of(labels, signal.figures)
        return shown | {OBSERVED: said} if said else shown

    def _keep(self, alert: Alert, kind: ChangeKind | None) -> None:
        self._kept.append(alert)
        if kind is not None:
            self._changes.append(Change(kind, alert))


def with_texts(rule: Rule, alert: Alert) -> Alert:
    """An alert with the texts of its rule, with the figures that it has now. A step makes them when
    an alert begins and when it fires; who shows it later makes them anew.
    """
    evidence = alert.annotations.get("evidence", "")
    observed = alert.annotations.get(OBSERVED)
    given: dict[str, str | int] = {
        ALERT_NAME: rule.name,
        "severity": alert.severity,
        "owner": alert.owner,
        "evidence": evidence,
        "since": since_text(alert.active_at_us),
        "moment": since_text(alert.last_true_us),
    }
    templates = rule.annotations
    if OUTCOME in alert.labels:
        templates = {"summary": not_judged(rule.name, alert.labels[OUTCOME])}
    texts = rendered(templates, labels=alert.labels, figures=alert.figures, given=given)
    table = "" if OUTCOME in alert.labels else rule.tables[0]
    annotations = {**links_of(alert, table), **texts, "evidence": evidence}
    return replace(
        alert, annotations=annotations | {OBSERVED: observed} if observed else annotations
    )


def _without_observed(alert: Alert) -> dict[str, str]:
    return {name: text for name, text in alert.annotations.items() if name != OBSERVED}


def _reason(signal: Signal) -> str:
    return signal.evidence if OUTCOME in signal.labels else ""


def _began_us(signal: Signal, now: Now) -> int:
    """Since when it is so: the earliest beginning that is proven, else this cycle."""
    proven = (signal.since_us, signal.began_us)
    return min([now.data_us, *(moment for moment in proven if moment is not None)])


def _begins_anew_us(alert: Alert, signal: Signal, now: Now) -> int:
    """As `_began_us`, of an alert that was resolved; of a trouble that was there before it is this
    cycle, for what somebody said of an alert is kept by its fingerprint and beginning.
    """
    began_us = _began_us(signal, now)
    is_new = alert.resolved_at_us is not None and began_us > alert.resolved_at_us
    return began_us if is_new else now.data_us


def _known_again(course: Course, now: Now) -> Course:
    """Time in which nobody knew counts for nothing. A wait that would begin later than now, by a
    clock that is another one by now, begins now.
    """
    phase_us = course.phase_us
    if course.unknown_us is not None:
        phase_us += max(0, now.steady_us - course.unknown_us)
    return replace(course, unknown_us=None, phase_us=min(phase_us, now.steady_us))


def _resolved(alert: Alert, now: Now, reason: str) -> Alert:
    return replace(
        alert,
        state=State.RESOLVED,
        reason=reason,
        resolved_at_us=now.data_us,
        course=_changed(alert.course, now),
    )


def _changed(course: Course, now: Now) -> Course:
    """After it began to fire, or was resolved."""
    begin_us = now.steady_us - FLAP_WINDOW_US
    recent = (*(one for one in course.changes_us if one > begin_us), now.steady_us)
    flaps = course.is_flapping or len(recent) >= FLAP_CHANGES
    return replace(course, changes_us=recent[-FLAP_CHANGES:], is_flapping=flaps)
