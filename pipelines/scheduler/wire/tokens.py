"""Checks access tokens in constant time and without I/O.

Up to XXL-Job 3.4 one token is everybody's. From 3.5 each executor has its own, and says in a second
header who it is. Here both hold: an executor that has a token of its own is let in by that alone,
whatever the common one is; and a token of its own speaks for no other executor.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.foundation.errors import MustBe

TOKEN_HEADER: Final = "XXL-JOB-ACCESS-TOKEN"  # noqa: S105 - a name
APP_HEADER: Final = "XXL-JOB-APPNAME"
TOKEN_CHARS_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class Speaker:
    """The application that a token speaks for."""

    app: str | None
    """An executor's name; None: the common token, which speaks for all that have none of their
    own."""


class Tokens:
    """The tokens that a party lets in. Printed, it shows none."""

    def __init__(
        self,
        common: str | None,
        of_apps: Mapping[str, str] | None = None,
        *,
        may_be_open: bool = True,
    ) -> None:
        """`common` None and no token of an executor: everybody may speak, if it `may_be_open`, and
        else nobody. Raises ConfigError for an empty token, and for one that two have: it would not
        say who speaks.
        """
        self._common = None if common is None else _digest(common)
        self._may_be_open = may_be_open
        self._of_apps: dict[str, bytes] = {}
        self.renew({} if of_apps is None else of_apps)
        if common is not None:
            _check(common)

    def renew(self, of_apps: Mapping[str, str]) -> None:
        """From now on these executors have tokens of their own, and no others. Raises ConfigError
        as above, and then changes nothing.
        """
        for token in of_apps.values():
            _check(token)
        own = {app: _digest(token) for app, token in of_apps.items()}
        given = [*own.values(), *([] if self._common is None else [self._common])]
        if len(set(given)) < len(given):
            raise MustBe("access token", "***", "one that nobody else has")
        self._of_apps = own

    @property
    def is_open(self) -> bool:
        """Is there no token that could be asked for?"""
        return self._common is None and not self._of_apps

    @property
    def has_own(self) -> bool:
        """Has an executor a token of its own?"""
        return bool(self._of_apps)

    def speaker(self, app: str, token: str) -> Speaker | None:
        """Who says so, by the two headers (empty when absent); None: nobody who may.

        All tokens are compared whatever the first ones say: the time it takes shows only how many
        there are.
        """
        if self.is_open:
            return Speaker(app=None) if self._may_be_open else None
        digest = _digest(token[: TOKEN_CHARS_MAX + 1])
        matches = [
            name for name, kept in self._of_apps.items() if hmac.compare_digest(kept, digest)
        ]
        is_common = self._common is not None and hmac.compare_digest(self._common, digest)
        if matches:
            return Speaker(matches[0]) if app in {"", matches[0]} else None
        return Speaker(app=None) if is_common and app not in self._of_apps else None

    def may_speak_for(self, speaker: Speaker, app: str) -> bool:
        """Whether an accepted caller may report about this executor."""
        if speaker.app is not None:
            return speaker.app == app
        return app not in self._of_apps


def _check(token: str) -> None:
    if not token.strip() or len(token) > TOKEN_CHARS_MAX:
        raise MustBe("access token", "***", f"1 to {TOKEN_CHARS_MAX} characters")


def _digest(token: str) -> bytes:
    """Of one length whatever the token's is."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
