"""Builds the FastAPI application that serves the pages, and runs its server.

Invariant: everything a page needs is served from here: no page requests an address outside this
origin. What threads of callbacks share is loaded before the first of them: Arrow loads pandas at
its first use, and Plotly looks into pandas as soon as it has begun to load. Absent on purpose:
Dash's page registry and its global callbacks, which know one application per process; who may see
and change what, see `access`.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pandas  # noqa: F401
import uvicorn
from dash import Dash
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.middleware.gzip import GZipMiddleware

from dashboards.access.security import (
    LOOPBACK_NAMES,
    REPORT_POLICY,
    Application,
    Guard,
    Receive,
    Scope,
    Send,
    framed_headers,
    security_headers,
)
from dashboards.access.visitors import NotedVisits, Visitors
from dashboards.models.alert_lines import AlertSource
from dashboards.page_context import Clock, PageContext
from dashboards.pages import shell
from dashboards.reads.cluster import Cluster
from dashboards.reads.lake_data import LakeData
from dashboards.reads.report_shelf import ReportShelf, Sending
from dashboards.url_state import REPORT_FILES_PREFIX
from dashboards.web.routes import add_docs, add_operations, add_report_files
from dashboards.web.sign_in_routes import SignIn, add_sign_in
from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake

ASSETS: Final = Path(__file__).parents[1] / "assets"
INDEX: Final = """<!DOCTYPE html>
<html lang="en">
    <head>
        {%metas%}
        <title>{%title%}</title>
        {%favicon%}
        {%css%}
    </head>
    <body>
        {%app_entry%}
        <footer>
            {%config%}
            {%scripts%}
            {%renderer%}
        </footer>
    </body>
</html>
"""
STOP_WITHIN_S: Final = 3
"""Open connections get that long at the end."""


def wall_clock() -> datetime:
    """Now, UTC."""
    return datetime.now(UTC)


def build(
    lake: Lake,
    *,
    clock: Clock = wall_clock,
    hosts: Collection[str] = LOOPBACK_NAMES,
    cluster: Cluster | None = None,
    alerts: AlertSource | None = None,
    visitors: Visitors | None = None,
    executor_token: str | None = None,
    reports: Path | None = None,
    sending: Sending | None = None,
) -> Application:
    """The ASGI application that shows `lake` to requests for one of `hosts`; `cluster` is asked
    about single messages and routes, `alerts` about alerts, and `visitors` about who may see and
    change jobs, when they are given. `executor_token` is what executors are shown. reports: the
    folder of the files of reports, when it is not the lake's own; sending: how they are sent."""
    # Without the generated API pages: they load scripts from elsewhere.
    server = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    shelf = ReportShelf(lake, reports)
    context = PageContext(
        LakeData(lake),
        clock,
        cluster or Cluster(),
        alerts=alerts,
        visitors=visitors,
        executor_token=executor_token,
        shelf=shelf,
        sending=sending or Sending(),
    )
    _add_health(server, context)
    if visitors is not None:
        add_sign_in(server, SignIn(visitors))
        add_operations(server, visitors)
    add_docs(server, lake)
    add_report_files(server, shelf)
    dash = Dash(
        "tidemark",
        server=server,
        backend="fastapi",
        assets_folder=str(ASSETS),
        index_string=INDEX,
        title="Tidemark",
        update_title="",
        serve_locally=True,
        suppress_callback_exceptions=True,
        use_pages=False,
        add_log_handler=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    # Otherwise every browser opens a WebSocket that no page uses, and retries for ever.
    dash.backend.websocket_capability = False
    dash.layout = shell.layout
    shell.register(dash, context)
    server.add_middleware(GZipMiddleware, minimum_size=1024)
    application = NotedVisits(PageAddresses(server))
    headers = security_headers(dash.csp_hashes())
    framed = {REPORT_FILES_PREFIX: framed_headers(REPORT_POLICY, headers)}
    return Guard(application, allowed_hosts=hosts, headers=headers, framed=framed)


def _add_health(server: FastAPI, context: PageContext) -> None:
    @server.get("/healthz")
    def healthz() -> JSONResponse:
        """Does this process serve, and how far does its data reach?"""
        try:
            data_end = context.data.pulse().data_end
        except LakeError as error:
            return JSONResponse({"status": "unreadable lake", "detail": str(error)}, 503)
        return JSONResponse(
            {"status": "ok", "data_end": data_end.isoformat() if data_end else None}
        )


class PageAddresses:
    """ASGI wrapper: the address of a page is answered with the application, which routes in the
    browser; every other address stays what it is."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = scope.get("path", "")
        if shell.page_at(path) is not None:
            scope = {**scope, "path": "/", "raw_path": b"/"}
        await self._application(scope, receive, send)


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
