"""Serves `GET /metrics` to Prometheus over HTTP, one request per connection.

Invariant: a request head is at most HEAD_BYTES_MAX long and here within PATIENCE_S, an answer is
taken within the same time, or the connection is cut; CONNECTIONS_MAX are served at once. A request
names, as its host, loopback, the address that is listened on, or one of `names`: a page of somebody
else that has bound its own name to this address reads nothing. Absent on purpose: what is measured,
TLS, and keeping connections open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

from engine.foundation.errors import MustBe
from pipelines.alerting.metrics.exposition import CONTENT_TYPE

HEAD_BYTES_MAX: Final = 8 * 1024
PATIENCE_S: Final = 10.0
CONNECTIONS_MAX: Final = 16
LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")
_REASONS: Final = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found",
                   405: "Method Not Allowed", 500: "Internal Server Error",
                   503: "Service Unavailable"}  # fmt: skip

_log = logging.getLogger(__name__)


@asynccontextmanager
async def serving(
    page: Callable[[], str], host: str, port: int, *, names: Iterable[str] = ()
) -> AsyncIterator[int]:
    """Serve a page, made in a thread, until the block ends; the port in use. ConfigError when it is
    taken."""
    known = frozenset({*LOOPBACK_NAMES, host.lower(), *(name.lower() for name in names)})
    answering = _Answering(page, known)
    try:
        server = await asyncio.start_server(answering.serve, host, port, limit=HEAD_BYTES_MAX)
    except OSError as error:
        allowed = f"an address that is free ({error.strerror})"
        raise MustBe("metrics", f"{host}:{port}", allowed) from error
    async with server:
        yield int(server.sockets[0].getsockname()[1])


class _Answering:
    """Requests, one a connection."""

    def __init__(self, page: Callable[[], str], names: frozenset[str]) -> None:
        self._page = page
        self._names = names
        self._at_work = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._at_work += 1
        try:
            async with asyncio.timeout(PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
            code, body = await self._answer(head.decode("latin-1"))
            kind = CONTENT_TYPE if code == 200 else "text/plain; charset=utf-8"
            data = body.encode()
            writer.write(
                f"HTTP/1.1 {code} {_REASONS[code]}\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
                + data
            )
            async with asyncio.timeout(PATIENCE_S):
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            writer.transport.abort()
        finally:
            self._at_work -= 1
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, head: str) -> tuple[int, str]:
        line, *fields = head.split("\r\n")
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0]).path
        hosts = [one[5:].strip() for one in fields if one.lower().startswith("host:")]
        if self._at_work > CONNECTIONS_MAX:
            return 503, f"{CONNECTIONS_MAX} scrapes are answered at once\n"
        if method != "GET":
            return 405, "only GET\n"
        if len(hosts) != 1 or _name(hosts[0]) not in self._names:
            return 403, "this host is not served; ask by the address that is listened on\n"
        if target != "/metrics":
            return 404, "there is /metrics\n"
        try:
            return 200, await asyncio.to_thread(self._page)
        except Exception:  # noqa: BLE001 - a scrape must not end alerting; the log has it
            _log.exception("a scrape cannot be answered")
            return 500, "the figures cannot be read now; the log says why\n"


def _name(host: str) -> str:
    """The name in a Host field, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
