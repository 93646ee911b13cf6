"""A dashboard on a free port, in a thread, on a lake and a clock of the test's choice; and a
browser that notes everything that is not as it should be.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Dialog, Page

from dashboards.access.visitors import Visitors
from dashboards.commands import listen
from dashboards.models.alert_lines import AlertSource
from dashboards.reads.cluster import Cluster
from dashboards.reads.report_shelf import Sending
from dashboards.web.app import build, server_of
from pipelines.lake.lake import Lake

READY_WITHIN_S = 20
PAGE_WITHIN_MS = 20_000
ABANDONED = "net::ERR_ABORTED"
"""What Chromium says of a request whose page was left or loaded anew before the answer came."""
WITHOUT_FIGURES = ("/checks", "/topic/", "/alerts", "/jobs", "/reports")
SIZE = {"width": 1440, "height": 900}


@contextmanager
def serving(
    lake: Lake,
    now: datetime,
    cluster: Cluster | None = None,
    *,
    port: int = 0,
    alerts: AlertSource | None = None,
    visitors: Visitors | None = None,
    executor_token: str | None = None,
    sending: Sending | None = None,
) -> Iterator[str]:
    """The address of a dashboard over `lake` whose clock stands at `now`."""
    listener: socket.socket = listen("127.0.0.1", port)
    port = listener.getsockname()[1]
    ready = threading.Event()
    application = build(
        lake,
        clock=lambda: now,
        cluster=cluster,
        alerts=alerts,
        visitors=visitors,
        executor_token=executor_token,
        sending=sending,
    )
    server = server_of(application, ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        assert ready.wait(READY_WITHIN_S), "the dashboard did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(READY_WITHIN_S)
        listener.close()


@dataclass
class Visit:
    """A page, and what went wrong on it."""

    page: Page
    origin: str
    faults: list[str] = field(default_factory=list)

    def open(self, path: str, state: str | None = None) -> None:
        """Open a path and wait until it shows data, or the named state instead."""
        answer = self.page.goto(self.origin + path, wait_until="load")
        assert answer is None or answer.ok, (
            f"{path} is answered {answer.status}: is it the address of a page of dashboards/pages?"
        )
        wanted = f'[data-state="{state}"]' if state else ".card"
        if state is None and path.startswith("/jobs"):
            wanted = "#jobs-body .card"
        if state is None and path.startswith("/alerts"):
            wanted = "#alerts-list > *, .notice"  # The card is there before what it lists.
        elif state is None and path.startswith("/reports"):
            wanted = "#reports-list > *, #report-groups > *"
        self.page.locator(wanted).first.wait_for(state="visible", timeout=PAGE_WITHIN_MS)
        if state is None and not path.startswith(WITHOUT_FIGURES):
            self.page.locator(".graph .main-svg").first.wait_for(timeout=PAGE_WITHIN_MS)
        self.page.wait_for_load_state("networkidle")

    @property
    def text(self) -> str:
        """Everything a reader sees."""
        return self.page.locator("body").inner_text()


class Windows:
    """One browser profile a theme, so that scripts of an origin are fetched once."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._profiles: dict[str, BrowserContext] = {}

    def profile(self, theme: str, *, fresh: bool = False) -> BrowserContext:
        """The profile of a theme, or one that has kept nothing yet."""
        if fresh or theme not in self._profiles:
            scheme: Any = theme
            made = self._browser.new_context(
                viewport=SIZE, color_scheme=scheme, reduced_motion="reduce"
            )
            if fresh:
                return made
            self._profiles[theme] = made
        return self._profiles[theme]


@contextmanager
def visiting(
    windows: Windows, origin: str, *, theme: str = "light", fresh: bool = False
) -> Iterator[Visit]:
    """A new page on one dashboard; its faults are the caller's to assert on."""
    page = windows.profile(theme, fresh=fresh).new_page()
    visit = Visit(page, origin)
    page.on("console", lambda said: _note(visit, said.type, said.text))
    page.on("pageerror", lambda error: visit.faults.append(f"script error: {error}"))
    page.on("dialog", lambda dialog: _dismissed(visit, dialog))
    page.on("requestfailed", lambda request: _failed(visit, request.url, request.failure))
    page.on("request", lambda request: _at_home(visit, request.url))
    page.on("response", lambda answer: _answered(visit, answer.status, answer.url))
    try:
        yield visit
    finally:
        page.close()


def _answered(visit: Visit, status: int, url: str) -> None:
    if status >= HTTPStatus.BAD_REQUEST:
        visit.faults.append(f"{status} {url}")


def _dismissed(visit: Visit, dialog: Dialog) -> None:
    visit.faults.append("a dialog")
    dialog.dismiss()


def _note(visit: Visit, kind: str, text: str) -> None:
    if kind in ("error", "warning"):
        visit.faults.append(f"console {kind}: {text}")


def _at_home(visit: Visit, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != visit.origin:
        visit.faults.append(f"a request left the origin: {url}")


def _failed(visit: Visit, url: str, why: str | None) -> None:
    """A request without an answer is a fault, unless the page was left before its answer came."""
    if why != ABANDONED:
        visit.faults.append(f"failed: {url} ({why})")
