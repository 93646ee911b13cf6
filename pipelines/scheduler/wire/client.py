"""HTTP client for calls between centres and executors over keep-alive connections.

No redirects, no cookies, no proxies from the environment. A call goes once; who calls decides
whether it goes again, by the error:

    ConnectFailed        nothing was sent
    RequestTimedOut      whether it was done is unknown
    ConnectionLost       the same
    RemoteProtocolError  what came back is no answer

httpx's pool looks at all connections and waiting calls whenever one begins or ends: with 300 calls
under way a call took 30 ms of CPU. Here idle connections wait by place, and the last used is taken
first; h11 reads what comes. Invariant: what comes while nothing was asked ends the connection, so
that an answer is never taken for that of another call.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

import h11

from engine.foundation.errors import (
    ConnectFailed,
    ConnectionLost,
    MustBe,
    RemoteProtocolError,
    RequestRefused,
    RequestTimedOut,
)
from pipelines.base.outgoing_addresses import look_up
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.fields import BODY_BYTES_MAX
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
CONNECTIONS_MAX: Final = 600
"""Open at once; who finds none free waits."""
IDLE_MAX: Final = 300
IDLE_S: Final = 20.0
"""How long an idle one is kept: less than the other side waits before it closes."""


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
                raise MustBe(name, "***", "printable ASCII")
            headers[name] = value
    return headers


@dataclass(frozen=True, slots=True)
class Place:
    """Where a connection leads."""

    host: str
    """An address, which was checked."""
    port: int
    tls_name: str | None
    """The name that its certificate must have; None: without TLS."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What was answered."""

    status: int
    body: bytes


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._transport: asyncio.Transport | None = None
        self._awaited: asyncio.Future[Reply] | None = None
        self._status = 0
        self._body = bytearray()
        self.idle_since_s = 0.0

    @property
    def is_usable(self) -> bool:
        """May another call go over it?"""
        is_open = self._transport is not None and not self._transport.is_closing()
        return is_open and self._awaited is None and self._http.our_state is h11.IDLE

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    async def ask(self, head: h11.Request, body: bytes) -> Reply:
        """Send a request and wait for the answer. Raises ConnectionLost when the connection ends
        before, and RemoteProtocolError when what comes is no answer.
        """
        assert self.is_usable, "a call is under way"
        assert self._transport is not None
        self._awaited = asyncio.get_running_loop().create_future()
        self._body.clear()
        parts = (head, h11.Data(data=body), h11.EndOfMessage())
        self._transport.write(b"".join(self._http.send(part) or b"" for part in parts))
        try:
            return await self._awaited
        finally:
            self._awaited = None

    def data_received(self, data: bytes) -> None:
        """Read what came."""
        if self._awaited is None:
            self.close()
            return
        self._read(data)

    def eof_received(self) -> None:
        """The other side will send no more."""
        if self._awaited is not None:
            self._read(b"")

    def connection_lost(self, _: Exception | None) -> None:
        """Nor can it."""
        self._fail(ConnectionLost("the connection ended before an answer"))

    def close(self) -> None:
        """End it."""
        if self._transport is not None:
            self._transport.close()

    def _read(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            while self._awaited is not None and not self._awaited.done():
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                self._take(event)
        except h11.RemoteProtocolError as error:
            if data:
                self._fail(RemoteProtocolError(f"what came is no answer ({error})"))
            self.close()  # An end in the middle is a lost connection.

    def _take(self, event: object) -> None:
        match event:
            case h11.Response():
                self._status = event.status_code
            case h11.Data():
                self._body += event.data
                if len(self._body) > BODY_BYTES_MAX:
                    self._fail(RemoteProtocolError("more was answered than may be read"))
                    self.close()
            case h11.EndOfMessage():
                self._end()
            case h11.ConnectionClosed():
                self.close()

    def _end(self) -> None:
        assert self._awaited is not None
        has_more = bool(self._http.trailing_data[0])
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE and not has_more:
            self._http.start_next_cycle()
        else:
            self.close()
        self._awaited.set_result(Reply(self._status, bytes(self._body)))

    def _fail(self, error: Exception) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(error)


@dataclass(slots=True)
class Connections:
    """Those of one party, to all places."""

    tls: ssl.SSLContext
    _idle: dict[Place, deque[Connection]] = field(default_factory=dict)
    _idle_count: int = 0
    _free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTIONS_MAX))

    async def take(self, place: Place) -> Connection:
        """A connection for one call; it must be given back. Raises ConnectFailed."""
        await self._free.acquire()
        try:
            return self._kept(place) or await self._opened(place)
        except BaseException:
            self._free.release()
            raise

    def give_back(self, place: Place, connection: Connection) -> None:
        """Keep a connection for the next call, if it can have one."""
        self._free.release()
        now_s = asyncio.get_running_loop().time()
        self._close_old(now_s)
        if connection.is_usable and self._idle_count < IDLE_MAX:
            connection.idle_since_s = now_s
            self._idle.setdefault(place, deque()).append(connection)
            self._idle_count += 1
        else:
            connection.close()

    def close(self) -> None:
        """End those that are idle."""
        for kept in self._idle.values():
            for connection in kept:
                connection.close()
        self._idle.clear()
        self._idle_count = 0

    def _kept(self, place: Place) -> Connection | None:
        now_s = asyncio.get_running_loop().time()
        kept = self._idle.get(place, deque())
        while kept:
            connection = kept.pop()
            self._idle_count -= 1
            if connection.is_usable and now_s - connection.idle_since_s < IDLE_S:
                return connection
            connection.close()
        return None

    async def _opened(self, place: Place) -> Connection:
        loop = asyncio.get_running_loop()
        tls = self.tls if place.tls_name is not None else None
        try:
            _, connection = await loop.create_connection(
                Connection, place.host, place.port, ssl=tls, server_hostname=place.tls_name
            )
        except OSError as error:
            why = error.strerror or str(error)
            raise ConnectFailed(f"{place.host}:{place.port} cannot be reached ({why})") from error
        return connection

    def _close_old(self, now_s: float) -> None:
        """Of the places' oldest ones: each place's first was used longest ago."""
        for place in list(self._idle):
            kept = self._idle[place]
            while kept and now_s - kept[0].idle_since_s >= IDLE_S:
                kept.popleft().close()
                self._idle_count -= 1
            if not kept:
                del self._idle[place]
