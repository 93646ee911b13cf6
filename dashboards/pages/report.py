"""The page of one report: its frame, figures and files, and a comparison with another.

The address names the report to compare with; the default is the one of the period before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html

from dashboards.access.security import REPORT_SANDBOX
from dashboards.formatting import plural, visible
from dashboards.models.report_numbers import differing, groups_of, tally
from dashboards.page_context import PageContext, beside
from dashboards.pages import report_actions
from dashboards.pages.components import (
    card,
    coded,
    drawn,
    failure,
    notice,
    pager,
    quiet,
    register_drawn,
    tree,
)
from dashboards.pages.page import Page
from dashboards.pages.report_components import (
    GROUPS_PER_PAGE,
    differences_of,
    facts_of,
    facts_of_row,
    files_of,
    group_table,
    origin_of,
    runs_table,
)
from dashboards.reads.report_shelf import is_sound, period_text
from dashboards.url_state import REPORTS_PATH, View, parse, report_file_path, report_of, report_path
from engine.foundation.errors import LakeError
from pipelines.reports.shelf import PAGE_FILE, ReportRun

HIDDEN, SHOWN = "report-body hidden", "report-body"
OUTPUTS: Final = (
    ("report-notice", "children"),
    ("report-body", "className"),
    ("report-title", "children"),
    ("report-headline", "children"),
    ("report-facts", "children"),
    ("report-files", "children"),
    ("report-origin-tree", "data"),
    ("report-frame", "children"),
    ("report-runs-tree", "data"),
    ("report-runs-card", "className"),
    ("report-choices", "children"),
    ("report-against", "children"),
    ("report-differences-tree", "data"),
    ("report-groups-note", "children"),
    ("report-groups-tree", "data"),
    ("report-groups-pager", "children"),
)


def layout(name: str) -> html.Div:
    """Frame and figures side by side; below them the groups, and what differs."""
    figures = [
        card("In short", html.Div(id="report-facts"), element="report-facts-card"),
        report_actions.layout(),
        card("Files", html.Div(id="report-files"), element="report-files-card"),
        card("Made from", html.Div(drawn("report-origin")), element="report-origin-card"),
    ]
    comparing = [html.Div(id="report-choices"), *drawn("report-differences")]
    listing = [*drawn("report-groups"), html.Div(id="report-groups-pager")]
    below = [
        card("Runs about this period", html.Div(drawn("report-runs")), element="report-runs-card"),
        card(
            "What differs?",
            html.Div(comparing),
            element="report-differences-card",
            note=html.Span(id="report-against"),
        ),
        card(
            "Groups, the worst first",
            html.Div(listing),
            element="report-groups-card",
            note=html.Span(id="report-groups-note"),
        ),
    ]
    return html.Div(
        [
            html.Div(
                [
                    dcc.Link("Reports", href=REPORTS_PATH, className="crumb", id="report-crumb"),
                    html.H1(name, id="report-title"),
                    html.Span(name, className="card-note exact"),
                ],
                className="page-head report-head",
            ),
            html.P(id="report-headline", className="report-headline"),
            html.Div(id="report-notice"),
            html.Div(
                [
                    html.Div(
                        [
                            html.Div(id="report-frame", className="card report-frame"),
                            html.Div(figures, className="column"),
                        ],
                        className="split",
                    ),
                    *below,
                ],
                id="report-body",
                className=HIDDEN,
            ),
        ]
    )


def content(context: PageContext, path: str | None, search: str | None) -> tuple[Any, ...]:
    """What OUTPUTS show."""
    view, name = parse(search), report_of(path or "") or ""
    try:
        run = context.reports.named(name)
        if run is None or not is_sound(run):
            return _instead(name, _missing(context, name))
        return _Shown(context, run, view).outputs()
    except LakeError as error:
        return _instead(name, failure(str(error), context.clock()))


def _missing(context: PageContext, name: str) -> html.Div:
    command = html.Code(f"tidemark reports list {context.reports.option}")
    said = [
        html.P(f"{name or 'That'} is none of this lake: its row is not there, or not any more."),
        html.P(["What there is: ", dcc.Link("all reports", href=REPORTS_PATH), " or ", command]),
    ]
    return notice("There is no such report", said, kind="missing")


def _instead(name: str, shown: Any) -> tuple[Any, ...]:
    empty = {"report-notice": shown, "report-body": HIDDEN, "report-title": name}
    return tuple(empty.get(element) for element, _ in OUTPUTS)


@dataclass(frozen=True, slots=True)
class _Shown:
    """One report, as one look asks for it."""

    context: PageContext
    run: ReportRun
    view: View

    def outputs(self) -> tuple[Any, ...]:
        """The values of OUTPUTS, in their order."""
        shelf, run, view = self.context.reports, self.run, self.view
        stored = shelf.numbers(run)
        runs = shelf.of_period(run)
        choices, against, differences = self._compared()
        groups = groups_of(stored.numbers, view.cluster) if stored.numbers is not None else ()
        note = plural(len(groups), "group")
        turned = pager(
            report_path(run.name),
            view,
            len(groups),
            size=GROUPS_PER_PAGE,
            of="groups of the report",
        )
        facts = facts_of_row(run) if stored.numbers is None else facts_of(stored.numbers, view)
        of_one = f" of cluster {visible(view.cluster)}" if view.cluster else ""
        return (
            None,
            SHOWN,
            visible(period_text(run)),
            visible(run.headline),
            facts,
            files_of(shelf, run),
            tree(origin_of(run)),
            self._frame(),
            tree(runs_table(run, runs, view)),
            "card" if len(runs) > 1 else "card hidden",
            choices,
            against,
            tree(differences),
            note + of_one,
            tree(group_table(stored.numbers, groups, view)),
            turned,
        )

    def _frame(self) -> Any:
        run = self.run
        try:
            self.context.reports.file(run, PAGE_FILE)
        except LakeError as error:
            return notice("The page is not there", [html.P(coded(str(error)))], kind="gone")
        return html.Iframe(
            src=report_file_path(run.name, PAGE_FILE),
            sandbox=REPORT_SANDBOX,
            title=f"The page of the report: {period_text(run)}",
            referrerPolicy="no-referrer",
        )

    def _compared(self) -> tuple[Any, str, Any]:
        """(links to what it may be compared with, with what it is, the differences)."""
        shelf, run, view = self.context.reports, self.run, self.view
        other = shelf.named(view.against) if view.against else shelf.before(run)
        if other is not None and not is_sound(other):
            other = None
        choices = self._choices(other)
        if other is None:
            return choices, "", self._nothing_before()
        before, after = shelf.numbers(other), shelf.numbers(run)
        against = f"from {period_text(other)}, run {other.number}, to this one"
        if before.numbers is None or after.numbers is None:
            return choices, against, quiet(coded(before.trouble or after.trouble))
        things = differing(before.numbers, after.numbers, view.cluster)
        stored = differences_of(
            things, (before.numbers, after.numbers), (other, run), view=view, shelf=shelf
        )
        return choices, f"{against}: {tally(things)}", stored

    def _nothing_before(self) -> Any:
        run, shelf = self.run, self.context.reports
        if self.view.against:
            return quiet(f"{visible(self.view.against)} is none of this lake.")
        window = run.of_window.before
        options = f"--from {window.begin:%Y-%m-%dT%H:%M:%SZ} --to {window.end:%Y-%m-%dT%H:%M:%SZ}"
        if run.period != "custom":
            at = f"{window.end:%Y-%m-%dT%H:%M:%SZ}"
            options = f"--period {run.period} --at {at} --zone {run.zone}"
        command = f"tidemark reports run {shelf.option} {options}"
        said = "There is no report of the period before, so nothing is compared. This makes it, "
        return [quiet([said, "while gold keeps those days:"]), html.Code(command)]

    def _choices(self, other: ReportRun | None) -> html.Div:
        view, run, shelf = self.view, self.run, self.context.reports
        here = report_path(run.name)

        def to(text: str, name: str, *, chosen: bool) -> dcc.Link:
            css = "choice here" if chosen else "choice"
            return dcc.Link(text, href=here + view.search(against=name), className=css)

        chosen = other.name if view.against and other is not None else ""
        menu = [to(_named(one), one.name, chosen=one.name == chosen) for one in shelf.others(run)]
        said = "another report" if not chosen or other is None else _named(other)
        label = [html.B(said), html.Span("▾")]
        children: list[Any] = [
            html.Span("against", className="choices-name"),
            to("the period before", "", chosen=not view.against),
        ]
        if menu:
            # Its key: what was open for the choice before is closed.
            children.append(
                html.Details(
                    [html.Summary(label), html.Div(menu, className="menu-list")],
                    key=view.against,
                    className="menu here" if view.against else "menu",
                )
            )
        return html.Div(children, className="choices report-choices")


def _named(run: ReportRun) -> str:
    return f"{visible(period_text(run))}, run {run.number}"


def register(app: Dash, context: PageContext) -> None:
    """The page's callbacks."""

    @app.callback(
        *(Output(element, prop) for element, prop in OUTPUTS),
        Input("pulse", "data"),
        Input("url", "search"),
        State("url", "pathname"),
    )
    async def show_report(_: Any, search: str | None, path: str | None) -> Any:
        return await beside(content, context, path, search)

    @app.callback(Output("report-crumb", "href"), Input("url", "search"))
    def show_way_back(search: str | None) -> str:
        return REPORTS_PATH + parse(search).around_page.search()

    report_actions.register(app, context)
    for place in ("report-origin", "report-runs", "report-differences", "report-groups"):
        register_drawn(app, place)


PAGE: Final = Page(
    f"{REPORTS_PATH}/",
    "Report",
    layout,
    register,
    report_of,
    in_navigation=False,
    part_of=REPORTS_PATH,
)
