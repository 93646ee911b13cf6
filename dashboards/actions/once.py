"""Performs the action of a click once, however often its request is sent.

Place in the walk: what pages change → here → the long actions that the database keeps. A key stands
for one preview that a user saw; sending it again returns the outcome of the first.

Invariant: an action whose outcome is unknown is never performed a second time. Its click says so,
until the user looks and makes a new one. Absent on purpose: what the action does, and whether it is
permitted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dashboards.access.visitors import Visitor, Visitors
from engine.foundation.errors import ConfigError, RequestTimedOut, StorageError, TidemarkError
from pipelines.database import operations
from pipelines.database.database import Database
from pipelines.database.tables import Ended
from pipelines.scheduler.roles import NotPermitted

KEY_CHARS_MAX: Final = 64
TAKES_US_MAX: Final = 60_000_000
OUTCOME_UNKNOWN: Final = "It is being done, or nobody knows what came of it: look."


class ClickNotDone(TidemarkError):
    """What an earlier request of a click came to: refused, under way, or unknown."""


@dataclass(frozen=True, slots=True)
class Click:
    """One click, by its key."""

    database: Database
    number: str
    kind: str
    now_ms: Callable[[], int]

    def do(self, work: Callable[[], str]) -> str:
        """Does the work, and returns and stores its result; of a click that was begun before,
        returns the result of then.

        Raises what the work raises, and ClickNotDone when it was begun before and is not done.
        """
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
            earlier = self.earlier()
            if earlier is None:
                raise ClickNotDone(OUTCOME_UNKNOWN) from None
            return earlier
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

    def earlier(self) -> str | None:
        """The result of an earlier request; None when there was none. Raises ClickNotDone."""
        now_us = self.now_ms() * 1000
        found = operations.operation(self.database, self.number, now_us=now_us)
        if found is None:
            return None
        if found.state is not Ended.DONE:
            raise ClickNotDone(found.result or OUTCOME_UNKNOWN)
        return found.result or ""


def click_of(
    visitors: Visitors, database: Database, visitor: Visitor, *, key: str, kind: str
) -> Click:
    """The click of a key. Keys are a user's own: nobody reads the outcome of another's."""
    name = visitor.actor.name if visitor.actor is not None else ""
    named = f"{name}\n{key[:KEY_CHARS_MAX]}".encode("utf-8", "replace")
    return Click(
        database, hashlib.sha256(named).hexdigest(), kind, lambda: visitors.now_ms(database)
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
