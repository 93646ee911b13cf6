"""HTTP routes for report files, Data Docs and long-running operations.

Place in the walk: behind the guard. Long actions (`GET /api/operations` and `/ID`) are for users
who have signed in, and for visitors who may see pages of jobs without.

Invariant: which file is meant is decided by the row that a name leads to. The page of a report
comes in a sandbox: it runs no script, fetches nothing, and nobody else frames it. Absent on
purpose: starting and stopping long actions, which `tidemark operations` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response

from dashboards.access.visitors import Visitors, this_visit
from dashboards.reads.data_docs import TYPES as DOCS_TYPES
from dashboards.reads.data_docs import docs_file
from dashboards.reads.report_shelf import ReportShelf, TooLarge
from dashboards.url_state import DOCS_PATH, REPORT_FILES_PREFIX
from engine.foundation.errors import ConfigError, LakeError, StorageError
from pipelines.lake.lake import Lake
from pipelines.operations.service import operation_json
from pipelines.reports.shelf import NOTEBOOK_FILE, NUMBERS_FILE, PAGE_FILE, PAPER_FILE
from pipelines.scheduler.page_queries import PageService

TYPES: Final = {
    PAGE_FILE: "text/html; charset=utf-8",
    PAPER_FILE: "application/pdf",
    NUMBERS_FILE: "application/json",
    NOTEBOOK_FILE: "application/x-ipynb+json",
}
"""What is served; whatever else lies beside it is not."""
ID_CHARS_MAX: Final = 64
NOT_NOW: Final = "the database cannot be asked now"
STRANGER: Final = "sign in first"
UNKNOWN: Final = "there is no such operation, or no more"
_HEADERS: Final = {"cache-control": "no-store"}


def add_report_files(server: FastAPI, shelf: ReportShelf) -> None:
    """Serve them."""

    @server.get(REPORT_FILES_PREFIX + "{report}/{window}/{number}/{name}")
    def report_file(report: str, window: str, number: str, name: str) -> Response:
        """One file of a run of a report."""
        if name not in TYPES:
            return PlainTextResponse("a report has no such file", 404)
        try:
            run = shelf.named(f"{report}/{window}/{number}")
            if run is None:
                return PlainTextResponse("there is no such report", 404)
            found = shelf.file(run, name)
        except TooLarge as error:
            return PlainTextResponse(str(error), 413)
        except LakeError as error:
            return PlainTextResponse(str(error), 404)
        headers = {"cache-control": "private, no-cache"}
        if name == PAGE_FILE:
            return FileResponse(found, media_type=TYPES[name], headers=headers)
        kept_as = f"{run.report}-{run.window}-{run.number}.{name.rpartition('.')[2]}"
        return FileResponse(found, media_type=TYPES[name], headers=headers, filename=kept_as)


def add_docs(server: FastAPI, lake: Lake) -> None:
    """Serve them."""

    @server.get(DOCS_PATH + "{name:path}")
    def data_docs(name: str) -> Response:
        """One file of the Data Docs."""
        found = docs_file(lake, name)
        if found is None:
            return PlainTextResponse("there is no such page of Data Docs", 404)
        headers = {"content-security-policy": "sandbox", "cache-control": "no-cache"}
        return FileResponse(found, media_type=DOCS_TYPES[found.suffix], headers=headers)


def add_operations(server: FastAPI, visitors: Visitors) -> None:
    """The two addresses."""

    @server.get("/api/operations")
    def listed() -> JSONResponse:
        """The newest ones."""
        return _answered(visitors, lambda service: {"operations": _all(service)})

    @server.get("/api/operations/{operation_id}")
    def one(operation_id: str) -> JSONResponse:
        """One of them."""
        return _answered(visitors, lambda service: _one(service, operation_id))


def _all(service: PageService | None) -> list[dict[str, Any]]:
    return [] if service is None else [operation_json(one) for one in service.operations()]


def _one(service: PageService | None, operation_id: str) -> dict[str, Any] | None:
    if service is None or len(operation_id) > ID_CHARS_MAX:
        return None
    found = service.operation(operation_id)
    return None if found is None else operation_json(found)


def _answered(
    visitors: Visitors, ask: Callable[[PageService | None], dict[str, Any] | None]
) -> JSONResponse:
    try:
        visitor = visitors.visitor(this_visit())
        if visitor.is_stranger:
            return JSONResponse({"said": STRANGER}, 401, headers=_HEADERS)
        answer = ask(visitors.service(visitor))
    except (StorageError, ConfigError):
        return JSONResponse({"said": NOT_NOW}, 503, headers=_HEADERS)
    if answer is None:
        return JSONResponse({"said": UNKNOWN}, 404, headers=_HEADERS)
    return JSONResponse(answer, headers=_HEADERS)
