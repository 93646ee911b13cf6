"""Reads the receivers file: the receivers, their channels and the allowed hosts.

    allow_hosts = ["hooks.slack.com"]
    allow_private_hosts = ["alertmanager.internal"]
    external_url = "https://tidemark.example"

    [[receivers]]
    name = "on-call"
    kind = "slack"
    url_env = "SLACK_WEBHOOK"

Invariant: a file is right as a whole or refused with the place of what is wrong; secrets are read
from where it points, and never written in it. Absent on purpose: which alerts go to whom.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from engine.foundation.errors import Faulty, MustBe

RECEIVERS_MAX: Final = 100
RECIPIENTS_MAX: Final = 50
FILE_BYTES_MAX: Final = 1_048_576

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")]
HostName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,253}\Z")]
MailAddress = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._%+=-]{1,64}@[A-Za-z0-9.-]{1,253}\Z")]
Seconds = Annotated[float, Meta(gt=0, le=60)]
Port = Annotated[int, Meta(ge=1, le=65_535)]


class _Receiver(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind"):
    name: Name
    timeout_s: Seconds = 10.0


class Alertmanager(_Receiver, tag="alertmanager", frozen=True):
    """Alerts are pushed to its API v2."""

    url: str
    """Of Alertmanager, without the path of the API."""
    bearer_env: str | None = None
    bearer_file: str | None = None
    valid_for_s: Annotated[int, Meta(ge=60, le=7 * 86_400)] = 9 * 3_600
    """Longer than twice the pause between two notices of what goes on."""


class Webhook(_Receiver, tag="webhook", frozen=True):
    """Anything that takes Alertmanager's webhook, version 4."""

    url: str | None = None
    url_env: str | None = None
    url_file: str | None = None
    bearer_env: str | None = None
    bearer_file: str | None = None


class Slack(_Receiver, tag="slack", frozen=True):
    """An incoming webhook."""

    url_env: str | None = None
    url_file: str | None = None


class PagerDuty(_Receiver, tag="pagerduty", frozen=True):
    """A service with an Events API v2 integration."""

    routing_key_env: str | None = None
    routing_key_file: str | None = None
    url: str = "https://events.pagerduty.com/v2/enqueue"


class Mail(_Receiver, tag="mail", frozen=True):
    """A mail server and who is written to."""

    host: HostName
    sender: MailAddress
    recipients: Annotated[tuple[MailAddress, ...], Meta(min_length=1, max_length=RECIPIENTS_MAX)]
    port: Port = 587
    tls: Annotated[str, Meta(pattern=r"^(starttls|implicit|none)\Z")] = "starttls"
    user: str | None = None
    password_env: str | None = None
    password_file: str | None = None


class Others(_Receiver, tag="apprise", frozen=True):
    """A service that apprise knows."""

    url_env: str | None = None
    url_file: str | None = None


KINDS: Final = (Alertmanager, Webhook, Slack, PagerDuty, Mail, Others)
Receiver = Alertmanager | Webhook | Slack | PagerDuty | Mail | Others


class Receivers(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The file."""

    receivers: Annotated[tuple[Receiver, ...], Meta(max_length=RECEIVERS_MAX)] = ()
    allow_hosts: tuple[HostName, ...] = ()
    allow_private_hosts: tuple[HostName, ...] = ()
    allow_services: tuple[Name, ...] = ()
    """Of apprise, by what their addresses begin with: tgram, discord."""
    external_url: str = ""
    """Where people find the pages."""
    lab_url: str = ""
    """Where people find `tidemark lab`."""
    runbooks_url: str = ""
    """The place of the runbooks: the folder of `docs`, or what stands for it."""
    routing: dict[str, Any] | None = None
    """Which alerts go to whom, as `routing` reads it."""
    owners: tuple[dict[str, Any], ...] = ()
    """The owners of alerts, as `alert_context` reads them."""


def receivers_of(text: str, place: str) -> Receivers:
    """The receivers of a file; raises ConfigError with the place of a fault."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Faulty("receivers", f"TOML: {error}", place) from error
    try:
        found = msgspec.convert(document, Receivers)
    except msgspec.ValidationError as error:
        where, fault = _in_words(str(error), document)
        raise Faulty(where, fault, place) from error
    seen: set[str] = set()
    for receiver in found.receivers:
        if receiver.name in seen:
            raise MustBe("name", receiver.name, "a name that no other receiver has", place)
        seen.add(receiver.name)
    return found


def read_receivers(file: Path) -> Receivers:
    """The file's receivers; raises ConfigError when it cannot be read or is wrong."""
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise MustBe("receivers", str(file), f"a file of {FILE_BYTES_MAX:,} bytes at most")
        text = data.decode()
    except OSError as error:
        raise MustBe("receivers", str(file), f"a file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise MustBe("receivers", str(file), "a text in UTF-8") from error
    return receivers_of(text, str(file))


def _in_words(error: str, document: Mapping[str, Any]) -> tuple[str, str]:
    """Where it is wrong, and what would be right: with the receiver's name instead of its number.

    A value that is wrong is not shown: somebody may have written a secret where none belongs.
    """
    what, _, where = error.partition(" - at `")
    where = where.rstrip("`").removeprefix("$").lstrip(".") or "receivers"
    if number := re.match(r"receivers\[(\d+)\]", where):
        of = document.get("receivers", [])
        at = int(number[1])
        name = of[at].get("name") if at < len(of) and isinstance(of[at], dict) else None
        if isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
            where = where.replace(number[0], f"receiver {name}")
    if what.startswith("Invalid value"):  # Of the field that says which kind it is.
        what = f"one of {', '.join(str(kind.__struct_config__.tag) for kind in KINDS)}"
    return where, what[:300]
