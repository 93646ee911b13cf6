"""Page for checks: the latest results, the rows that failed and links to Data Docs.

A critical failure stays on the page for as long as verdicts are withheld for it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, Final, cast

import polars as pl
from dash import Dash, Input, Output, html

from dashboards.formatting import clock, count
from dashboards.models import lag_overview
from dashboards.page_context import PageContext, beside
from dashboards.pages.components import card, failure, first_run, notice, quiet, table
from dashboards.pages.page import Page
from dashboards.reads.data_docs import docs_index
from dashboards.reads.lake_data import Look
from dashboards.url_state import DOCS_PATH, parse
from engine.foundation.errors import LakeError
from pipelines.reading.check_results import of_each_check

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


def content(context: PageContext, pulse: Any = None, search: str | None = None) -> tuple[Any, ...]:
    """(notice, body class, run, results, failures). Checks judge the lake; of one cluster only the
    rows that are about it, or about nobody alone, are shown."""
    cluster = parse(search).cluster
    try:
        look = context.look(None, pulse)
        if look.pulse.first_run:
            return _instead(first_run(context.data.lake.root))
        results = of_each_check(look.data.checks())
        failing = results.filter(~pl.col("success") & (pl.col("checked_rows") > 0))
        failures = _rows_of(look, failing)
    except LakeError as error:
        return _instead(failure(str(error), context.clock()))
    if results.is_empty():
        command = html.Code(f"tidemark check --lake {context.data.lake.root}")
        return _instead(notice("No check has run yet", [html.P(command)], kind="empty"))
    started = cast("datetime | None", results["started_at"].max())
    newest = results.filter(pl.col("started_at") == started)
    verdict = lag_overview.quality(results, now=context.clock())
    is_old = verdict.level == "unknown"
    said = f"newest run {newest['run_id'][0]}, started {clock(started, day=True)} UTC, "
    said += f"data to {clock(newest.row(0, named=True)['observed_at'], day=True)} UTC"
    run = [said, f"; {verdict.sentence}" if is_old else "", *_docs(context)]
    elsewhere = _elsewhere(failing, failures, cluster)
    shown = _results(results, is_old=is_old, elsewhere=elsewhere)
    return None, SHOWN, run, shown, _failures(failures.filter(_about(cluster)))


def _about(cluster: str) -> pl.Expr:
    """Rows about a cluster, or about nobody alone; all of them without a name."""
    emitter = pl.col("about_emitter")
    own = emitter.str.split("/").list.first() == cluster
    return emitter.is_null() | own if cluster else pl.lit(value=True)


def _elsewhere(failing: pl.DataFrame, failures: pl.DataFrame, cluster: str) -> frozenset[str]:
    """Failing checks of which all rows are known, and none of them is about the cluster."""
    own = failures.filter(_about(cluster))["expectation"].unique().to_list()
    known = dict(failures["expectation"].value_counts().iter_rows())
    return frozenset(
        name
        for name, failed in failing.select("expectation", "failed_rows").iter_rows()
        if cluster and name not in own and known.get(name, 0) == failed
    )


def _rows_of(look: Look, failing: pl.DataFrame) -> pl.DataFrame:
    """The rows that broke the checks that fail."""
    if failing.is_empty():
        return look.data.failing_rows(look.span.now).clear()
    since = cast("datetime", failing["observed_at"].min())
    rows = look.data.failing_rows(since)
    return rows.join(failing.select("run_id", "expectation"), on=["run_id", "expectation"])


def _docs(context: PageContext) -> list[Any]:
    """A link to Data Docs, where there are any."""
    if docs_index(context.data.lake) is None:
        return []
    return ["; ", html.A("Data Docs", href=DOCS_PATH + "index.html", target="_blank")]


def _instead(shown: Any) -> tuple[Any, ...]:
    return shown, HIDDEN, "", [], []


def _verdict(row: dict[str, Any], *, is_old: bool, is_elsewhere: bool) -> html.Span:
    if is_old:
        sign, word, css = "?", "unknown", "unknown"
    elif is_elsewhere:
        sign, word, css = "○", "fails in other clusters", "unknown"
    elif row["success"]:
        sign, word, css = "✓", "holds", "healthy"
    elif row["checked_rows"] == 0:
        sign, word, css = "○", "nothing new", "unknown"
    elif row["severity"] == "INFO":
        sign, word, css = "ℹ", "note", "unknown"
    else:
        sign, word = "✖", "fails"
        css = "degraded" if row["severity"] == "CRITICAL" else "warning"
    return html.Span(
        [html.Span(sign, className="pill-sign", **{"aria-hidden": "true"}), word],
        className=f"pill pill-quality-{css}",
    )


def _results(results: pl.DataFrame, *, is_old: bool, elsewhere: Collection[str]) -> Any:
    order = {"CRITICAL": 0, "WARNING": 1, "INFO": 2}
    rows = sorted(
        results.iter_rows(named=True),
        key=lambda row: (
            row["checked_rows"] == 0,
            row["success"],
            order.get(row["severity"], 3),
            row["expectation"],
        ),
    )
    cells = [
        [
            _verdict(row, is_old=is_old, is_elsewhere=row["expectation"] in elsewhere),
            html.Span(row["expectation"], className="exact"),
            row["severity"].lower(),
            html.Span(row["table"], className="exact"),
            html.Span(count(row["checked_rows"]), className="number"),
            html.Span(count(row["failed_rows"]), className="number"),
            html.Span(clock(row["started_at"]), className="exact"),
            html.Span(row["observed_value"] or "", className="reason"),
        ]
        for row in rows
    ]
    headings = ("verdict", "check", "severity", "table", "checked", "failing", "run at", "observed")
    return table(headings, cells, label="What each check last found")


def _failures(failures: pl.DataFrame) -> Any:
    if failures.is_empty():
        return quiet("No row breaks a check.")
    cells = [
        [
            html.Span(row["expectation"], className="exact"),
            html.Span(row["row_key"], className="exact"),
            html.Span(row["detail"], className="reason"),
        ]
        for row in failures.iter_rows(named=True)
    ]
    return table(("check", "row", "figures"), cells, label="Rows that broke a check")


def register(app: Dash, context: PageContext) -> None:
    """The page's callback."""

    @app.callback(
        Output("checks-notice", "children"),
        Output("checks-body", "className"),
        Output("checks-run", "children"),
        Output("checks-results", "children"),
        Output("checks-failures", "children"),
        Input("pulse", "data"),
        Input("url", "search"),
    )
    async def show_checks(pulse: Any, search: str | None) -> Any:
        return await beside(content, context, pulse, search)


PAGE: Final = Page("/checks", "Checks", layout, register)
