"""The list of long actions: what is running, what has ended, and how."""

from __future__ import annotations

from typing import Any, Final

from dash import html

from dashboards.pages.components import coded, quiet, table
from dashboards.pages.job_components import cut, moment, worded
from pipelines.database.operations import Operation
from pipelines.database.tables import Ended
from pipelines.operations.service import operation_json
from pipelines.scheduler.page_queries import PageService

BY_COMMAND: Final = (
    "They are begun by `tidemark operations run -- reports run …`, and asked for here, by "
    "`tidemark operations show|wait ID` and at `/api/operations/ID`."
)
COMMAND_SHOWN: Final = 200
LINE_SHOWN: Final = 300
SIGNS: Final = {
    Ended.RUNNING: ("●", "running", "ok"),
    Ended.DONE: ("✓", "done", "ok"),
    Ended.FAILED: ("✖", "failed", "lost"),
    Ended.LOST: ("?", "lost", "lost"),
    Ended.EXPIRED: ("■", "expired", "stopped"),
}


def operations(service: PageService) -> list[Any]:
    """Long actions, the newest first."""
    rows = [_row(one) for one in service.operations()]
    shown: Any = quiet("Nobody has begun a long action within the last week.")
    if rows:
        shown = table(("operation", "", "begun, UTC", "by", "said last"), rows, label="Operations")
    return [shown, html.P(coded(BY_COMMAND), className="quiet")]


def _row(one: Operation) -> list[Any]:
    what = [
        html.Div(cut(one.operation_id), className="exact"),
        html.Div(cut(" ".join(one.command), COMMAND_SHOWN), className="reason"),
    ]
    return [
        html.Div(what, className="what"),
        worded(*SIGNS[one.state]),
        html.Span(moment(one.created_us // 1000), className="exact"),
        cut(one.author),
        html.Span(cut(_said(one), LINE_SHOWN), className="wrap"),
    ]


def _said(one: Operation) -> str:
    """Why it failed, else the last line of its command."""
    result = operation_json(one)["result"]
    if not isinstance(result, dict):
        return str(result or one.said)
    lines = result.get("lines") or [one.said]
    how = result.get("error") or result.get("signal")
    return f"{how}: {lines[-1]}" if how else str(lines[-1])
