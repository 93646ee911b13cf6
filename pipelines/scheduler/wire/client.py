"""HTTP client of the wire: one connection pool, and the calls of centre and executor.

No redirects, no cookies, no proxies from the environment. A call goes once; who calls decides
whether it goes again, by the error:

    ConnectFailed        nothing was sent
    RequestTimedOut      whether it was done is unknown
    ConnectionLost       the same
    RemoteProtocolError  what came back is no answer
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol

import h11

from engine.foundation.errors import (
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    RemoteProtocolError,
    RequestRefused,
    RequestTimedOut,
)
from pipelines.base.outgoing_addresses import look_up
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.connections import Connections, Place
from pipelines.scheduler.wire.messages import (
    Answer,
    Dialect,
    LogPage,
    LogRequest,
    Registration,
    RunRequest,
    RunResult,
    encode_job,
    encode_kill,
    encode_results,
)
from pipelines.scheduler.wire.tokens import APP_HEADER, TOKEN_HEADER

TIMEOUT_S: Final = 3.0
"""Of one call; XXL-Job's figure."""
LOOK_UPS_MAX: Final = 8
OK_STATUS: Final = 200


class Calling(Protocol):
    """What the clients need to speak."""

    async def call(
        self, at: Address, path: str, body: bytes, *, headers: Mapping[str, str]
    ) -> Answer:
        """POST a body to a path below an address. Raises as the module says."""


class Caller:
    """Sends requests over one pool. Belongs to the loop that opened it."""

    def __init__(self, connections: Connections, threads: Executor, *, timeout_s: float) -> None:
        self._connections = connections
        self._threads = threads
        self._timeout_s = timeout_s

    async def call(
        self, at: Address, path: str, body: bytes, *, headers: Mapping[str, str]
    ) -> Answer:
        """POST a body to a path below an address. Raises as the module says, and ConfigError for a
        name that leads where it may not."""
        head = h11.Request(
            method="POST",
            target=at.path + path,
            headers=[
                ("Host", at.authority),
                ("Content-Type", "application/json;charset=UTF-8"),
                ("Content-Length", str(len(body))),
                *headers.items(),
            ],
        )
        give_up_s = asyncio.get_running_loop().time() + self._timeout_s
        try:
            async with asyncio.timeout_at(give_up_s):
                place = await self._place_of(at)
                connection = await self._connections.take(place)
        except TimeoutError as error:
            raise ConnectFailed(f"{at.text}: not reached in {self._timeout_s:g} s") from error
        try:
            async with asyncio.timeout_at(give_up_s):
                reply = await connection.ask(head, body)
        except TimeoutError as error:
            raise RequestTimedOut(f"{at.text}: no answer in {self._timeout_s:g} s") from error
        except (ConnectionLost, RemoteProtocolError) as error:
            raise type(error)(f"{at.text}: {error}") from error
        finally:
            self._connections.give_back(place, connection)
        if reply.status != OK_STATUS:
            raise RemoteProtocolError(f"{at.text} answered HTTP status {reply.status}")
        return Answer.decode(reply.body)

    async def _place_of(self, at: Address) -> Place:
        host = at.host
        if at.is_name:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._threads, partial(look_up, host, at.port))
            host = at.chosen(found)
        return Place(host, at.port, at.host if at.scheme == "https" else None)


@asynccontextmanager
async def opened_caller(*, timeout_s: float = TIMEOUT_S) -> AsyncIterator[Caller]:
    """A caller, and its connections closed at the end."""
    threads = ThreadPoolExecutor(LOOK_UPS_MAX, thread_name_prefix="look-up")
    connections = Connections(ssl.create_default_context())
    try:
        yield Caller(connections, threads, timeout_s=timeout_s)
    finally:
        connections.close()
        threads.shutdown(wait=False, cancel_futures=True)


class ExecutorClient:
    """What a centre asks of one executor. An answer that says no is returned, not raised."""

    def __init__(
        self,
        caller: Calling,
        at: Address,
        *,
        token: str | None,
        app: str | None = None,
        dialect: Dialect = Dialect.UP_TO_3_4,
    ) -> None:
        """`app`: whose token it is, when it is the executor's own."""
        self._caller = caller
        self._at = at
        self._headers = headers_of(token, app)
        self._run_path = "run" if dialect is Dialect.UP_TO_3_4 else "trigger"

    async def beat(self) -> Answer:
        """Is it there?"""
        return await self._call("beat", b"")

    async def idle_beat(self, job_id: int) -> Answer:
        """Is nothing of this job at work or waiting there?"""
        return await self._call("idleBeat", encode_job(job_id))

    async def run(self, request: RunRequest) -> Answer:
        """Run this. Success means that it was accepted."""
        return await self._call(self._run_path, request.encode())

    async def kill(self, job_id: int, log_id: int | None = None) -> Answer:
        """Stop one run of this job, or all; an executor of XXL-Job stops all."""
        return await self._call("kill", encode_kill(job_id, log_id))

    async def log(self, request: LogRequest) -> LogPage:
        """Lines of a run's log. Raises RequestRefused when the executor says no."""
        answer = await self._call("log", request.encode())
        if not answer.is_success:
            raise RequestRefused(answer.code, answer.message)
        return LogPage.of(answer.content)

    async def _call(self, path: str, body: bytes) -> Answer:
        return await self._caller.call(self._at, path, body, headers=self._headers)


class AdminClient:
    """What an executor reports to one admin. An answer that says no is returned, not raised."""

    def __init__(
        self,
        caller: Calling,
        at: Address,
        *,
        token: str | None,
        app: str,
        dialect: Dialect = Dialect.UP_TO_3_4,
    ) -> None:
        """`at` is the admin's address with its context path, as `http://HOST:8080/xxl-job-admin`."""
        self._caller = caller
        self._at = at
        self._headers = headers_of(token, app)
        self._dialect = dialect

    async def register(self, registration: Registration) -> Answer:
        """Say that the executor is there."""
        return await self._call("api/registry", registration.encode())

    async def remove(self, registration: Registration) -> Answer:
        """Say that it is no more."""
        return await self._call("api/registryRemove", registration.encode())

    async def report(self, results: Sequence[RunResult]) -> Answer:
        """Say how runs have ended."""
        return await self._call("api/callback", encode_results(results, self._dialect))

    async def _call(self, path: str, body: bytes) -> Answer:
        return await self._caller.call(self._at, path, body, headers=self._headers)


def headers_of(token: str | None, app: str | None) -> dict[str, str]:
    """The two headers by which a party says who it is. Raises ConfigError for a text that no header
    can carry."""
    headers = {}
    for name, value in ((TOKEN_HEADER, token), (APP_HEADER, app)):
        if value is not None:
            if not (value.isascii() and value.isprintable()):
                raise ConfigError(name, "***", "printable ASCII")
            headers[name] = value
    return headers
