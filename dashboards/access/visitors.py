"""Identifies each page visitor as signed in, read-only or unauthorised.

Place in the walk: between the guard and the pages of jobs. The token of a session comes as a
cookie; `Visitors` asks the database whose it is, anew for each request: rights that are taken away
are gone with the next click. Invariant: without a sign-in nothing is ever changed. Others may look
at jobs only where the dashboard listens to this machine alone, by a name of it, and no user could
sign in yet. Absent on purpose: passwords (`web.sign_in_routes`), and who may do
what (`pipelines.scheduler.roles`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from http.cookies import CookieError, SimpleCookie
from typing import Final

from dashboards.access.security import LOOPBACK_NAMES, Application, Receive, Scope, Send, host_name
from dashboards.reads.job_database import JobDatabase
from pipelines.database.clock import database_ms
from pipelines.database.database import Database
from pipelines.scheduler.page_queries import PageService
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.store import people, sessions

COOKIE: Final = "tidemark_session"


@dataclass(frozen=True, slots=True)
class Visit:
    """What a request shows of its sender."""

    token: str = ""
    """Of a session; empty without one."""
    host: str = ""
    """The name by which this server was asked."""


_visit: ContextVar[Visit] = ContextVar("visit", default=Visit())  # noqa: B039 - frozen


def this_visit() -> Visit:
    """Of the request that is being answered."""
    return _visit.get()


class Standing(StrEnum):
    """How somebody stands to the pages of jobs."""

    SIGNED_IN = "signed in"
    LOOKS = "looks"
    """Nobody can sign in yet, and he is at this machine."""
    STRANGER = "stranger"


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request, and what he may do."""

    standing: Standing
    actor: Actor | None = None
    """None: he may nothing."""

    @property
    def is_stranger(self) -> bool:
        """Is a page of jobs the sign-in for him, and nothing else?"""
        return self.standing is Standing.STRANGER


STRANGER: Final = Visitor(Standing.STRANGER)
LOOKER: Final = Visitor(Standing.LOOKS, Actor("", is_admin=True, only_looks=True))


class NotedVisits:
    """ASGI wrapper: the callbacks of a request know whose it is."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            _visit.set(visit_of(scope))
        await self._application(scope, receive, send)


def visit_of(scope: Scope) -> Visit:
    """What a request brings. A cookie that is none, or comes twice, is no sign-in."""
    given: dict[bytes, list[bytes]] = {}
    for name, value in scope["headers"]:
        given.setdefault(name, []).append(value)
    host = host_name(b"".join(given.get(b"host", [])).decode("latin-1"))
    tokens = []
    for line in given.get(b"cookie", []):
        try:
            cookies = SimpleCookie(line.decode("latin-1"))
        except CookieError:
            continue
        if COOKIE in cookies:
            tokens.append(cookies[COOKIE].value)
    return Visit(tokens[0] if len(tokens) == 1 else "", host)


@dataclass(slots=True, eq=False)
class Visitors:
    """Identifies the people who ask, by one database.

    `is_local`: the dashboard listens to this machine alone. `clock_ms`: the database's time,
    unless another is given.
    """

    database: JobDatabase
    _: KW_ONLY
    is_local: bool = False
    clock_ms: Callable[[Database], int] | None = None

    def now_ms(self, database: Database) -> int:
        """ms since 1970, by the clock that decides."""
        return (self.clock_ms or database_ms)(database)

    def visitor(self, visit: Visit) -> Visitor:
        """Who he is. Raises StorageError or ConfigError when the database cannot be asked."""
        may_look = self.is_local and visit.host in LOOPBACK_NAMES
        database = self.database.opened()
        if database is None:
            return LOOKER if may_look else STRANGER
        if visit.token:
            now_ms = self.now_ms(database)
            actor = sessions.actor_by(database, visit.token, now_ms=now_ms)
            if actor is not None:
                return Visitor(Standing.SIGNED_IN, actor)
        return LOOKER if may_look and not people.has_users(database) else STRANGER

    def service(self, visitor: Visitor, *, expects: str | None = None) -> PageService | None:
        """Where he asks; None when there is no database yet. `expects`: the version of the job
        that he looks at: a change of one that is another by now is refused."""
        database = self.database.opened()
        if database is None:
            return None
        return self.service_at(database, visitor, expects=expects)

    def service_at(
        self, database: Database, visitor: Visitor, *, expects: str | None = None
    ) -> PageService:
        """The same at an open database."""
        now = lambda: self.now_ms(database)  # noqa: E731
        return PageService(database, visitor.actor, now, expects=expects)
