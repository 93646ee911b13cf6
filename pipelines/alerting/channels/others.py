"""Sends notices through Apprise to services without a channel of their own here.

apprise knows neither that an alert is resolved nor that it was sent before. It looks names up and
connects by itself; we allow the service by its name, check the host of one that has its own, and
switch off redirects, templates and files. Some services read a text as markup, and call people whom
it names, whatever format they are given: so a space without width stands behind what would begin a
mention, a tag, a link or markup. Links that are ours stay.
"""

from __future__ import annotations

import asyncio
import logging
import re
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from engine.foundation.errors import ConfigError, ConnectFailed, MustBe, RuleBroken
from pipelines.alerting.alerts import Notice
from pipelines.alerting.channels.notice_text import (
    facts_of,
    headline_of,
    left_out,
    links_of,
    shortened,
    title_of,
    worst_first,
)
from pipelines.alerting.outbox.outcomes import Delivered, Failed, Outcome, Trouble
from pipelines.base.outgoing_addresses import Hosts, look_up
from pipelines.base.secrets import Secret

TITLE_CHARS_MAX: Final = 200
BODY_CHARS_MAX: Final = 8_000
ALERTS_MAX: Final = 20
BREAK: Final = "\u200b"
"""A space without width."""
_BEGINS: Final = re.compile(
    r"""@                          # @everyone, and @name
    | <(?=[^\s\d=])               # <@1>, <!channel>, <#1>, <script>
    | [*`]
    | (?<![^\W_])_ | _(?![^\W_])  # within a word it is a part of a name
    | ~(?=~) | \|(?=\|)
    | \](?=[(\[:])                # [text](address)
    | :(?=//)                     # an address""",
    re.VERBOSE,
)
_BEGINS_A_LINE: Final = re.compile(r"(?=\s*(?:[#>+=-]|\d+[.)]))")


@dataclass(frozen=True, slots=True)
class OthersSettings:
    """Which service of apprise."""

    url: Secret
    services: frozenset[str]
    """Those that the receivers' file allows, as apprise begins their addresses."""


def title_and_text(notice: Notice) -> tuple[str, str]:
    """What apprise is given. Pure."""
    shown = worst_first(notice.alerts)[:ALERTS_MAX]
    lines = []
    for alert in shown:
        lines.append(inert(headline_of(alert, 500)))
        lines += [f"  {name}: {inert(value)}" for name, value in facts_of(alert, 500)]
        lines += [f"  {name}: {url}" for name, url in links_of(alert)]
    if more := left_out(notice, len(shown)):
        lines.append(f"and {more:,} more")
    text = shortened("\n".join(lines), BODY_CHARS_MAX)
    title = shortened(inert(title_of(notice, TITLE_CHARS_MAX)), TITLE_CHARS_MAX)
    return title.encode("utf-8", "replace").decode(), text.encode("utf-8", "replace").decode()


def inert(text: str) -> str:
    """A text, on one line, that no service reads as more than that. Pure."""
    broken = _BEGINS.sub(lambda found: f"{found[0]}{BREAK}", text)
    return f"{BREAK}{broken}" if _BEGINS_A_LINE.match(broken) else broken


class OthersChannel:
    """One service of apprise. Raises ConfigError for one that is unknown or not allowed."""

    def __init__(
        self, settings: OthersSettings, hosts: Hosts, *, timeout_s: float, threads: Executor
    ) -> None:
        self.timeout_s: Final = timeout_s
        self._hosts = hosts
        self._threads = threads
        self._service = _opened(settings, timeout_s)
        self._host = _own_host(self._service)
        if self._host is not None:
            hosts.check(self._host)

    async def send(self, notice: Notice) -> Outcome:
        """Tell the service once."""
        title, text = title_and_text(notice)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._notify, title, text)

    def _notify(self, title: str, text: str) -> Outcome:
        from apprise import NotifyFormat  # noqa: PLC0415 - loads a hundred services

        if self._host is not None:
            try:
                self._hosts.checked(self._host, look_up(self._host, 0))
            except ConnectFailed as error:
                return Failed(Trouble.UNREACHABLE, str(error))
            except ConfigError as error:
                return Failed(Trouble.NOT_SET_UP, str(error))
        if self._service.notify(title=title, body=text, body_format=NotifyFormat.TEXT):
            return Delivered()
        return Failed(Trouble.UNREACHABLE, "the service did not take it; apprise says no more")


def _opened(settings: OthersSettings, timeout_s: float) -> Any:
    from apprise import Apprise, AppriseAsset  # noqa: PLC0415 - loads a hundred services
    from apprise.common import PersistentStoreMode  # noqa: PLC0415

    # Both log addresses, which hold secrets here, when somebody asks them to log everything.
    for library in ("apprise", "urllib3", "requests"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    address = settings.url.reveal()
    service = address.partition("://")[0].lower()
    if service not in settings.services:
        raise MustBe("service", service[:20], "one of allow_services", settings.url.origin)
    asset = AppriseAsset(
        storage_mode=PersistentStoreMode.MEMORY, allow_templates=False, service_timeout=timeout_s
    )
    asset.http_redirects = False
    found = Apprise.instantiate(address, asset=asset)
    if found is None:
        raise MustBe("service", service, "an address that apprise knows", settings.url.origin)
    if getattr(found, "redirects", False):
        raise RuleBroken("redirect", "yes", f"redirects are not followed ({settings.url.origin})")
    return found


def _own_host(service: Any) -> str | None:
    """The host that a service's address names; None for one that has its own."""
    if not {"host", "domain"} & set(service.template_tokens):
        return None
    return str(getattr(service, "host", None) or "")
