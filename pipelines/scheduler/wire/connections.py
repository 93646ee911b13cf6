"""Kept-alive HTTP/1.1 connections to executors and admins, one call at a time on each.

httpx's pool looks at all connections and waiting calls whenever one begins or ends: with 300 calls
under way a call took 30 ms of CPU. Here idle connections wait by place, and the last used is taken
first; h11 reads what comes. Invariant: what comes while nothing was asked ends the connection, so
that an answer is never taken for that of another call. Absent on purpose: time-outs, redirects,
proxies, and a second try.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass, field
from typing import Final

import h11

from engine.foundation.errors import ConnectFailed, ConnectionLost, RemoteProtocolError
from pipelines.scheduler.wire.fields import BODY_BYTES_MAX

CONNECTIONS_MAX: Final = 600
"""Open at once; who finds none free waits."""
IDLE_MAX: Final = 300
IDLE_S: Final = 20.0
"""How long an idle one is kept: less than the other side waits before it closes."""


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
