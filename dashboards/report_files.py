"""Files of reports, served as they are: the page for a frame of ours, the others to be kept.

Place in the walk: the page of a report shows its HTML in a frame and links to PDF, numbers and
notebook. Invariant: which file is meant is decided by the row that a name leads to. The page of a
report comes in a sandbox with a policy of its own: it runs no script, fetches nothing, and nobody
else frames it; a click on one of its links leads the whole window there.
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI
from starlette.responses import FileResponse, PlainTextResponse, Response

from dashboards.reports import ReportShelf, TooLarge
from dashboards.view import REPORT_FILES_PREFIX
from engine.foundation.errors import LakeError
from pipelines.reports.kept import NOTEBOOK_FILE, NUMBERS_FILE, PAGE_FILE, PAPER_FILE

TYPES: Final = {
    PAGE_FILE: "text/html; charset=utf-8",
    PAPER_FILE: "application/pdf",
    NUMBERS_FILE: "application/json",
    NOTEBOOK_FILE: "application/x-ipynb+json",
}
"""What is served; whatever else lies beside it is not."""
SANDBOX: Final = "allow-top-navigation-by-user-activation"
POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    f"form-action 'none'; frame-ancestors 'self'; sandbox {SANDBOX}"
)


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
