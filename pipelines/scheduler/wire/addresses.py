"""Parses executor addresses and rejects those to which no request may be sent.

Whoever has a token may register an address, to which the centre will send requests. So link-local
ones (the credentials of clouds), multicast and unspecified ones are refused. A name is looked up
once, all its addresses are checked, and `client` connects to one that was. Pure but for `look_up`.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from engine.foundation.errors import ConfigError, MustBe
from pipelines.base.outgoing_addresses import is_allowed
from pipelines.scheduler.wire.messages import ADDRESS_CHARS_MAX


@dataclass(frozen=True, slots=True)
class Address:
    """A place that speaks the wire: an executor, or an admin."""

    text: str
    """As it was reported: that is what the registry and the routing compare."""
    scheme: str
    host: str
    """A name, or an address without brackets."""
    port: int
    path: str
    """Begins and ends with a slash."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Raises ConfigError for what is no address, or one that is never asked."""
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise _wrong(text, "http://HOST:PORT/") from error
        if not _is_plain(text, parts) or port == 0:
            raise _wrong(text, "http://HOST:PORT/, without user, query and fragment")
        host = (parts.hostname or "").removesuffix(".")
        if not host.strip("."):
            raise _wrong(text, "http://HOST:PORT/, with a host")
        if _is_number(host) and not is_allowed(host, may_be_private=True):
            raise _wrong(text, "an address that an executor can have")
        return cls(
            text,
            parts.scheme,
            host,
            port or (443 if parts.scheme == "https" else 80),
            parts.path.rstrip("/") + "/",
        )

    @property
    def is_name(self) -> bool:
        """Must it be looked up?"""
        return not _is_number(self.host)

    @property
    def authority(self) -> str:
        """What the header Host says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def chosen(self, found: list[str]) -> str:
        """The address to connect to, of those that the name has. Raises ConfigError when one of
        them is never asked."""
        if not all(is_allowed(address, may_be_private=True) for address in found):
            raise _wrong(self.text, "a name that leads where an executor can be")
        return found[0]


def _is_plain(text: str, parts: SplitResult) -> bool:
    is_written_well = (
        len(text) <= ADDRESS_CHARS_MAX
        and text.isascii()
        and text.isprintable()
        and not set(text) & set(" ,\\<>\"'`{}|^%")
    )
    is_only_a_place = not (parts.username or parts.password or "@" in parts.netloc) and not (
        parts.query or parts.fragment or "?" in text or "#" in text
    )
    is_of_the_web = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return is_written_well and is_only_a_place and is_of_the_web and ".." not in parts.path


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _wrong(text: str, allowed: str) -> ConfigError:
    return MustBe("executor address", text[:ADDRESS_CHARS_MAX], allowed)
