"""Reads the notification file: receivers, allowed hosts, routes and owners.

Without routes the only receiver gets everything; without inhibitions those that are shipped hold.

    allow_hosts = ["hooks.slack.com"]

    [[receivers]]
    name = "on-call"
    kind = "slack"
    url_env = "SLACK_WEBHOOK"

    [routing]
    receiver = "on-call"
    group_by = ["cluster", "group", "alertname"]

    [[owners]]
    owner = "payments team"
    matchers = ['group=~"pay.*"']

Invariant: a file is right as a whole, or nothing of it is used. Absent on purpose: sending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.foundation.errors import ConfigError, Faulty, MustBe
from pipelines.alerting.alert_context import Bases, Owned, absolute, owners_of
from pipelines.alerting.alerts import Notice
from pipelines.alerting.channels.opening import channels_of
from pipelines.alerting.channels.receivers import Alertmanager, Receivers, read_receivers
from pipelines.alerting.outbox.courier import Channel
from pipelines.alerting.outbox.outcomes import Outcome
from pipelines.alerting.routing import NAMED_MAX, Routing, routing_of
from pipelines.alerting.rule_files import ROUTING, read_document
from pipelines.alerting.rules import Fault
from pipelines.alerting.runner import NotificationSettings
from pipelines.base.settings import SECOND_US


class TellingFile:
    """The settings in a file, which is read when it has changed."""

    def __init__(
        self, file: Path, environment: Mapping[str, str], threads: ThreadPoolExecutor
    ) -> None:
        self._file = file
        self._environment = environment
        self._threads = threads
        self._secrets: tuple[Path, ...] = ()

    @property
    def files(self) -> Sequence[Path]:
        """The file, and those of the secrets that it names: they are changed by others."""
        return (self._file, *self._secrets)

    def read(self) -> NotificationSettings:
        """What it says; raises ConfigError."""
        receivers = read_receivers(self._file)
        self._secrets = _files_of_secrets(receivers)
        channels = channels_of(receivers, self._environment, self._threads)
        bases = Bases(receivers.external_url, receivers.lab_url, receivers.runbooks_url)
        linked = {name: Linked(channel, bases) for name, channel in channels.items()}
        file = str(self._file)
        return NotificationSettings(routing_in(file, receivers), linked, owners_in(file, receivers))


def _files_of_secrets(receivers: Receivers) -> tuple[Path, ...]:
    named = (
        getattr(receiver, key, None)
        for receiver in receivers.receivers
        for key in ("url_file", "bearer_file", "routing_key_file", "password_file")
    )
    return tuple(Path(one).expanduser() for one in named if one is not None)


@dataclass(frozen=True, slots=True)
class Linked:
    """A channel whose notices have links that can be followed from anywhere."""

    channel: Channel
    bases: Bases

    @property
    def timeout_s(self) -> float:
        """The channel's."""
        return self.channel.timeout_s

    async def send(self, notice: Notice) -> Outcome:
        """Send it by the channel."""
        return await self.channel.send(absolute(notice, self.bases))


class NoReceivers:
    """No file: alerts live, and nobody is notified."""

    @property
    def files(self) -> Sequence[Path]:
        """None."""
        return ()

    def read(self) -> None:
        """Nobody."""


def routing_in(file: str, receivers: Receivers) -> Routing:
    """The routes of a file of receivers; with one receiver and no routes it gets everything."""
    names = [one.name for one in receivers.receivers]
    document = receivers.routing
    if document is None:
        if len(names) != 1:
            raise MustBe("routing", len(names), "a table that says who is notified of what", file)
        document = {"receiver": names[0]}
    if "inhibit" not in document:
        document = document | {"inhibit": _shipped_inhibitions()}
    checked = routing_of(file, document, names)
    if checked.routing is None:
        raise Faulty("routing", "; ".join(map(str, checked.faults)), file)
    _check_that_alerts_outlast_pauses(file, receivers, checked.routing)
    return _with_all_named(receivers, checked.routing)


def owners_in(file: str, receivers: Receivers) -> tuple[Owned, ...]:
    """The owners of a file of receivers; raises ConfigError with all that is wrong with them."""
    owners, faults = owners_of(file, receivers.owners)
    if faults:
        raise Faulty("owners", "; ".join(map(str, faults)), file)
    return owners


def faults_of_receivers(file: Path) -> tuple[Fault, ...] | None:
    """What is wrong with a file of receivers, without its secrets; None: it is none."""
    document = read_document(file)
    if isinstance(document, Fault) or not document.keys() & {"receivers", "owners"}:
        return None
    try:
        receivers = read_receivers(file)
        faults = list(owners_of(str(file), receivers.owners)[1])
    except ConfigError as error:
        return (_as_fault(file, error),)
    try:
        routing_in(str(file), receivers)
    except ConfigError as error:
        faults.append(_as_fault(file, error))
    return tuple(faults)


def _as_fault(file: Path, error: ConfigError) -> Fault:
    value = "" if error.value == "***" else repr(error.value)[:120]
    return Fault(str(file), "", error.key, value, error.allowed)


def _with_all_named(receivers: Receivers, routing: Routing) -> Routing:
    """Alertmanager opens and closes each alert by itself: what is not named there does not fire."""
    whole = {one.name for one in receivers.receivers if isinstance(one, Alertmanager)}
    otherwise, *routes = (
        replace(route, alerts_max=NAMED_MAX) if route.receiver in whole else route
        for route in (routing.otherwise, *routing.routes)
    )
    return replace(routing, otherwise=otherwise, routes=tuple(routes))


def _check_that_alerts_outlast_pauses(file: str, receivers: Receivers, routing: Routing) -> None:
    """What goes on is sent to Alertmanager again before it counts it as ended, even when one notice
    is lost or late.
    """
    for one in receivers.receivers:
        if not isinstance(one, Alertmanager):
            continue
        for route in (*routing.routes, routing.otherwise):
            pause_s = route.repeat_interval_us // SECOND_US
            if route.receiver == one.name and one.valid_for_s <= 2 * pause_s:
                wanted = (
                    f"more than {2 * pause_s}, twice the repeat_interval of a route to {one.name}: "
                    "else what goes on ends there between two notices"
                )
                raise MustBe("valid_for_s", one.valid_for_s, wanted, file)


def _shipped_inhibitions() -> list[dict[str, Any]]:
    document = read_document(ROUTING)
    assert not isinstance(document, Fault), document
    inhibitions: list[dict[str, Any]] = document["inhibit"]
    return inhibitions
