"""Parses routes, which assign alerts to receivers, and inhibitions, which mute alerts.

Place in the walk: a document (TOML that somebody has read) → routing → grouping.

    receiver = "mail"                       # of all that no route takes
    group_by = ["cluster", "group", "alertname"]
    [[route]]
    matchers = ['severity="critical"']
    receiver = "pager"
    continue = true                         # the routes after it are asked as well
    [[inhibit]]
    source = ['alertname="BrokerSilent"']   # while one of these fires,
    target = ['broker!=""']                 # nobody is notified of these,
    equal = ["cluster", "broker"]           # if both have these labels alike

Invariant: of a document with faults nothing is taken; each names file, place, key, value and what
to do. An alert that is source and target of the same inhibition is not muted by it, or two would
mute each other; nor do two of different ones. Absent on purpose: what receivers are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pipelines.alerting.alerts import ALERT_NAME, Alert, State
from pipelines.alerting.conditions import span_us, unknown_name
from pipelines.alerting.matchers import (
    Matcher,
    MatcherFault,
    all_match,
    labels_of,
    matchers_of,
    values_of,
)
from pipelines.alerting.rules import Fault, Given
from pipelines.base.settings import DAY_US, HOUR_US, MINUTE_US, SECOND_US

INTERVAL_MAX_US: Final = 15 * MINUTE_US
"""A group is notified again within half the time for which a resolved alert is remembered."""
NAMED_MAX: Final = 10_000
"""Alerts that one notice may be asked to name."""


@dataclass(frozen=True, slots=True)
class Route:
    """Which alerts go to a receiver, and how they are put together."""

    receiver: str
    matchers: tuple[Matcher, ...] = ()
    goes_on: bool = False
    """Are the routes after it asked as well?"""
    group_by: tuple[str, ...] = ("cluster", "group", ALERT_NAME)
    group_wait_us: int = 30 * SECOND_US
    """From the first alert of a group to its first notice, which has all that came meanwhile."""
    group_interval_us: int = 5 * MINUTE_US
    """From a notice of a group to the next one, when something has changed."""
    repeat_interval_us: int = 4 * HOUR_US
    """From a notice to the next one, when nothing has."""
    send_resolved: bool = True
    alerts_max: int = 50
    """How many alerts of a group a notice names; the others are counted. A receiver that opens and
    closes each alert by itself needs all: 10000."""


@dataclass(frozen=True, slots=True)
class Inhibition:
    """Which alerts make which others needless."""

    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Routing:
    """Routes in the order in which they are asked, and the one of all else."""

    otherwise: Route
    routes: tuple[Route, ...] = ()
    inhibitions: tuple[Inhibition, ...] = ()
    receivers: frozenset[str] = frozenset()
    """All that there are, those without a route as well."""

    def has(self, receiver: str) -> bool:
        """Is there such a receiver?"""
        return receiver in self.receivers or receiver in {
            self.otherwise.receiver,
            *(route.receiver for route in self.routes),
        }

    def routes_of(self, labels: Mapping[str, str]) -> list[Route]:
        """The routes that alerts with these labels take."""
        found = []
        for route in self.routes:
            if all_match(route.matchers, labels):
                found.append(route)
                if not route.goes_on:
                    return found
        return found or [self.otherwise]


@dataclass(frozen=True, slots=True)
class CheckedRouting:
    """What came of a document."""

    routing: Routing | None
    faults: tuple[Fault, ...] = field(default=())


def inhibited(firing: Iterable[Alert], inhibitions: Sequence[Inhibition]) -> dict[str, str]:
    """Fingerprints of the alerts that others make needless, and the name of one of these.

    Only what fires makes others needless, not that its rule cannot be judged; and nothing that an
    earlier inhibition makes needless itself: so each chain ends at an alert that is sent.
    """
    labelled = [(alert, labels_of(alert)) for alert in firing]
    found: dict[str, str] = {}
    for one in inhibitions:
        sources: dict[tuple[str, ...], str] = {}
        fingerprints = set()
        for alert, labels in labelled:
            if alert.state is State.FIRING and all_match(one.source, labels):
                if alert.fingerprint not in found:
                    sources.setdefault(values_of(labels, one.equal), alert.rule)
                fingerprints.add(alert.fingerprint)
        if not sources:
            continue
        for alert, labels in labelled:
            if alert.fingerprint in found or alert.fingerprint in fingerprints:
                continue
            by = sources.get(values_of(labels, one.equal))
            if by is not None and all_match(one.target, labels):
                found[alert.fingerprint] = by
    return found


_OF_ROUTE: Final = (
    "receiver", "group_by", "group_wait", "group_interval", "repeat_interval", "send_resolved",
    "alerts_max",
)  # fmt: skip


def routing_of(
    file: str, document: Mapping[str, Any], receivers: Collection[str] | None = None
) -> CheckedRouting:
    """The routing that a document says, and all that is wrong with it.

    receivers: the names that there are; None: they are not known here.
    """
    given = _Given(file, receivers)
    given.only(document, (*_OF_ROUTE, "route", "inhibit"), "")
    otherwise = given.route(document, Route(""), "")
    routes = []
    for number, entry in enumerate(given.tables(document, "route", ""), 1):
        place = f"route {number}"
        given.only(entry, (*_OF_ROUTE, "matchers", "continue"), place)
        made = given.route(entry, otherwise, place)
        matchers = given.matchers(entry, "matchers", place)
        goes_on = given.truth(entry, "continue", place, usual=False)
        routes.append(replace(made, matchers=matchers, goes_on=goes_on))
    inhibitions = []
    for number, entry in enumerate(given.tables(document, "inhibit", ""), 1):
        place = f"inhibit {number}"
        given.only(entry, ("source", "target", "equal"), place)
        inhibitions.append(
            Inhibition(
                given.matchers(entry, "source", place),
                given.matchers(entry, "target", place),
                given.names(entry, "equal", (), place),
            )
        )
    if given.faults:
        return CheckedRouting(None, tuple(given.faults))
    named = frozenset(receivers or ())
    return CheckedRouting(Routing(otherwise, tuple(routes), tuple(inhibitions), named))


class _Given(Given):
    """A document of routes and inhibitions."""

    def __init__(self, file: str, receivers: Collection[str] | None) -> None:
        super().__init__(file)
        self._receivers = receivers

    def route(self, entry: Mapping[str, Any], usual: Route, place: str) -> Route:
        """A route without its matchers; what it does not say is as in `usual`."""
        receiver = entry.get("receiver", usual.receiver)
        if not isinstance(receiver, str) or not receiver:
            self.fault(entry, "receiver", place, "must name who is notified")
        elif self._receivers is not None and receiver not in self._receivers:
            there = dict.fromkeys(self._receivers)
            self.fault(entry, "receiver", place, unknown_name(receiver, there, "receiver"))
        named_max = entry.get("alerts_max", usual.alerts_max)
        is_count = isinstance(named_max, int) and not isinstance(named_max, bool)
        if not is_count or not 1 <= named_max <= NAMED_MAX:
            self.fault(entry, "alerts_max", place, f"must be a whole number, 1 to {NAMED_MAX}")
        return Route(
            str(receiver),
            group_by=self.names(entry, "group_by", usual.group_by, place),
            group_wait_us=self._span(entry, "group_wait", usual.group_wait_us, place),
            group_interval_us=self._span(entry, "group_interval", usual.group_interval_us, place),
            repeat_interval_us=self._span(
                entry, "repeat_interval", usual.repeat_interval_us, place
            ),
            send_resolved=self.truth(entry, "send_resolved", place, usual=usual.send_resolved),
            alerts_max=named_max if is_count else usual.alerts_max,
        )

    def _span(self, entry: Mapping[str, Any], key: str, usual: int, place: str) -> int:
        if key not in entry:
            return usual
        text = entry[key]
        found = span_us("0s" if text == "0" else text) if isinstance(text, str) else None
        most = {"repeat_interval": 30 * DAY_US}.get(key, INTERVAL_MAX_US)
        least = 0 if key == "group_wait" else SECOND_US
        if found is None or not least <= found <= most:
            shown = f"{most // MINUTE_US} minutes"
            self.fault(entry, key, place, f"must be a span of time like 30s or 5m, at most {shown}")
            return usual
        return found

    def truth(self, entry: Mapping[str, Any], key: str, place: str, *, usual: bool) -> bool:
        """True or false."""
        value = entry.get(key, usual)
        if not isinstance(value, bool):
            self.fault(entry, key, place, "must be true or false")
        return bool(value)

    def names(
        self, entry: Mapping[str, Any], key: str, usual: tuple[str, ...], place: str
    ) -> tuple[str, ...]:
        """A list of labels' names."""
        value = entry.get(key, list(usual))
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.fault(entry, key, place, "must be a list of labels, like ['cluster', 'group']")
            return usual
        return tuple(dict.fromkeys(value))

    def matchers(self, entry: Mapping[str, Any], key: str, place: str) -> tuple[Matcher, ...]:
        """A list of matchers."""
        try:
            return matchers_of(entry.get(key))
        except MatcherFault as fault:
            self.fault(entry, key, place, str(fault))
            return ()
