"""Page for listing reports: one sentence about each period, newest first."""

from __future__ import annotations

from typing import Any, Final

from dash import Dash, Input, Output, dcc, html

from dashboards.formatting import clock, count, duration, plural, visible
from dashboards.models.report_numbers import news_counts
from dashboards.page_context import PageContext, beside
from dashboards.pages.alert_components import worded
from dashboards.pages.components import (
    card,
    drawn,
    failure,
    notice,
    pager,
    quiet,
    register_drawn,
    register_search,
    search_field,
    table,
    tree,
)
from dashboards.pages.page import Page
from dashboards.reads.report_shelf import REPORTS_PER_PAGE, ReportShelf, is_sound, period_text
from dashboards.url_state import REPORTS_PATH, View, parse, report_path
from engine.foundation.errors import LakeError
from pipelines.reports.shelf import DAYS_KEPT, PAGE_FILE, PAPER_FILE, ReportRun
from pipelines.reports.windows import Period

HIDDEN, SHOWN = "reports-body hidden", "reports-body"
PERIODS: Final = {"": "all", **{one.value: one.value for one in Period}}
RUN_ID_SHOWN: Final = 12


def layout() -> html.Div:
    """The kinds of period, a search, and the list."""
    finding = search_field("reports-search", "whose name or sentence holds")
    listed = html.Div([finding, *drawn("reports-list"), html.Div(id="reports-pager")])
    return html.Div(
        [
            html.Div(
                [html.H1("Reports"), html.Span(id="reports-note", className="card-note")],
                className="page-head",
            ),
            html.Nav(id="reports-periods", className="parts", **{"aria-label": "Periods"}),
            html.Div(id="reports-notice"),
            html.Div(
                card("What was each period like?", listed, element="reports-card"),
                id="reports-body",
                className=HIDDEN,
            ),
        ]
    )


def content(context: PageContext, search: str | None) -> tuple[Any, ...]:
    """(notice, body class, kinds of period, note, list as a tree, links to its pages)."""
    view, shelf = parse(search), context.reports
    try:
        runs, found, page = shelf.page(view.period, view.query, view.page)
        is_empty = not found and not (view.period or view.query)
        lines = [_row(context, one, view) for one in runs]
    except LakeError as error:
        return failure(str(error), context.clock()), HIDDEN, _periods(view), "", None, None
    if is_empty:
        return none_yet(shelf), HIDDEN, _periods(view), "", None, None
    headings = ("period", "what it was like", "groups", "new against before", "made", "files")
    listed = table(headings, lines, label="Reports, the newest first")
    shown = listed if lines else quiet("No report is like that.")
    turned = pager(REPORTS_PATH, view, found, size=REPORTS_PER_PAGE, of="reports")
    return None, SHOWN, _periods(view), _note(found, page, view), tree(shown), turned


def none_yet(shelf: ReportShelf) -> html.Div:
    """No report was made: the two commands that make one."""
    steps = (
        ("Make the report of yesterday now:", f"tidemark reports run {shelf.option}"),
        (
            "Or have the platform's own jobs make one each hour, day and week:",
            "tidemark jobs install --zone UTC",
        ),
    )
    listed = [html.Li([html.Span(text), html.Code(command)]) for text, command in steps]
    said = html.P("A report shows what an hour, a day or a week was like, from what gold knew.")
    return notice(
        "No report was made yet", [said, html.Ol(listed, className="steps")], kind="empty"
    )


def _note(found: int, page: int, view: View) -> str:
    text = plural(found, "report")
    if page != view.page:
        text += f"; there is no page {view.page:,}, this is the last"
    return f"{text}; each is about the whole lake" if view.cluster else text


def _periods(view: View) -> list[Any]:
    return [
        dcc.Link(
            said,
            href=REPORTS_PATH + view.search(period=period, page="1"),
            className="nav-link here" if period == view.period else "nav-link",
        )
        for period, said in PERIODS.items()
    ]


def _row(context: PageContext, run: ReportRun, view: View) -> list[Any]:
    if not is_sound(run):
        strange = html.Span(visible(run.name), className="wrap")
        return [strange, quiet("Its row is none of ours."), "", "", "", ""]
    return [
        html.Div(
            [
                dcc.Link(
                    visible(period_text(run)),
                    href=report_path(run.name) + view.around_page.search(),
                    className="name",
                ),
                html.Div(visible(run.name), className="exact reason"),
            ],
            className="report-period",
        ),
        html.Div(
            [
                html.Div(visible(run.headline)),
                *(
                    html.Div(visible(note), className="revised")
                    for note in (run.rebuilt, run.revised)
                    if note
                ),
            ],
            className="what",
        ),
        verdicts_of(run),
        _news(context, run),
        html.Div(
            [
                html.Div(f"{clock(run.made_at, day=True)} UTC", className="exact"),
                html.Div(f"took {duration(run.took_ms)}; {cut_text(run)}", className="reason"),
            ]
        ),
        _files(context.reports, run),
    ]


def cut_text(run: ReportRun) -> str:
    """What a report was made from."""
    name = visible(run.run_id)
    shown = name if len(name) <= RUN_ID_SHOWN else f"{name[:RUN_ID_SHOWN]}…"
    return f"cycle {run.cycle:,} of {shown}"


def verdicts_of(run: ReportRun) -> html.Div:
    """How many groups missed and kept their objective, and of how many that is unclear."""
    kept = run.groups - run.missed - run.unclear
    pills = [
        worded(sign, f"{count(number)} {word}", css)
        for sign, number, word, css in (
            ("■", run.missed, "missed", "stalled"),
            ("?", run.unclear, "unclear", "unknown"),
            ("✓", kept, "kept", "ok"),
        )
        if number
    ]
    return html.Div(pills or "no group", className="verdicts")


def _news(context: PageContext, run: ReportRun) -> Any:
    numbers = context.reports.numbers(run).numbers
    if numbers is None:
        return html.Span("unknown", className="reason")
    counted = news_counts(numbers)
    if counted is None:
        return html.Span("nothing known of before", className="reason")
    worse, better = counted
    said = [html.Div(f"▼ {count(worse)} worse", className="worse")] if worse else []
    said += [html.Div(f"▲ {count(better)} better", className="better")] if better else []
    return html.Div(said or html.Span("nothing", className="reason"))


def _files(shelf: ReportShelf, run: ReportRun) -> html.Div:
    if not shelf.has(run, PAGE_FILE):
        days = DAYS_KEPT[Period(run.period)]
        return html.Div(f"gone: kept for {days:,} days", className="reason wrap")
    if run.no_paper:
        return html.Div(["page", html.Div("no PDF", title=run.no_paper, className="reason")])
    return html.Div("page, PDF" if shelf.has(run, PAPER_FILE) else "page; the PDF is gone")


def register(app: Dash, context: PageContext) -> None:
    """The page's callbacks."""

    @app.callback(
        Output("reports-notice", "children"),
        Output("reports-body", "className"),
        Output("reports-periods", "children"),
        Output("reports-note", "children"),
        Output("reports-list-tree", "data"),
        Output("reports-pager", "children"),
        Input("pulse", "data"),
        Input("url", "search"),
    )
    async def show_reports(_: Any, search: str | None) -> Any:
        return await beside(content, context, search)

    register_drawn(app, "reports-list")
    register_search(app, "reports-search")


PAGE: Final = Page(REPORTS_PATH, "Reports", layout, register)
