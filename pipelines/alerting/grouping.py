"""Groups alerts into notices and decides when to send and repeat each notice.

Place in the walk: alerts that live → groups and notices → the outbox. A route puts alerts with
equal labels (`group_by`) into one group. Its first notice waits for what comes with its first
alert; more follow at most once an interval, when an alert fires that no notice has named, or a
named one is over; else the notice is repeated after the repeat interval, as long as something
fires. A route has at most GROUPS_MAX groups; what begins beyond them is one group more, the rest.

Alerts that are silenced, or that others make needless, are left out, but a receiver that got a
firing gets its end: or a pager would have it open for ever. So an alert that leaves its group is
over there at once, and one that a notice left out is sent again when it is no longer left out.

Invariant: the same groups, alerts and moment give the same notices with the same ids. A clock that
leaps brings a notice forward at most, and delays none beyond its wait. Absent on purpose: sending,
and clocks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from pipelines.alerting.alerts import Alert, Notice, State
from pipelines.alerting.life_cycle import with_texts
from pipelines.alerting.matchers import labels_of, values_of
from pipelines.alerting.routing import Route, Routing, inhibited
from pipelines.alerting.rules import Rule, Severity
from pipelines.alerting.silences import Silence, active, silenced_by
from pipelines.sentences.alert_reasons import ELSEWHERE, silenced
from pipelines.sentences.alert_reasons import inhibited as inhibited_by

GROUPS_MAX: Final = 50
"""Groups of a route that are notified separately; of more, the worst."""

_FIRES: Final = "fires"
_FLAPS: Final = "flaps"
_LEFT_OUT: Final = "left out"
_SEVERITIES: Final = {severity.value: rank for rank, severity in enumerate(Severity)}
_QUIET: Final = (State.PENDING, State.RESOLVED)


@dataclass(frozen=True, slots=True)
class Group:
    """Alerts of one route with equal labels, and what its receiver was sent about them."""

    key: str
    receiver: str
    labels: Mapping[str, str]
    began_us: int
    """When it began, µs of the process's clock, as all moments here."""
    due_us: int
    """When it is looked at next."""
    told_us: int | None = None
    """When its last notice was made; None: there was none yet."""
    number: int = 0
    """Notices so far."""
    told: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints of the alerts that its receiver knows as firing, and how it knows them: whether
    they flap, or that the last notice left them out."""


@dataclass(frozen=True, slots=True)
class Grouped:
    """What a step came to."""

    groups: Mapping[str, Group]
    notices: tuple[Notice, ...]
    muted: Mapping[str, str]
    """Fingerprints of alerts of which nobody is notified now, and why: for pages."""


@dataclass(slots=True)
class _Members:
    """The alerts of a group, now."""

    route: Route
    labels: Mapping[str, str]
    firing: list[Alert] = field(default_factory=list)
    """Those that somebody is to be notified of."""
    muted: set[str] = field(default_factory=set)
    over: dict[str, Alert] = field(default_factory=dict)
    """Those that no longer fire, by fingerprint."""
    has_left: bool = False
    """Whether another group notifies one of these: then its end is sent here first."""

    def add(self, alert: Alert, muted: Mapping[str, str]) -> None:
        """One alert more."""
        if alert.state in _QUIET:
            self.over[alert.fingerprint] = alert
        elif alert.fingerprint in muted:
            self.muted.add(alert.fingerprint)
        else:
            self.firing.append(alert)

    def take(self, others: _Members) -> None:
        """Those of another group."""
        self.firing += others.firing
        self.muted |= others.muted
        self.over |= others.over


def step(
    groups: Mapping[str, Group],
    alerts: Sequence[Alert],
    routing: Routing,
    *,
    silences: Iterable[Silence] = (),
    rules: Mapping[str, Rule] = MappingProxyType({}),
    now_us: int,
) -> Grouped:
    """Groups after a look at all alerts, and the notices to send.

    rules: by name; what a notice names gets the texts of its rule, with the figures of this moment.
    """
    firing = [alert for alert in alerts if alert.state not in _QUIET]
    muted = {
        fingerprint: inhibited_by(rule)
        for fingerprint, rule in inhibited(firing, routing.inhibitions).items()
    }
    standing = active(silences, now_us)
    if standing:
        for alert in firing:
            silence = silenced_by(labels_of(alert), standing)
            if silence is not None:
                muted[alert.fingerprint] = silenced(silence.author, silence.comment)
    kept: dict[str, Group] = {}
    notices = []
    members_of = _members(alerts, routing, muted, groups)
    _add_those_that_left(members_of, alerts, routing, groups, now_us=now_us)
    for key, members in sorted(members_of.items(), key=lambda one: (not one[1].has_left, one[0])):
        group, notice = _looked_at(groups.get(key), key, members, now_us)
        if group is not None:
            kept[key] = group
        if notice is not None:
            shown = [
                with_texts(rules[alert.rule], alert) if alert.rule in rules else alert
                for alert in notice.alerts
            ]
            notices.append(replace(notice, alerts=tuple(shown)))
    return Grouped(kept, tuple(notices), muted)


def _members(
    alerts: Sequence[Alert],
    routing: Routing,
    muted: Mapping[str, str],
    groups: Mapping[str, Group],
) -> dict[str, _Members]:
    """The alerts of each group, by its key."""
    found: dict[str, _Members] = {}
    keys: dict[tuple[int, tuple[str, ...]], str] = {}
    routes = (routing.otherwise, *routing.routes)
    places = {id(route): place for place, route in enumerate(routes)}
    rests = [_rest_key(route) for route in routes]
    for alert in alerts:
        if alert.state is State.PENDING and alert.resolved_at_us is None:
            continue
        labels = labels_of(alert)
        for route in routing.routes_of(labels):
            rest = rests[places[id(route)]]
            if rest in groups and alert.fingerprint in groups[rest].told:
                found.setdefault(rest, _Members(route, {})).add(alert, muted)
                continue
            values = values_of(labels, route.group_by)
            place = (places[id(route)], values)
            if place not in keys:
                named = {name: one for name, one in zip(route.group_by, values, strict=True) if one}
                keys[place] = _key(route, named)
                found.setdefault(keys[place], _Members(route, named))
            found[keys[place]].add(alert, muted)
    for route, rest in zip(routes, rests, strict=True):
        own = {keys[place] for place in keys if place[0] == places[id(route)]}
        _put_rest_together(found, sorted(own), route, rest, known=groups)
    return found


def _add_those_that_left(
    found: dict[str, _Members],
    alerts: Sequence[Alert],
    routing: Routing,
    groups: Mapping[str, Group],
    *,
    now_us: int,
) -> None:
    """Alerts that a receiver knows by a group in which they are no more: they are over there."""
    known = {alert.fingerprint: alert for alert in alerts}
    for key, group in groups.items():
        members = found.get(key)
        there = set() if members is None else {*members.over, *members.muted}
        there |= set() if members is None else {one.fingerprint for one in members.firing}
        left = [known[one] for one in group.told if one not in there and one in known]
        if not left or not routing.has(group.receiver):
            continue
        if members is None:
            members = found[key] = _Members(Route(group.receiver), group.labels)
        members.has_left = True
        for alert in left:
            ended_us = now_us if alert.resolved_at_us is None else alert.resolved_at_us
            reason = alert.reason if alert.state in _QUIET else ELSEWHERE
            members.over[alert.fingerprint] = replace(alert, resolved_at_us=ended_us, reason=reason)


def _put_rest_together(
    found: dict[str, _Members],
    own: Sequence[str],
    route: Route,
    rest: str,
    *,
    known: Mapping[str, Group],
) -> None:
    """Groups of a route that would be too many are one."""
    begun = sum(key in known for key in own)
    new = [key for key in own if key not in known and found[key].firing]
    room = max(0, GROUPS_MAX - begun)
    if len(new) <= room:
        return
    new.sort(key=lambda key: min(map(_worst_first, found[key].firing)))
    together = found.setdefault(rest, _Members(route, {}))
    for key in new[room:]:
        together.take(found.pop(key))


def _rest_key(route: Route) -> str:
    return f"{_key(route, {})}/rest"


def _key(route: Route, labels: Mapping[str, str]) -> str:
    """What identifies a group: its receiver, its route, and its labels."""
    matchers = ",".join(str(one) for one in route.matchers)
    return f"{route.receiver}/{{{matchers}}}:{json.dumps(labels, sort_keys=True)}"


def _looked_at(
    group: Group | None, key: str, members: _Members, now_us: int
) -> tuple[Group | None, Notice | None]:
    """A group after a look, None when it is over; and its notice, if it is time for one."""
    route = members.route
    if group is None:
        if not members.firing:
            return None, None
        due_us = now_us + route.group_wait_us
        group = Group(key, route.receiver, members.labels, now_us, due_us)
    # A clock that was set back delays nothing beyond the longest wait that there is.
    wait_us = route.group_wait_us if group.told_us is None else route.group_interval_us
    if not members.has_left and now_us < min(group.due_us, now_us + wait_us):
        latest_us = now_us + wait_us
        return (group if group.due_us <= latest_us else replace(group, due_us=latest_us)), None
    named = {alert.fingerprint: _how(alert) for alert in members.firing}
    over = [members.over[one] for one in group.told if one in members.over]
    still = {
        one: how for one, how in group.told.items() if one in members.muted and one not in named
    }
    is_new = any(group.told.get(one) != how for one, how in named.items())
    told_us = None if group.told_us is None else min(group.told_us, now_us)
    is_due = bool(named) and told_us is not None and now_us - told_us >= route.repeat_interval_us
    later = replace(group, due_us=now_us + route.group_interval_us, told={**still, **named})
    notice = None
    if is_new or is_due or (over and route.send_resolved):
        left_out = dict.fromkeys(still, _LEFT_OUT)
        later = replace(later, number=group.number + 1, told_us=now_us, told={**left_out, **named})
        notice = _notice(later, members, over if route.send_resolved else [], now_us)
    is_over = not later.told and not members.firing
    return (None if is_over else later), notice


def _how(alert: Alert) -> str:
    return _FLAPS if alert.course.is_flapping else _FIRES


def _notice(group: Group, members: _Members, over: Sequence[Alert], now_us: int) -> Notice:
    firing = sorted(members.firing, key=_worst_first)
    ended = [replace(alert, state=State.RESOLVED) for alert in sorted(over, key=_worst_first)]
    everything = (*firing, *ended)
    said = [
        (one.fingerprint, one.state.value, one.fired_at_us, one.resolved_at_us)
        for one in everything
    ]
    identity = json.dumps([group.key, group.began_us, group.number, said])
    named_max = members.route.alerts_max
    # When not all can be named, what is over has a share: a person waits for it.
    shares = min(len(ended), named_max // 2) if len(everything) > named_max else len(ended)
    named = (*firing[: named_max - shares], *ended[: max(shares, named_max - len(firing))])
    return Notice(
        hashlib.sha256(identity.encode()).hexdigest()[:32],
        group.receiver,
        group.key,
        group.labels,
        named,
        len(everything) - len(named),
        now_us,
    )


def _worst_first(alert: Alert) -> tuple[int, int, str]:
    fired_us = alert.fired_at_us if alert.fired_at_us is not None else 0
    return _SEVERITIES.get(alert.severity, len(_SEVERITIES)), fired_us, alert.fingerprint
