"""HTTP endpoints that sign users in and out, using JSON requests from our own pages.

    POST /session       {"name": ..., "password": ...}     a cookie, or why not
    POST /session/end   {}                                 the cookie is gone, and so is its session

    wrong tries by one name      5 at once, then 2 s, 4 s, 8 s ... 5 min between two
    wrong tries by all names    40 at once, then 1 s, 2 s ... 15 s between two

Place in the walk: behind the guard. Whose session a request has is looked up by `access.visitors`.

Invariant: whatever is wrong, the answer is the same sentence, and takes as long. A try counts as
wrong from its beginning until it was right; one that has to wait is not looked at. At most two
passwords are checked at a time, each with 32 MiB. The cookie cannot be read by scripts nor sent by
pages of others, and goes only over https once it came over it. Absent on purpose: forms, tokens in
addresses, and addresses of clients, which a proxy makes the same for everybody.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from dashboards.access.visitors import COOKIE, Visitors, this_visit
from engine.foundation.errors import ConfigError, StorageError
from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.scheduler.passwords import NO_PASSWORD, is_password
from pipelines.scheduler.store import sessions

CHECKS_AT_ONCE: Final = 2
CHECKS_WAITING_MAX: Final = 8
"""Beyond those at work; a further one is asked to come again."""
BODY_BYTES_MAX: Final = 16 * 1024
"""A name and a password of 1,024 characters, each written in six."""
AGES_S: Final = 7 * 86_400
"""How long a browser keeps the cookie; the session ends by the server's rule."""

WRONG: Final = "That name and password do not belong together."
NOT_NOW: Final = "The database of users cannot be asked now; try again."
BUSY: Final = "Many are signing in; try again in some seconds."
NAMES_MAX: Final = 10_000
"""Names that are remembered; beyond it the one tried longest ago is forgotten. All names together
are bounded by a law of their own."""


class Credentials(msgspec.Struct, forbid_unknown_fields=True):
    """What somebody brings."""

    name: str
    password: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a try."""

    status: int
    said: str = ""
    token: str | None = None
    wait_s: int = 0


class SignIn:
    """The door: lets in who brings the right password, and counts the wrong ones."""

    def __init__(
        self, visitors: Visitors, *, is_right: Callable[[str, str], bool] = is_password
    ) -> None:
        """`is_right`: of a password and what is kept of one; it takes its time."""
        self._visitors = visitors
        self._is_right = is_right
        self._tries = WrongTries()
        self._checks = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="sign-in")
        self._under_way = 0

    async def sign_in(self, name: str, password: str) -> Answer:
        """Look at a password, unless there are too many to look at."""
        if self._under_way >= CHECKS_AT_ONCE + CHECKS_WAITING_MAX:
            return Answer(503, BUSY, wait_s=2)
        self._under_way += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._checks, self._looked_at, name, password)
        finally:
            self._under_way -= 1

    async def sign_out(self, token: str) -> None:
        """End a session, if it is one. Raises StorageError: then it goes on."""
        await asyncio.to_thread(self._ended, token)

    def _looked_at(self, name: str, password: str) -> Answer:
        try:
            database = self._visitors.database.opened()
            now_ms = self._now_ms(database)
        except (StorageError, ConfigError):
            return Answer(503, NOT_NOW)
        wait_ms = self._tries.begin(name, now_ms=now_ms)
        if wait_ms:
            wait_s = -(-wait_ms // 1000)
            return Answer(429, f"Too many wrong tries; the next one in {wait_s} s.", wait_s=wait_s)
        try:
            token = self._token_for(database, name, password)
        except (StorageError, ConfigError):
            self._tries.was_not_looked_at(name)
            return Answer(503, NOT_NOW)
        if token is None:
            return Answer(401, WRONG)
        self._tries.was_right(name)
        return Answer(200, token=token)

    def _token_for(self, database: Database | None, name: str, password: str) -> str | None:
        """A new session of who brings his password, None of anybody else; both are noted."""
        kept = NO_PASSWORD if database is None else sessions.kept_password(database, name)
        is_right = self._is_right(password, kept)
        if database is None:
            return None
        now_ms = self._now_ms(database)
        token = sessions.begin_session(database, name, kept, now_ms=now_ms) if is_right else None
        if token is None:
            sessions.note_failure(database, name, now_ms=now_ms)
        return token

    def _ended(self, token: str) -> None:
        database = self._visitors.database.opened()
        if database is not None and token:
            sessions.end_session(database, token, now_ms=self._now_ms(database))

    def _now_ms(self, database: Database | None) -> int:
        return machine_ms() if database is None else self._visitors.now_ms(database)


def add_sign_in(server: FastAPI, door: SignIn) -> None:
    """The two addresses."""

    @server.post("/session")
    async def begin(request: Request) -> JSONResponse:
        """Sign in."""
        body = await request.body()
        try:
            if len(body) > BODY_BYTES_MAX:
                return _response(Answer(413, "too long for a name and a password"))
            brought = msgspec.json.decode(body, type=Credentials)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _response(Answer(400, "a name and a password, as JSON"))
        answer = await door.sign_in(brought.name, brought.password)
        response = _response(answer)
        if answer.token is not None:
            response.set_cookie(
                COOKIE,
                answer.token,
                max_age=AGES_S,
                path="/",
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
        return response

    @server.post("/session/end")
    async def end(request: Request) -> JSONResponse:
        """Sign out."""
        try:
            await door.sign_out(this_visit().token)
        except (StorageError, ConfigError):
            return _response(Answer(503, NOT_NOW))
        response = _response(Answer(200))
        response.delete_cookie(
            COOKIE,
            path="/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response


def _response(answer: Answer) -> JSONResponse:
    headers = {"cache-control": "no-store"}
    if answer.wait_s:
        headers["retry-after"] = str(answer.wait_s)
    return JSONResponse({"said": answer.said}, answer.status, headers=headers)


@dataclass(frozen=True, slots=True)
class Law:
    """How waits grow."""

    free: int
    """Wrong tries without a wait."""
    first_ms: int
    longest_ms: int
    forgotten_ms: int
    """After so long without a try, those before no longer count."""

    def wait_ms(self, wrong: int) -> int:
        """How long after the last of several wrong tries the next one may come."""
        if wrong < self.free:
            return 0
        return min(self.first_ms << min(wrong - self.free, 20), self.longest_ms)


A_NAME: Final = Law(free=5, first_ms=2_000, longest_ms=300_000, forgotten_ms=3_600_000)
ALL_NAMES: Final = Law(free=40, first_ms=1_000, longest_ms=15_000, forgotten_ms=600_000)


@dataclass(slots=True)
class _Tally:
    wrong: int = 0
    last_ms: int = 0


class WrongTries:
    """What was tried lately. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all = _Tally()
        self._by_name: OrderedDict[bytes, _Tally] = OrderedDict()

    def begin(self, name: str, *, now_ms: int) -> int:
        """0: the password may be looked at, and the try counts. Else so many ms are to wait, and
        it does not count.
        """
        with self._lock:
            his = self._tally(name)
            wait_ms = max(
                _left_ms(his, A_NAME, now_ms=now_ms), _left_ms(self._all, ALL_NAMES, now_ms=now_ms)
            )
            if wait_ms == 0:
                for tally in (his, self._all):
                    tally.wrong, tally.last_ms = tally.wrong + 1, now_ms
            return wait_ms

    def was_right(self, name: str) -> None:
        """The try that was begun brought the right password: nothing counts against him."""
        with self._lock:
            self._by_name.pop(_key(name), None)
            self._all.wrong = max(0, self._all.wrong - 1)

    def was_not_looked_at(self, name: str) -> None:
        """Nobody looked at the password of the try that was begun."""
        with self._lock:
            for tally in (self._tally(name), self._all):
                tally.wrong = max(0, tally.wrong - 1)

    def _tally(self, name: str) -> _Tally:
        key = _key(name)
        tally = self._by_name.setdefault(key, _Tally())
        self._by_name.move_to_end(key)
        if len(self._by_name) > NAMES_MAX:
            self._by_name.popitem(last=False)
        return tally


def _left_ms(tally: _Tally, law: Law, *, now_ms: int) -> int:
    passed_ms = now_ms - tally.last_ms
    if passed_ms >= law.forgotten_ms:
        tally.wrong = 0
    if passed_ms < 0:  # The clock was set back: nobody waits longer than was announced.
        tally.last_ms, passed_ms = now_ms, 0
    return max(0, law.wait_ms(tally.wrong) - passed_ms)


def _key(name: str) -> bytes:
    """A name of any length costs as much as any other."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
