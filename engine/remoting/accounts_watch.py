"""Reloads changed accounts without a restart.

Place in the walk: beside the gate, each second (RocketMQ watches its file as well). A file that
cannot be read or makes no sense changes nothing: the accounts before stay in force.

Invariant: accounts are replaced together or not at all, between two requests; each change of the
file has one log line, and no secret is in it. Absent on purpose: certificates, and the step from a
party without accounts to one with them or back; those are for a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from engine.foundation.errors import ConfigError
from engine.foundation.units import SECOND_MS
from engine.remoting.accounts import Account, Accounts

LOOK_MS: Final = SECOND_MS
"""How often a party looks whether its accounts have changed."""

_log = logging.getLogger(__name__)


class AccountsSource(Protocol):
    """A file with accounts."""

    name: str

    def stamp(self) -> object:
        """Something that is another when the file was changed, removed or replaced."""
        ...

    def accounts(self) -> tuple[Account, ...]:
        """What the file says now. Raises ConfigError."""
        ...


class AccountsWatch:
    """The accounts in force of one party, and where they came from."""

    def __init__(
        self,
        source: AccountsSource,
        in_force: tuple[Account, ...],
        take: Callable[[Accounts], None],
    ) -> None:
        """`take` puts accounts in force."""
        self._source = source
        self._in_force = in_force
        self._take = take
        self._stamp: object = None

    def look(self) -> None:
        """Take up the accounts when the file is another than at the last look."""
        stamp = self._source.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            accounts = self._source.accounts()
            changes = changes_between(self._in_force, accounts)
            if changes:
                self._take(Accounts(accounts))
        except ConfigError as error:
            _log.error("accounts stay as they were, for their file is refused: %s", error)
            return
        self._in_force = accounts
        if changes:
            _log.info(
                "%d accounts of %s are in force: %s", len(accounts), self._source.name, changes
            )


def changes_between(before: tuple[Account, ...], after: tuple[Account, ...]) -> str:
    """What changes, by access key; empty when nothing does.

    Raises ConfigError for what a running party cannot take up.
    """
    if before == after:
        return ""
    if not before or not after:
        allowed = "some accounts" if before else "no accounts"
        raise ConfigError("accounts", len(after), f"{allowed} as at the start, or a restart")
    old = {account.credentials.access_key: account for account in before}
    new = {account.credentials.access_key: account for account in after}
    kinds = (
        ("added", [key for key in new if key not in old]),
        ("removed", [key for key in old if key not in new]),
        ("changed", [key for key in new if key in old and new[key] != old[key]]),
    )
    texts = [f"{kind} {', '.join(keys)}" for kind, keys in kinds if keys]
    return "; ".join(texts) or "another order"
