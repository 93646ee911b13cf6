"""Serves an application on a socket that already listens, until it is stopped.

Invariant: what threads of callbacks share is loaded before the first of them. Arrow loads pandas at
its first use, and Plotly looks into pandas as soon as it has begun to load: an answer that was
written in that moment was an error.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pandas  # noqa: F401
import uvicorn

STOP_WITHIN_S: Final = 3
"""Open connections get that long at the end."""


class AnnouncingServer(uvicorn.Server):
    """Says when it serves: what is announced is true from then on."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then announce."""
        await super().startup(sockets=sockets)
        if not self.should_exit:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM or SIGINT and return; uvicorn's own way raises the signal once more at
        the end, so that a clean stop would look like a kill."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self.handle_exit) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def server_of(application: Any, ready: Callable[[], None]) -> AnnouncingServer:
    """A server of one process, quiet, without WebSockets (the pages use none)."""
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=STOP_WITHIN_S,
    )
    return AnnouncingServer(config, ready)


def serve(application: Any, listener: socket.socket, *, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT."""
    server_of(application, ready).run(sockets=[listener])
