"""Applies each change made on a page once, exactly as previewed, and audits it.

Place in the walk: a panel shows the preview of a change → here → the scheduler's service.
`job_changes` and `admin_changes` say what a change is.

Invariant: nothing is done that was not previewed as it is done: a preview has a version, and when
that is another by now, the new preview is shown. It has a key, which is used once: a request that
is sent again gets the outcome of the first. A click whose outcome is unknown says that, and is
never performed a second time.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from dashboards.access.visitors import Visitor, Visitors
from dashboards.actions.job_previews import Facts, Preview, Wish
from engine.foundation.errors import ConfigError, RequestTimedOut, StorageError, TidemarkError
from pipelines.database import operations
from pipelines.database.database import Database
from pipelines.database.tables import Ended
from pipelines.scheduler.roles import NotPermitted

VALUES_MAX: Final = 40
KEY_BYTES: Final = 16
NEW_NOW: Final = (
    "What it rests on has changed meanwhile, so nothing was done. This is what would be now."
)
NO_DATABASE: Final = "There is no database of jobs yet."
KEY_CHARS_MAX: Final = 64
TAKES_US_MAX: Final = 60_000_000
OUTCOME_UNKNOWN: Final = "It is being done, or nobody knows what came of it: look."


class OtherThanPreviewed(TidemarkError):
    """The change would do something else than was shown, so nothing is done."""

    def __init__(self) -> None:
        super().__init__("What it rests on has changed meanwhile, so nothing was done.")


@dataclass(frozen=True, slots=True)
class PanelState:
    """What the panel of a change shows."""

    wish: Wish
    preview: Preview | None = None
    key: str = ""
    facts: Facts | None = None
    done: str = ""
    """What was done."""
    refused: str = ""
    """Why nothing is done, or why it is not known whether."""
    leads_to: str = ""
    """The page of what came of it."""


class Changes(ABC):
    """Changes of one kind."""

    def __init__(self, visitors: Visitors, *, kind: str) -> None:
        """kind: what the database stores of a click beside its outcome."""
        self._visitors = visitors
        self._kind = kind

    def preview(self, visitor: Visitor, wish: Wish) -> PanelState:
        """What a wish would do now, under a new key."""
        try:
            database = self._visitors.database.opened()
            if database is None:
                return PanelState(wish, refused=NO_DATABASE)
            preview, facts = self._previewed(database, visitor, wish)
            return PanelState(wish, preview, secrets.token_hex(KEY_BYTES), facts)
        except TidemarkError as error:
            return PanelState(wish, refused=why_no_preview(error))

    def do(self, visitor: Visitor, wish: Wish, *, version: str, key: str) -> PanelState:
        """Does what was previewed under this version and key, or shows what came of it before."""
        try:
            database = self._visitors.database.opened()
            if database is None:
                return PanelState(wish, refused=NO_DATABASE)
            click = click_of(self._visitors, database, visitor, key=key, kind=self._kind)
            earlier = click.earlier()
        except TidemarkError as error:
            return PanelState(wish, refused=why_not(error))
        if earlier is not None:
            return self._done(wish, earlier)
        now = self.preview(visitor, wish)
        if now.preview is None:
            return now
        if now.preview.version != version:
            return replace(now, refused=NEW_NOW)
        if now.preview.wrong:
            return now
        try:
            return self._done(
                wish,
                click.do(lambda: self._apply(database, visitor, now, version=version, key=key)),
            )
        except ClickNotDone as error:
            return PanelState(wish, refused=str(error))
        except OtherThanPreviewed:
            return replace(self.preview(visitor, wish), refused=NEW_NOW)
        except TidemarkError as error:
            return replace(now, refused=why_not(error))

    @abstractmethod
    def _previewed(
        self, database: Database, visitor: Visitor, wish: Wish
    ) -> tuple[Preview, Facts | None]:
        """The effect that a wish would have now, and the facts that this rests on."""

    @abstractmethod
    def _apply(
        self, database: Database, visitor: Visitor, now: PanelState, *, version: str, key: str
    ) -> str:
        """Does it; returns its result. Raises OtherThanPreviewed."""

    @abstractmethod
    def _done(self, wish: Wish, result: str) -> PanelState:
        """What the panel shows of a wish that was done with this result."""


def wish_of(given: Any, actions: Collection[str]) -> Wish | None:
    """What a browser sends as a wish; None for what no page of ours sends."""
    if not isinstance(given, dict) or given.get("action") not in actions:
        return None
    subject, values = given.get("subject"), given.get("values")
    if type(subject) is not int or not isinstance(values, dict) or len(values) > VALUES_MAX:
        return None
    if not all(isinstance(one, str) for pair in values.items() for one in pair):
        return None
    return Wish(given["action"], subject, values)


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


def why_no_preview(error: TidemarkError) -> str:
    """Why it is not said what something would do, of which nothing was done."""
    if isinstance(error, RequestTimedOut | StorageError):
        return f"Nothing was done, and what it would do cannot be said now: {error}"
    return why_not(error)


def why_not(error: TidemarkError) -> str:
    """Why something is not done, or why it is not known whether."""
    if isinstance(error, NotPermitted):
        return f"You may not do this: {error}."
    if isinstance(error, RequestTimedOut):
        return f"No answer came, so nobody knows whether it was done: {error}"
    if isinstance(error, StorageError):
        return f"Whether it was done is not known; look before you try again. {error}"
    return str(error)
