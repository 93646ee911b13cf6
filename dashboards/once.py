"""A click that does something does it once, however often it is sent.

Place in the walk: what pages change → here → the long actions that the database keeps. A key stands
for one preview of somebody's; who sends it again is told what came of it.

Absent on purpose: what is done, and whether it may be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dashboards.visits import Visitor, Visitors
from engine.foundation.errors import ConfigError, RequestTimedOut, StorageError, TidemarkError
from pipelines.alerting.store import operations
from pipelines.alerting.store.database import Database
from pipelines.alerting.store.tables import Ended
from pipelines.scheduler.roles import NotPermitted

KEY_CHARS_MAX: Final = 64
TAKES_US_MAX: Final = 60_000_000
BEING_DONE: Final = "It is being done."


@dataclass(frozen=True, slots=True)
class Earlier:
    """What came of a click."""

    is_done: bool
    said: str


@dataclass(frozen=True, slots=True)
class Click:
    """One click, by its key."""

    database: Database
    number: str
    kind: str
    now_ms: Callable[[], int]

    def carry_out(self, work: Callable[[], str]) -> str | None:
        """Do it, and keep what it says; None: it was begun before."""
        now_us = self.now_ms() * 1000
        try:
            operations.begin(
                self.database,
                self.number,
                self.kind,
                now_us=now_us,
                expires_us=now_us + TAKES_US_MAX,
            )
        except ConfigError:
            return None
        ended, result = Ended.FAILED, ""
        try:
            result = work()
            ended = Ended.DONE
        except TidemarkError as error:
            result = why_not(error)
            raise
        finally:
            now_us = self.now_ms() * 1000
            operations.end(self.database, self.number, ended, result=result, now_us=now_us)
        return result

    def earlier(self) -> Earlier | None:
        """What came of it, if it was begun."""
        now_us = self.now_ms() * 1000
        found = operations.operation(self.database, self.number, now_us=now_us)
        if found is None:
            return None
        if found.state is Ended.DONE:
            return Earlier(is_done=True, said=found.result or "")
        said = found.result or "It is being done, or nobody knows what came of it: look."
        return Earlier(is_done=False, said=said)


def click_of(
    visitors: Visitors, database: Database, visitor: Visitor, *, key: str, kind: str
) -> Click:
    """A key is somebody's own: nobody learns what came of another's."""
    name = visitor.actor.name if visitor.actor is not None else ""
    told = f"{name}\n{key[:KEY_CHARS_MAX]}".encode("utf-8", "replace")
    return Click(
        database, hashlib.sha256(told).hexdigest(), kind, lambda: visitors.now_ms(database)
    )


def why_not(error: TidemarkError) -> str:
    """Why something is not done, or why it is not known whether."""
    if isinstance(error, NotPermitted):
        return f"You may not do this: {error}."
    if isinstance(error, RequestTimedOut):
        return f"No answer came, so nobody knows whether it was done: {error}"
    if isinstance(error, StorageError):
        return f"Whether it was done is not known; look before you try again. {error}"
    return str(error)
