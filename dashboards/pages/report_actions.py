"""Card for regenerating or sending a report, with buttons, a preview and requested runs.

Everything goes in two steps: the first says what would happen, the second does it. The signed-in
user decides which buttons there are; `report_requests` checks anew what they may do.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from dash import Dash, Input, Output, State, ctx, dcc, html

from dashboards.access.visitors import Standing
from dashboards.actions.previewed_changes import ClickNotDone, why_not
from dashboards.actions.report_requests import (
    Preview,
    Ways,
    What,
    asked_of,
    carry_out,
    preview,
    state_words,
    ways,
)
from dashboards.formatting import clock, visible
from dashboards.page_context import PageContext, beside
from dashboards.pages.alert_components import worded
from dashboards.pages.components import card, coded, drawn, quiet, register_drawn, tree
from dashboards.pages.sign_in import nobody_yet
from dashboards.reads.report_shelf import is_sound
from dashboards.url_state import report_of, report_path
from engine.foundation.errors import LakeError, RequestTimedOut, StorageError, TidemarkError
from pipelines.base.time_units import moment_at
from pipelines.platform_jobs.requests import AskedRun
from pipelines.reports.shelf import ReportRun

HIDDEN: Final = "hidden"
BUTTONS: Final = {
    "report-again": What.AGAIN,
    "report-newest": What.NEWEST,
    "report-send": What.SEND,
}
MESSAGE_MAX: Final = 300


def layout() -> html.Section:
    """The card; what stands in it follows."""

    def button(element: str, said: str, css: str = "search-button") -> html.Button:
        return html.Button(said, id=element, className=css)

    making = [button("report-again", "Same cut"), button("report-newest", "Newest data")]
    sending = [
        html.Label("Send it to", className="actions-name", htmlFor="report-receiver"),
        dcc.Input(
            id="report-receiver",
            type="text",
            value="",
            list="report-receivers",
            maxLength=64,
            autoComplete="off",
            spellCheck=False,
            className="search-field",
        ),
        html.Datalist(id="report-receivers"),
        button("report-send", "Send"),
    ]
    deciding = [
        button("report-confirm", "Do it", "search-button primary"),
        button("report-cancel", "Leave it"),
    ]
    return card(
        "Again, or to somebody",
        html.Div(
            [
                html.Div(id="report-ways", className="report-ways"),
                html.Div(
                    [html.Span("Make it again from", className="actions-name"), *making],
                    id="report-making",
                    className=HIDDEN,
                ),
                html.Div(sending, id="report-sending", className=HIDDEN),
                html.Div(id="report-preview", role="status"),
                html.Div(deciding, id="report-deciding", className=HIDDEN),
                html.Div(id="report-said", role="status"),
                dcc.Store(id="report-asked"),
                html.Div(drawn("report-asked-runs")),
            ],
            className="report-actions",
        ),
        element="report-actions-card",
    )


def offered(context: PageContext, path: str | None) -> tuple[Any, ...]:
    """(why not more, class of making, class of sending, receivers, runs that were asked for)."""
    try:
        run = context.reports.named(report_of(path or "") or "")
        if run is None or not is_sound(run):
            return None, HIDDEN, HIDDEN, [], None
        found = ways(context, run)
        made = _runs(context, run, found)
    except LakeError:
        return None, HIDDEN, HIDDEN, [], None
    may_make = found.signed_in and found.maker is not None and not found.no_making
    may_send = found.signed_in and bool(found.receivers)
    return (
        _said(context, found, path or ""),
        "actions" if may_make else HIDDEN,
        "actions" if may_send else HIDDEN,
        [html.Option(value=one) for one in found.receivers],
        tree(made),
    )


def _said(context: PageContext, found: Ways, path: str) -> Any:
    if context.visitors is None:
        return quiet("This dashboard knows nobody: `tidemark reports` makes and sends reports.")
    if found.no_making and found.visitor.is_stranger:
        return quiet(coded(visible(found.no_making)))  # The database cannot be asked.
    if found.visitor.is_stranger:
        way = dcc.Link("Sign in", href=f"/sign-in?to={path}", className="jump")
        return html.P([way, " to have it made again, or sent."], className="quiet")
    if found.visitor.standing is Standing.LOOKS:
        return nobody_yet()
    lines = [one for one in (found.no_making, found.no_sending) if one]
    return [quiet(coded(visible(one))) for one in lines]


def _runs(context: PageContext, run: ReportRun, found: Ways) -> Any:
    """The runs that were asked for about this period, each with the report that came of it."""
    if not found.runs:
        return None
    reports = context.reports.of_period(run)
    lines = []
    for one in found.runs:
        since = [report for report in reports if report.made_at >= moment_at(one.planned_ms * 1000)]
        made = since[-1] if since and one.state.value == "DONE" else None
        lines.append(_line(one, made))
    return [html.H3("Asked for"), html.Ul(lines, className="plain-list asked-runs")]


def _line(one: AskedRun, made: ReportRun | None) -> html.Li:
    said = "newest data" if "newest=yes" in one.parameters.split() else "same cut"
    planned = f"{clock(moment_at(one.planned_ms * 1000), day=True)} UTC"
    shown: list[Any] = [
        worded(*state_words(one, made)),
        html.Div(
            [
                dcc.Link(
                    f"run {one.log_id} of job {one.job_id}",
                    href=f"/jobs/{one.job_id}?run={one.log_id}",
                ),
                f", {said}, asked at {planned}",
            ]
        ),
    ]
    if made is not None:
        shown.append(dcc.Link("open it", href=report_path(made.name), className="jump"))
    elif one.is_over and one.message:
        shown.append(html.Div(visible(one.message)[:MESSAGE_MAX], className="reason"))
    return html.Li(shown, **{"data-run": str(one.log_id), "data-run-state": one.state.value})


def looked_at(
    context: PageContext, path: str | None, what: What, receiver: str | None
) -> tuple[Any, ...]:
    """(what would happen, class of the decision, what the browser keeps of it, what was said)."""
    try:
        run = context.reports.named(report_of(path or "") or "")
        if run is None:
            return None, HIDDEN, None, None
        if what is What.SEND and not receiver:
            return None, HIDDEN, None, html.P("To whom? Name a receiver.", className="quiet")
        shown = preview(context, run, what, receiver or "")
    except TidemarkError as error:
        return None, HIDDEN, None, refused(error)
    lines = [html.P(coded(one)) for one in shown.sentences]
    return html.Div(lines, className="report-preview"), "actions", kept_of(shown), None


def kept_of(shown: Preview) -> Any:
    """What the browser keeps of what was looked at."""
    return msgspec.to_builtins(shown.asked)


def done(context: PageContext, given: Any) -> Any:
    """What was done, or why not."""
    try:
        return html.P(visible(carry_out(context, asked_of(given))), className="done")
    except (ClickNotDone, RequestTimedOut, StorageError) as error:
        return html.P(coded(why_not(error)), className="field-wrong")  # Perhaps it was done.
    except TidemarkError as error:
        return refused(error)


def refused(error: TidemarkError) -> html.P:
    """Why something was not done."""
    return html.P(coded(f"Not done: {error}"), className="field-wrong")


def register(app: Dash, context: PageContext) -> None:
    """The callbacks."""

    @app.callback(
        Output("report-ways", "children"),
        Output("report-making", "className"),
        Output("report-sending", "className"),
        Output("report-receivers", "children"),
        Output("report-asked-runs-tree", "data"),
        Input("heard", "data"),
        Input("report-said", "children"),
        State("url", "pathname"),
    )
    async def show_ways(_: Any, said: Any, path: str | None) -> Any:
        del said
        return await beside(offered, context, path)

    @app.callback(
        Output("report-preview", "children"),
        Output("report-deciding", "className"),
        Output("report-asked", "data"),
        Output("report-said", "children"),
        *(Input(element, "n_clicks") for element in BUTTONS),
        Input("report-cancel", "n_clicks"),
        Input("report-confirm", "n_clicks"),
        State("url", "pathname"),
        State("report-receiver", "value"),
        State("report-asked", "data"),
        prevent_initial_call=True,
    )
    async def decide(*given: Any) -> Any:
        path, receiver, asked = given[-3:]
        if ctx.triggered_id == "report-confirm" and asked is not None:
            return None, HIDDEN, None, await beside(done, context, asked)
        what = BUTTONS.get(str(ctx.triggered_id))
        if what is None:
            return None, HIDDEN, None, None
        return await beside(looked_at, context, path, what, receiver)

    register_drawn(app, "report-asked-runs")
