"""Checks the host, origin and size of every request, and sets security headers.

The pages of lag are open to whoever reaches the port, so the port is loopback. A page of somebody
else can still make a browser on this machine send requests here, by its own name re-bound to
127.0.0.1 or by a form: the Host header refuses the first, Origin the second.

Invariant: pure ASGI; the body of a callback is read here, up to BODY_BYTES_MAX, before anything
behind the guard runs; what only reads may bring none. Absent on purpose: who somebody is
(`visitors`); pages of lag ask nobody, so a network bind is refused unless asked for by name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping
from typing import Any, Final
from urllib.parse import urlsplit

from pipelines.base.wording import with_article

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "::1")
BODY_BYTES_MAX: Final = 1024 * 1024
"""A callback's inputs are a few hundred bytes."""
SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
REPORT_SANDBOX: Final = "allow-top-navigation-by-user-activation"
REPORT_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    f"form-action 'none'; frame-ancestors 'self'; sandbox {REPORT_SANDBOX}"
)
"""The HTML page of a report runs no script and fetches nothing."""


def security_headers(script_hashes: Iterable[str]) -> list[tuple[bytes, bytes]]:
    """Headers of every answer; inline scripts run only when their hash is named here."""
    policy = "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' {' '.join(script_hashes)}".rstrip(),
            "style-src 'self' 'unsafe-inline'",  # plotly and AG Grid write style elements.
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    ]


def framed_headers(policy: str, others: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Headers of answers that pages of ours show in a frame: with a policy of their own, which
    says who may frame them, and else those of all answers."""
    own = {b"content-security-policy": policy.encode(), b"x-frame-options": b"SAMEORIGIN"}
    return [(name, own.get(name, value)) for name, value in others]


def refusal(
    method: str, headers: dict[str, str], allowed_hosts: Collection[str]
) -> tuple[int, str] | None:
    """Why a request is refused, or None: (status, sentence)."""
    host = headers.get("host", "")
    if host_name(host) not in allowed_hosts:
        return 421, f"host {host!r} is not served here; start with --allow-host to serve it"
    if method in SAFE_METHODS:
        if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
            return 413, f"{with_article(method)} has no body here"
        return None
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return 403, f"origin {origin!r} may not call {host!r}"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return 403, "requests come from our own pages only"
    if not headers.get("content-type", "").startswith("application/json"):
        return 415, "callbacks are JSON"
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > BODY_BYTES_MAX:
        return 413, f"at most {BODY_BYTES_MAX} bytes"
    return None


def host_name(host: str) -> str:
    """Host name without its port; brackets of an IPv6 address are dropped."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def whole_body(receive: Receive) -> bytes | None:
    """A request's body; None when it is longer than BODY_BYTES_MAX, or its sender has gone."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """Replays the body once, then returns whatever comes."""
    was_read = False

    async def replay() -> Message:
        nonlocal was_read
        if was_read:
            return await receive()
        was_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class Guard:
    """ASGI wrapper that refuses or passes on, and adds the headers to whatever is answered."""

    def __init__(
        self,
        application: Application,
        *,
        allowed_hosts: Collection[str],
        headers: list[tuple[bytes, bytes]],
        framed: Mapping[str, list[tuple[bytes, bytes]]] | None = None,
    ) -> None:
        """framed: headers of the addresses that begin so, in place of those of all others."""
        self._application = application
        self._allowed_hosts = frozenset(allowed_hosts)
        self._headers = headers
        self._framed = dict(framed or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        given = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        refused = refusal(scope["method"], given, self._allowed_hosts)
        own = (held for begin, held in self._framed.items() if scope["path"].startswith(begin))
        added = next(own, self._headers)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        if refused is None and scope["method"] in SAFE_METHODS:
            await self._application(scope, receive, send_with_headers)
            return
        if refused is None:
            body = await whole_body(receive)
            if body is not None:
                await self._application(scope, _again(body, receive), send_with_headers)
                return
            refused = (413, f"at most {BODY_BYTES_MAX} bytes")
        status, sentence = refused
        await send_with_headers(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [
                    (b"content-type", b"text/plain; charset=utf-8"),
                    (b"connection", b"close"),  # The rest of its body is not waited for.
                ],
            }
        )
        await send_with_headers({"type": "http.response.body", "body": sentence.encode()})
