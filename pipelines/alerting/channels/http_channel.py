"""Sends a channel's HTTP request once, to a checked address and within fixed limits.

It uses httpx's transport without its client: no redirects, no cookies, no proxies from the
environment, and no line in a log with the address, which holds secrets.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final

import httpx

from engine.foundation.errors import ConfigError, ConnectFailed, MustBe
from pipelines.alerting.alerts import Notice
from pipelines.alerting.channels.http_request import BODY_BYTES_MAX, HttpRequest, outcome_of
from pipelines.alerting.outbox.outcomes import Delivered, Failed, Outcome, Trouble
from pipelines.base.outgoing_addresses import Hosts, look_up

ANSWER_BYTES_MAX: Final = 65_536
ANSWER_S: Final = 1.0
"""How long the words of a refusal are listened to."""


@dataclass(slots=True, eq=False)
class HttpChannel:
    """One receiver that is notified by HTTP.

    encode: the requests that send a notice, in order. names: the addresses of a name.
    """

    encode: Callable[[Notice], Sequence[HttpRequest]]
    hosts: Hosts
    _: KW_ONLY
    timeout_s: float
    threads: Executor
    names: Callable[[str, int], list[str]] = look_up
    _trust: ssl.SSLContext = field(default_factory=ssl.create_default_context, init=False)

    async def send(self, notice: Notice) -> Outcome:
        """Tell the receiver once."""
        outcome: Outcome = Delivered()
        for request in self.encode(notice):
            outcome = await self._sent(request)
            if isinstance(outcome, Failed):
                break
        return outcome

    async def _sent(self, request: HttpRequest) -> Outcome:
        if len(request.body) > BODY_BYTES_MAX:
            fault = f"a request of {len(request.body):,} bytes; {BODY_BYTES_MAX:,} are the most"
            return Failed(Trouble.REFUSED, fault)
        try:
            url = checked_url(request.url.reveal(), self.hosts, origin=request.url.origin)
            host = url.raw_host.decode()
            port = url.port or (443 if url.scheme == "https" else 80)
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self.threads, partial(self.names, host, port))
            addresses = self.hosts.checked(host, found)
        except ConnectFailed as error:
            return Failed(Trouble.UNREACHABLE, str(error))
        except ConfigError as error:
            return Failed(Trouble.NOT_SET_UP, str(error))
        share_s = self.timeout_s / len(addresses)
        for address in addresses[:-1]:
            with suppress(httpx.ConnectError, httpx.ConnectTimeout):  # Nothing was sent: the next.
                return await self._posted(request, url, address, connect_s=share_s)
        try:
            return await self._posted(request, url, addresses[-1], connect_s=share_s)
        except httpx.TransportError as error:
            why = f"{host} port {port} cannot be reached: {_why(error)}"
            return Failed(Trouble.UNREACHABLE, why)

    async def _posted(
        self, request: HttpRequest, url: httpx.URL, address: str, *, connect_s: float
    ) -> Outcome:
        """Tell it at one of its addresses. Raises what httpx does when there is no answer."""
        host = url.raw_host.decode()
        headers = {
            "Host": url.netloc.decode(),
            "Content-Type": "application/json",
            "User-Agent": "tidemark",
            **request.headers,
        }
        if request.bearer is not None:
            headers["Authorization"] = f"Bearer {request.bearer.reveal()}"
        pinned = httpx.Request(
            "POST",
            url.copy_with(host=address),
            headers=headers,
            content=request.body,
            extensions={
                "sni_hostname": host,
                "timeout": httpx.Timeout(self.timeout_s, connect=connect_s).as_dict(),
            },
        )
        async with httpx.AsyncHTTPTransport(verify=self._trust, trust_env=False) as transport:
            answer = await transport.handle_async_request(pinned)
            if answer.is_success:  # Said is said: a text that does not end would make it a no.
                await answer.aclose()
                return Delivered()
            text = await _beginning(answer)
        return outcome_of(answer.status_code, answer.headers, text, host=host, request=request)


def checked_url(url: str, hosts: Hosts, *, origin: str) -> httpx.URL:
    """The address, if its host may be asked; raises ConfigError without telling its path."""
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise MustBe("url", "***", "an address of the web", origin) from error
    host = found.raw_host.decode()
    if found.scheme not in {"https", "http"} or not host or found.userinfo:
        raise MustBe(
            "url", f"{found.scheme}://***", "https://HOST… without user and password", origin
        )
    hosts.check(host)
    if found.scheme == "http" and not hosts.is_private(host):
        raise MustBe("url", f"http://{host}", "https, but for allow_private_hosts", origin)
    return found


async def _beginning(answer: httpx.Response) -> str:
    """As much of an answer as an error may show, and no more than this is read of it. That it broke
    off, or did not end in time, changes nothing of what its status says."""
    read = bytearray()
    try:
        async with asyncio.timeout(ANSWER_S):
            async for part in answer.aiter_raw():
                read += part
                if len(read) > ANSWER_BYTES_MAX:
                    break
    except (httpx.TransportError, TimeoutError):
        pass
    finally:
        await answer.aclose()
    return bytes(read[:ANSWER_BYTES_MAX]).decode("utf-8", "replace")


def _why(error: httpx.TransportError) -> str:
    """The system's words for it, else its kind: httpx's own text may hold the address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
            return os.strerror(cause.errno).lower()
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
