"""The checks: one row per expectation of the newest run, and the rows that broke it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import polars as pl
from dash import Dash, Input, Output, html

from dashboards import answers
from dashboards.desk import Desk, beside
from dashboards.pages.parts import card, failure, first_run, notice, quiet, table
from dashboards.words import clock, count
from engine.foundation.errors import LakeError

HIDDEN, SHOWN = "checks-body hidden", "checks-body"


def layout() -> html.Div:
    """Verdicts, then failing rows."""
    return html.Div(
        [
            html.Div(html.H1("Checks"), className="page-head"),
            html.Div(id="checks-notice"),
            html.Div(
                [
                    card(
                        "Do the numbers deserve trust?",
                        html.Div(id="checks-results"),
                        element="checks-results-card",
                        note=html.Span(id="checks-run"),
                    ),
                    card(
                        "Rows that broke a check",
                        html.Div(id="checks-failures"),
                        element="checks-failures-card",
                        note="at most 200 a check",
                    ),
                ],
                id="checks-body",
                className=HIDDEN,
            ),
        ]
    )


def content(desk: Desk, pulse: Any = None) -> tuple[Any, ...]:
    """(notice, body class, run, results, failures)."""
    try:
        look = desk.look(None, pulse)
        if look.pulse.first_run:
            return _instead(first_run(desk.data.lake.root))
        results = answers.newest_run(look.data.everything("dq_results"))
        failures = look.data.everything("dq_failures")
    except LakeError as error:
        return _instead(failure(str(error), desk.clock()))
    if results.is_empty():
        command = html.Code(f"tidemark check --lake {desk.data.lake.root}")
        return _instead(notice("No check has run yet", [html.P(command)], kind="empty"))
    run_id = results["run_id"][0]
    started = cast("datetime | None", results["started_at"].max())
    verdict = answers.quality(results, now=desk.clock())
    old = f"; {verdict.sentence}" if verdict.level == "unknown" else ""
    run = f"run {run_id}, started {clock(started, day=True)} UTC{old}"
    return None, SHOWN, run, _results(results), _failures(failures.filter(run_id=run_id))


def _instead(shown: Any) -> tuple[Any, ...]:
    return shown, HIDDEN, "", [], []


def _verdict(row: dict[str, Any]) -> html.Span:
    if row["success"]:
        sign, word, css = "✓", "holds", "healthy"
    elif row["checked_rows"] == 0:
        sign, word, css = "○", "nothing to check", "unknown"
    elif row["severity"] == "INFO":
        sign, word, css = "ℹ", "note", "unknown"
    else:
        sign, word = "✖", "fails"
        css = "degraded" if row["severity"] == "CRITICAL" else "warning"
    return html.Span(
        [html.Span(sign, className="pill-sign", **{"aria-hidden": "true"}), word],
        className=f"pill pill-quality-{css}",
    )


def _results(results: pl.DataFrame) -> Any:
    order = {"CRITICAL": 0, "WARNING": 1, "INFO": 2}
    rows = sorted(
        results.iter_rows(named=True),
        key=lambda row: (row["success"], order.get(row["severity"], 3), row["expectation"]),
    )
    cells = [
        [
            _verdict(row),
            html.Span(row["expectation"], className="exact"),
            row["severity"].lower(),
            html.Span(row["table"], className="exact"),
            html.Span(count(row["checked_rows"]), className="number"),
            html.Span(count(row["failed_rows"]), className="number"),
            html.Span(row["observed_value"] or "", className="reason"),
        ]
        for row in rows
    ]
    headings = ("verdict", "check", "severity", "table", "checked", "failing", "observed")
    return table(headings, cells, label="Checks of the newest run")


def _failures(failures: pl.DataFrame) -> Any:
    if failures.is_empty():
        return quiet("No row broke a check in this run.")
    cells = [
        [
            html.Span(row["expectation"], className="exact"),
            html.Span(row["row_key"], className="exact"),
            html.Span(row["detail"], className="reason"),
        ]
        for row in failures.iter_rows(named=True)
    ]
    return table(("check", "row", "figures"), cells, label="Rows that broke a check")


def register(app: Dash, desk: Desk) -> None:
    """The page's callback."""

    @app.callback(
        Output("checks-notice", "children"),
        Output("checks-body", "className"),
        Output("checks-run", "children"),
        Output("checks-results", "children"),
        Output("checks-failures", "children"),
        Input("pulse", "data"),
    )
    async def show_checks(pulse: Any) -> Any:
        return await beside(content, desk, pulse)
