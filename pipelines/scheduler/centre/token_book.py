"""Keeps a centre's copy of executor access tokens in step with the database.

Tokens of groups change while centres run. Each reads them anew every RENEW_S, so that a change
holds everywhere after that.

Invariant: an executor is shown its own token, or the common one when it has none; never another's.
An address that is nobody's is not asked at all, as soon as a group has a token of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from engine.foundation.errors import ConfigError, ConnectFailed
from pipelines.database.database import Database, StoreUnavailable
from pipelines.scheduler.store import groups, registry
from pipelines.scheduler.wire.tokens import Tokens

RENEW_S: Final = 5.0
LOOK_AGAIN_S: Final = 1.0
"""For an address that is new, the database is asked at most so often."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """What is shown to an executor. Printed, it shows nothing."""

    app: str | None
    """The application whose own it is; None: the common one."""
    token: str | None

    def __repr__(self) -> str:
        return f"Key(of {self.app or 'everybody'})"


class TokenBook:
    """The common token and those of groups. `tokens` are those that are let in."""

    def __init__(
        self,
        database: Database,
        common: str | None,
        off_loop: Callable[[Callable[[], Any]], Awaitable[Any]],
        *,
        may_be_open: bool,
    ) -> None:
        """`may_be_open`: without any token everybody is let in."""
        self.tokens: Final = Tokens(common, may_be_open=may_be_open)
        self._database = database
        self._common = Key(None, common)
        self._off_loop = off_loop
        self._own: dict[str, str] = {}
        self._apps: dict[str, str] = {}
        self._read_at = float("-inf")

    def read(self) -> None:
        """Read the database; blocks. Raises ConfigError when a group's token is the common one, and
        StoreUnavailable.
        """
        own = groups.tokens_of_apps(self._database)
        apps = registry.apps_by_address(self._database) if own else {}
        self.tokens.renew(own)
        self._own, self._apps = own, apps

    async def keep_up(self) -> None:
        """Read the database again and again, until cancelled. While it cannot be read, what was
        read last holds.
        """
        while True:
            await asyncio.sleep(RENEW_S)
            await self._renew()

    async def key_for(self, address: str) -> Key:
        """What to show there; raises ConnectFailed when it is nobody's address."""
        if not self._own:
            return self._common
        if address not in self._apps:
            await self._renew()
        app = self._apps.get(address)
        if app is None:
            raise ConnectFailed(f"{address} is no executor's that is known: it is shown no token")
        return Key(app, self._own[app]) if app in self._own else self._common

    async def _renew(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._read_at < LOOK_AGAIN_S:
            return
        self._read_at = now
        try:
            await self._off_loop(self.read)
        except (ConfigError, StoreUnavailable) as error:
            _log.warning("access tokens stay as they were: %s", error)
        except Exception:  # noqa: BLE001 - it ends no centre
            _log.exception("access tokens stay as they were")
