"""Sends requests over HTTP: to a checked address, once, with everything bounded.

It uses httpx's transport without its client: no redirects, no cookies, no proxies from the
environment, and no line in a log with the address, which holds secrets.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

import httpx

from engine.foundation.errors import ConfigError, ConnectFailed
from pipelines.alerting.alerts import Notice
from pipelines.alerting.channels.addresses import Hosts, look_up
from pipelines.alerting.channels.http_request import (
    BODY_BYTES_MAX,
    HttpRequest,
    outcome_of,
)
from pipelines.alerting.outbox.outcomes import Failed, Outcome, Trouble

ANSWER_BYTES_MAX: Final = 65_536


class HttpChannel:
    """One receiver that is told by HTTP."""

    def __init__(
        self,
        encode: Callable[[Notice], HttpRequest],
        hosts: Hosts,
        *,
        timeout_s: float,
        threads: Executor,
    ) -> None:
        self.timeout_s: Final = timeout_s
        self._encode = encode
        self._hosts = hosts
        self._threads = threads
        self._trust = ssl.create_default_context()

    async def send(self, notice: Notice) -> Outcome:
        """Tell the receiver once."""
        request = self._encode(notice)
        if len(request.body) > BODY_BYTES_MAX:
            told = f"a request of {len(request.body):,} bytes; {BODY_BYTES_MAX:,} are the most"
            return Failed(Trouble.REFUSED, told)
        try:
            url = checked_url(request.url.reveal(), self._hosts, origin=request.url.origin)
            host = url.raw_host.decode()
            port = url.port or (443 if url.scheme == "https" else 80)
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._threads, partial(look_up, host, port))
            address = self._hosts.chosen(host, found)
        except ConnectFailed as error:
            return Failed(Trouble.UNREACHABLE, str(error))
        except ConfigError as error:
            return Failed(Trouble.NOT_SET_UP, str(error))
        return await self._posted(request, url, address)

    async def _posted(self, request: HttpRequest, url: httpx.URL, address: str) -> Outcome:
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
                "timeout": httpx.Timeout(self.timeout_s).as_dict(),
            },
        )
        try:
            async with httpx.AsyncHTTPTransport(verify=self._trust, trust_env=False) as transport:
                answer = await transport.handle_async_request(pinned)
                text = await _beginning(answer)
        except httpx.TransportError as error:
            return Failed(Trouble.UNREACHABLE, f"{host} cannot be reached ({_why(error)})")
        return outcome_of(answer.status_code, answer.headers, text, host=host, request=request)


def checked_url(url: str, hosts: Hosts, *, origin: str) -> httpx.URL:
    """The address, if its host may be asked; raises ConfigError without telling its path."""
    try:
        found = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigError("url", "***", "an address of the web", origin) from error
    host = found.raw_host.decode()
    if found.scheme not in {"https", "http"} or not host or found.userinfo:
        raise ConfigError(
            "url", f"{found.scheme}://***", "https://HOST… without user and password", origin
        )
    hosts.check(host)
    if found.scheme == "http" and not hosts.is_private(host):
        raise ConfigError("url", f"http://{host}", "https, but for allow_private_hosts", origin)
    return found


async def _beginning(answer: httpx.Response) -> str:
    """As much of an answer as an error may show, and no more than this is read of it."""
    read = bytearray()
    try:
        async for part in answer.aiter_raw():
            read += part
            if len(read) > ANSWER_BYTES_MAX:
                break
    finally:
        await answer.aclose()
    return bytes(read[:ANSWER_BYTES_MAX]).decode("utf-8", "replace")


def _why(error: httpx.TransportError) -> str:
    """Its kind and the system's word for it: httpx's own text may hold the address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
            return f"{type(error).__name__}: {os.strerror(cause.errno)}"
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
