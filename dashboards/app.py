"""The application: pages on a FastAPI server, behind the guard.

Place in the walk: last; a browser reads it. `build` only puts parts together.

Invariant: everything a page needs is served from here: no address outside this origin is ever
asked for. Absent on purpose: Dash's page registry and its global callbacks, which know one
application per process; who may see and change what, see `visits` and `guard`.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dash import Dash
from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.middleware.gzip import GZipMiddleware

from dashboards.alerts import AlertSource
from dashboards.cluster import Cluster
from dashboards.data import LakeData
from dashboards.desk import Clock, Desk
from dashboards.docs import add_docs
from dashboards.guard import (
    LOOPBACK_NAMES,
    Application,
    Guard,
    Receive,
    Scope,
    Send,
    framed_headers,
    security_headers,
)
from dashboards.job_view import address_of
from dashboards.operations import add_operations
from dashboards.pages import alerts as alerts_page
from dashboards.pages import shell
from dashboards.report_files import POLICY, add_report_files
from dashboards.reports import ReportShelf, Sending
from dashboards.sign_in import SignIn, add_sign_in
from dashboards.view import REPORT_FILES_PREFIX, REPORTS_PATH, group_of, report_of, topic_of
from dashboards.visits import NotedVisits, Visitors
from engine.foundation.errors import LakeError
from pipelines.lake import Lake

PATHS: Final = ("/checks", "/sign-in", REPORTS_PATH, *alerts_page.PARTS)
NAMED: Final = (group_of, topic_of, address_of, report_of)
ASSETS: Final = Path(__file__).parent / "assets"
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
    desk = Desk(
        LakeData(lake),
        clock,
        cluster or Cluster(),
        alerts=alerts,
        visitors=visitors,
        executor_token=executor_token,
        shelf=shelf,
        sending=sending or Sending(),
    )
    _add_health(server, desk)
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
    shell.register(dash, desk)
    server.add_middleware(GZipMiddleware, minimum_size=1024)
    application = NotedVisits(PageAddresses(server))
    headers = security_headers(dash.csp_hashes())
    framed = {REPORT_FILES_PREFIX: framed_headers(POLICY, headers)}
    return Guard(application, allowed_hosts=hosts, headers=headers, framed=framed)


def _add_health(server: FastAPI, desk: Desk) -> None:
    @server.get("/healthz")
    def healthz() -> JSONResponse:
        """Does this process serve, and how far does its data reach?"""
        try:
            data_end = desk.data.pulse().data_end
        except LakeError as error:
            return JSONResponse({"status": "unreadable lake", "detail": str(error)}, 503)
        return JSONResponse(
            {"status": "ok", "data_end": data_end.isoformat() if data_end else None}
        )


def is_page(path: str) -> bool:
    """Is a page of this application there?"""
    return path in PATHS or any(named(path) is not None for named in NAMED)


class PageAddresses:
    """ASGI wrapper: the address of a page is answered with the application, which routes in the
    browser; every other address stays what it is."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        path = scope.get("path", "")
        if is_page(path):
            scope = {**scope, "path": "/", "raw_path": b"/"}
        await self._application(scope, receive, send)
