"""Serves GET /metrics to Prometheus over HTTP, with one request per connection.

Place in the walk: beside it, on an address of its own that is loopback unless the user says
otherwise.

Invariant: a request head is at most HEAD_BYTES_MAX long and here within PATIENCE_MS, an answer is
taken within the same time once it is made, or the connection is cut; METRICS_CONNECTIONS_MAX are
served at once. To make the text of 100,000 queues of groups takes a busy broker longer than that. A
request that names a host names loopback, the address it came to, or one of `names`: a web page of
somebody else that has bound its own name to this address reads nothing.
Whatever is wrong with a request, the broker goes on. Absent on purpose: what is measured, TLS,
keeping connections open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import urlsplit

from engine.broker.metrics.exposition import CONTENT_TYPE
from engine.foundation.limits import METRICS_CONNECTIONS_MAX
from engine.foundation.units import KIB, SECOND_MS
from engine.runtime import Network
from engine.runtime.network import Listener

HEAD_BYTES_MAX = 8 * KIB
PATIENCE_MS = 10 * SECOND_MS
PIECES_AT_ONCE = 16
"""Pieces of a page that are written in one step: some 600 KB."""
METRICS_PATHS = ("/metrics", "/")
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")

_log = logging.getLogger(__name__)


class MetricsPort:
    """The port. `pages` makes the text of one scrape, in pieces; `names` may be asked for."""

    def __init__(
        self,
        network: Network,
        pages: Callable[[], Iterable[str]],
        *,
        names: Iterable[str] = (),
    ) -> None:
        self._network = network
        self._names = frozenset(LOOPBACK_NAMES) | {name.lower() for name in names}
        self._pages = pages
        self._listener: Listener | None = None
        self.address = ""
        """`ip:port` of the open port."""
        self._open: dict[_Request, None] = {}

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port in use. Raises ConfigError when it is taken."""
        self._listener = await self._network.listen(host, port, lambda: _Request(self))
        self.address = f"{host}:{self._listener.port}"
        self._names |= {host}
        _log.info("metrics on http://%s/metrics", self.address)
        return self._listener.port

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        for request in list(self._open):
            request.cut()

    def enter(self, request: _Request) -> bool:
        """Is there room for one more?"""
        self._open[request] = None
        return len(self._open) <= METRICS_CONNECTIONS_MAX

    @property
    def is_overrun(self) -> bool:
        """Are there even too many to report them so?"""
        return len(self._open) > 4 * METRICS_CONNECTIONS_MAX

    def leave(self, request: _Request) -> None:
        """The connection has ended."""
        self._open.pop(request, None)

    def serves(self, host: str, came_to: str) -> bool:
        """May this be the Host of a request that came to the address `came_to`?"""
        name = _host_name(host)
        return name is not None and (name in self._names or name == came_to)

    def pages(self) -> Iterator[str]:
        """The text of one scrape, in pieces."""
        yield from self._pages()


class _Request(asyncio.Protocol):
    """One connection: a request head in, an answer out, the end."""

    def __init__(self, port: MetricsPort) -> None:
        self._port = port
        self._head = bytearray()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._has_room = True
        self._taken = asyncio.Event()
        """Is little enough of the answer on its way to write more?"""
        self._taken.set()

    def pause_writing(self) -> None:
        """The other end is slower than the answer."""
        self._taken.clear()

    def resume_writing(self) -> None:
        """It has taken what there was."""
        self._taken.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the wait for the request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._be_patient()
        self._has_room = self._port.enter(self)
        if self._port.is_overrun:
            self.cut()

    def data_received(self, data: bytes) -> None:
        """Collect the head; answer when it is whole. What follows a request is passed over."""
        if self._answer is not None or self._transport is None or self._transport.is_closing():
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) > HEAD_BYTES_MAX:
            self._say(431, f"a request head is at most {HEAD_BYTES_MAX} bytes long\n")
        elif end >= 0:
            self._act(bytes(self._head[:end]))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop whatever is still made for it."""
        del exc
        if self._deadline is not None:
            self._deadline.cancel()
        if self._answer is not None:
            self._answer.cancel()
        self._port.leave(self)

    def cut(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    def _be_patient(self) -> None:
        """From now on the other end has PATIENCE_MS."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(PATIENCE_MS / SECOND_MS, self.cut)

    def _act(self, head: bytes) -> None:
        if not self._has_room:  # Reported only now: an answer to what is not read yet may be lost.
            self._say(503, "too many scrapes at once\n")
            return
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            self._say(400, "this port speaks HTTP/1.1\n")
            return
        wrong = [host for host in hosts_of(head) if not self._port.serves(host, self._came_to())]
        if wrong:
            self._say(
                421,
                f"{wrong[0][:80]!r} is not served here: metricsPromExporterAllowedHosts may list "
                "it\n",
            )
            return
        method, path = words[0], words[1].partition(b"?")[0]
        if path.decode("latin-1") not in METRICS_PATHS:
            self._say(404, "metrics are at /metrics\n")
        elif method == b"GET":
            if self._deadline is not None:
                self._deadline.cancel()
            self._answer = asyncio.get_running_loop().create_task(self._emit())
        elif method == b"HEAD":
            self._say(200, "", CONTENT_TYPE)
        else:
            self._say(405, "metrics are read by GET\n")

    def _came_to(self) -> str:
        assert self._transport is not None
        address = self._transport.get_extra_info("sockname")
        return address[0] if isinstance(address, tuple) else ""

    async def _emit(self) -> None:
        """The whole text, made in turns: between two pieces the broker serves its clients. It is
        written in turns as well: of a hundred megabytes each copy would hold the loop.
        """
        pieces: list[bytes] = []
        try:
            for text in self._port.pages():
                if text:
                    pieces.append(text.encode())
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - a broker without metrics is still a broker.
            _log.error("a scrape failed", exc_info=error)
            self._say(500, f"{type(error).__name__}\n")
            return
        if self._transport is None:
            return
        self._be_patient()
        self._transport.write(_head(200, CONTENT_TYPE, sum(map(len, pieces))))
        for begin in range(0, len(pieces), PIECES_AT_ONCE):
            await self._taken.wait()
            self._transport.write(b"".join(pieces[begin : begin + PIECES_AT_ONCE]))
            await asyncio.sleep(0)
        self._transport.close()

    def _say(self, status: int, text: str, content_type: str = "text/plain; charset=utf-8") -> None:
        if self._transport is None:
            return
        self._be_patient()
        body = text.encode()
        self._transport.write(_head(status, content_type, len(body)) + body)
        self._transport.close()


def _head(status: int, content_type: str, body_bytes: int) -> bytes:
    return (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {body_bytes}\r\nConnection: close\r\n\r\n"
    ).encode()


def hosts_of(head: bytes) -> list[str]:
    """The Host fields of a request head; none for a request that no browser sends."""
    fields = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    return [
        value.decode("latin-1").strip()
        for name, _, value in fields
        if name.strip().lower() == b"host"
    ]


def _host_name(host: str) -> str | None:
    """A Host less its port, in lower case, without the brackets of IPv6; None for no such thing."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
