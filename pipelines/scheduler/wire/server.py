"""HTTP server for calls between centres and executors, built as an ASGI application.

Every answer has HTTP status 200 and says in its body what came of it, as XXL-Job's do. The token is
looked at before the body is read. A party that has no token, and so listens on loopback alone,
takes nothing that a web page may have sent.

Invariant: a body is never held beyond BODY_BYTES_MAX, a request never waited for longer than
REQUEST_TIMEOUT_S, and of CONNECTIONS_MAX connections the one that has been silent longest goes:
whoever opens many shuts nobody out. Absent on purpose: what the calls do.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.foundation.errors import MustBe, TidemarkError
from pipelines.scheduler.wire.fields import BODY_BYTES_MAX, Malformed
from pipelines.scheduler.wire.messages import Answer, refused
from pipelines.scheduler.wire.tokens import APP_HEADER, TOKEN_HEADER, Speaker, Tokens

CONNECTIONS_MAX: Final = 1_000
REQUEST_TIMEOUT_S: Final = 30.0
IDLE_TIMEOUT_S: Final = 30
"""A connection is closed when it has brought no whole head of a request for so long. The Java side
waits 90 s; a caller who keeps connections has to give them up before."""
STOP_WITHIN_S: Final = 3
PATH_CHARS_SHOWN: Final = 100
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})

EXECUTOR_CONTENT_TYPE: Final = "text/html;charset=UTF-8"
"""The content type of the Java executor's answers, which are JSON."""
ADMIN_CONTENT_TYPE: Final = "application/json;charset=UTF-8"

WRONG_TOKEN: Final = "The access token is wrong."  # noqa: S105 - no token
FROM_A_PAGE: Final = (
    "Without an access token no requests are taken from web pages, nor by other names than "
    "127.0.0.1, ::1 and localhost; set a token."
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One request that was let in."""

    speaker: Speaker
    body: bytes


Call = Callable[[WireRequest], Awaitable[Answer]]


class WireApplication:
    """Answers POSTs to the paths of a table, for those who have a token."""

    def __init__(
        self,
        calls: Mapping[str, Call],
        tokens: Tokens,
        *,
        content_type: str = ADMIN_CONTENT_TYPE,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """`calls` by path, which begins with a slash."""
        self._calls = dict(calls)
        self._tokens = tokens
        self._timeout_s = request_timeout_s
        self._content_type = content_type.encode()

    async def __call__(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """One request, as ASGI has it."""
        assert scope["type"] == "http", "lifespan and WebSockets are switched off"
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._answer(scope, receive)
        except Malformed as error:
            answer = refused(f"invalid request, {error}")
        except TimeoutError:
            answer = refused(f"no answer within {self._timeout_s:g} s")
        except TidemarkError as error:
            answer = refused(str(error))
        except Exception:  # noqa: BLE001 - the peer learns no more than that it is our fault
            _log.exception("a call failed")
            answer = refused("the call failed; the log has why")
        body = answer.encode()
        headers = [
            (b"content-type", self._content_type),
            (b"content-length", str(len(body)).encode()),
            (b"x-content-type-options", b"nosniff"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Mapping[str, Any], receive: Any) -> Answer:
        if scope["method"] != "POST":
            return refused("invalid request, HttpMethod not support.")
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._tokens.is_open and _may_be_a_pages(headers):
            return refused(FROM_A_PAGE)
        speaker = self._tokens.speaker(_header(headers, APP_HEADER), _header(headers, TOKEN_HEADER))
        if speaker is None:
            return refused(WRONG_TOKEN)
        path = scope["path"]
        call = self._calls.get(path)
        if call is None:
            shown = path[:PATH_CHARS_SHOWN]
            return refused(f"invalid request, uri-mapping({shown}) not found.")
        return await call(WireRequest(speaker, await _body(headers, receive)))


async def _body(headers: Mapping[bytes, bytes], receive: Any) -> bytes:
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length[:20]) > BODY_BYTES_MAX:
        raise Malformed("", f"a body of more than {BODY_BYTES_MAX:,} bytes")
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Malformed("", "the connection ended within a body")
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise Malformed("", f"a body of more than {BODY_BYTES_MAX:,} bytes")
        if not message.get("more_body", False):
            return bytes(body)


def _may_be_a_pages(headers: Mapping[bytes, bytes]) -> bool:
    """May a browser on this machine have been made to ask, by a page of anybody's? It names the
    page, or the page's own name, which was made to lead here (DNS rebinding).
    """
    if b"origin" in headers:
        return True
    host = _header(headers, "host").lower()
    name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    return bool(host) and host != "::1" and name not in LOOPBACK


def _header(headers: Mapping[bytes, bytes], name: str) -> str:
    return headers.get(name.lower().encode(), b"").decode("latin-1")


def listening(host: str, port: int, tokens: Tokens) -> socket.socket:
    """A socket that listens; port 0 takes a free one. Raises ConfigError when it cannot, and when
    others than this machine would reach a party that lets everybody in.
    """
    if tokens.is_open and host not in LOOPBACK:
        raise MustBe("host", host, "127.0.0.1, or any with an access token")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(CONNECTIONS_MAX)
    except OSError as error:
        listener.close()
        raise MustBe("port", port, f"a free one on {host} ({error.strerror})") from error
    return listener


class _Connection(H11Protocol):
    """Bounds what uvicorn does not: how long the head of a request may take. (h11 bounds how long
    it may be; uvicorn's faster parser bounds neither.)"""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is awaited; for this one another may have to go."""
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) >= CONNECTIONS_MAX:
            silent = [one for one in self.connections if isinstance(one, _Connection)]
            silent = [one for one in silent if one.is_silent and one is not self]
            if silent:
                min(silent, key=lambda one: one.silent_since_s).give_way()

    def on_response_complete(self) -> None:
        """The next one is."""
        super().on_response_complete()
        self._head_due.cancel()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """None is."""
        super().connection_lost(exc)
        self._head_due.cancel()

    @property
    def is_silent(self) -> bool:
        """Is no request under way?"""
        return self.cycle is None or self.cycle.response_complete

    def give_way(self) -> None:
        """End it now, and do not count it any more."""
        self.connections.discard(self)
        self.transport.abort()

    def _await_head(self) -> None:
        self.silent_since_s = self.loop.time()
        self._head_due = self.loop.call_later(self.timeout_keep_alive, self._give_up)

    def _give_up(self) -> None:
        if self.is_silent:
            self.transport.close()


class _Server(uvicorn.Server):
    """Leaves signals to the process, and says when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serves = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets=sockets)
        self.serves.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None."""
        yield


@asynccontextmanager
async def served(
    application: WireApplication, listener: socket.socket, *, idle_timeout_s: int = IDLE_TIMEOUT_S
) -> AsyncIterator[None]:
    """Within, calls are answered; after it, those under way have been, or STOP_WITHIN_S passed."""
    config = uvicorn.Config(
        application,
        http=_Connection,
        log_level="warning",
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=idle_timeout_s,
        timeout_graceful_shutdown=STOP_WITHIN_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="wire server")
    started = asyncio.create_task(server.serves.wait())
    try:
        await asyncio.wait({serving, started}, return_when=asyncio.FIRST_COMPLETED)
        yield
    finally:
        started.cancel()
        server.should_exit = True
        await serving
