"""Serves files: those of reports, framed or downloaded, and the pages of Data Docs.

Place in the walk: the page of a report shows its HTML in a frame and links to PDF, numbers and
notebook. Invariant: which file is meant is decided by the row that a name leads to. The page of a
report comes in a sandbox with a policy of its own: it runs no script, fetches nothing, and nobody
else frames it; a click on one of its links leads the whole window there.
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI
from starlette.responses import FileResponse, PlainTextResponse, Response

from dashboards.reads.data_docs import TYPES as DOCS_TYPES
from dashboards.reads.data_docs import docs_file
from dashboards.reads.report_shelf import ReportShelf, TooLarge
from dashboards.url_state import DOCS_PATH, REPORT_FILES_PREFIX
from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.reports.shelf import NOTEBOOK_FILE, NUMBERS_FILE, PAGE_FILE, PAPER_FILE

TYPES: Final = {
    PAGE_FILE: "text/html; charset=utf-8",
    PAPER_FILE: "application/pdf",
    NUMBERS_FILE: "application/json",
    NOTEBOOK_FILE: "application/x-ipynb+json",
}
"""What is served; whatever else lies beside it is not."""


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
