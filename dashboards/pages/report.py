"""Page for a single report, with its figures, its files and a comparison with another.

The address names the report to compare with; the default is the one of the period before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dash import Dash, Input, Output, State, dcc, html

from dashboards.access.security import REPORT_SANDBOX
from dashboards.formatting import clock, count, duration, plural, spoken, visible
from dashboards.models.report_numbers import (
    PARTS,
    THINGS_MAX,
    Changed,
    Thing,
    differing,
    groups_of,
    news_counts,
    percent,
    summary,
    tally,
)
from dashboards.page_context import PageContext, beside
from dashboards.pages import report_actions
from dashboards.pages.alert_components import worded
from dashboards.pages.components import (
    card,
    coded,
    drawn,
    failure,
    notice,
    pager,
    quiet,
    register_drawn,
    table,
    tree,
)
from dashboards.pages.page import Page
from dashboards.reads.report_shelf import ReportShelf, is_sound, period_text
from dashboards.url_state import (
    REPORTS_PATH,
    View,
    group_path,
    parse,
    report_file_path,
    report_of,
    report_path,
    within,
)
from engine.foundation.errors import LakeError
from pipelines.base.time_units import moment_at
from pipelines.reports.comparing import Tendency
from pipelines.reports.numbers import GroupFigures, Numbers, Verdict
from pipelines.reports.shelf import NOTEBOOK_FILE, NUMBERS_FILE, PAGE_FILE, PAPER_FILE, ReportRun

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
GROUPS_PER_PAGE: Final = 25
CHANGES_SHOWN: Final = 6
VERDICT_SIGNS: Final = {
    Verdict.MISSED: ("■", "missed", "stalled"),
    Verdict.UNCLEAR: ("?", "unclear", "unknown"),
    Verdict.KEPT: ("✓", "kept", "ok"),
}
TENDENCY_SIGNS: Final = {Tendency.WORSE: "▼", Tendency.BETTER: "▲", Tendency.OPEN: ""}
FILES: Final = (
    (PAGE_FILE, "The page by itself"),
    (PAPER_FILE, "PDF"),
    (NUMBERS_FILE, "All numbers (JSON)"),
    (NOTEBOOK_FILE, "The notebook that was run"),
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


def facts_of(numbers: Numbers, view: View) -> html.Dl:
    """The report in a few figures; of one cluster, its own."""
    shown: list[Any] = []
    for one in summary(numbers, view.cluster):
        note = html.Small(f" {one.note}") if one.note else ""
        shown.append(html.Div([html.Dt(one.name), html.Dd([one.value, note])]))
    counted = news_counts(numbers)
    news: Any = html.Small("nothing is known of the period before")
    if counted is not None:
        worse, better = counted
        news = [f"{count(worse)} ", html.Small(f"worse, {count(better)} better")]
    shown.append(html.Div([html.Dt("new"), html.Dd(news)]))
    return html.Dl(shown, className="facts report-facts")


def facts_of_row(run: ReportRun) -> html.Div:
    """What is known of a report without its numbers."""
    counted = (("missed", run.missed), ("unclear", run.unclear))
    pieces = [("kept", run.groups - run.missed - run.unclear), *counted]
    pairs = [html.Div([html.Dt(name), html.Dd(count(number))]) for name, number in pieces]
    said = quiet(f"of {plural(run.groups, 'group')}; its numbers are not there")
    return html.Div([html.Dl(pairs, className="facts report-facts"), said])


def files_of(shelf: ReportShelf, run: ReportRun) -> html.Div:
    """Links to its files; of those that are not there, why."""
    lines: list[Any] = []
    for name, said in FILES:
        if name == PAPER_FILE and run.no_paper:
            lines.append(html.Li(f"No PDF: {visible(run.no_paper).removeprefix('no PDF: ')}"))
        elif shelf.has(run, name):
            is_page = name == PAGE_FILE
            # Not a link of the application, which would look for a page of that address.
            address = report_file_path(run.name, name)
            lines.append(html.Li(html.A(said, href=address, target="_blank" if is_page else None)))
        else:
            lines.append(html.Li(f"{said}: not there any more", className="reason"))
    return html.Div(html.Ul(lines, className="plain-list"))


def origin_of(run: ReportRun) -> html.Dl:
    """What it was made from, when, and under which name."""
    pieces = (
        ("cut", f"cycle {run.cycle:,} of run {visible(run.run_id)}"),
        ("taken", f"{clock(moment_at(run.told_at_us), day=True)} UTC"),
        ("made", f"{clock(run.made_at, day=True)} UTC, in {duration(run.took_ms)}"),
        ("numbers", visible(run.digest)),
        ("zone of its days", visible(run.zone)),
    )
    pairs = [html.Div([html.Dt(name), html.Dd(said)]) for name, said in pieces]
    return html.Dl(pairs, className="pairs")


def runs_table(run: ReportRun, runs: Sequence[ReportRun], view: View) -> Any:
    """All runs about its period, with what each one has changed."""
    rows = []
    for one in runs:
        is_this = one.name == run.name
        name = f"run {one.number}"
        href = report_path(one.name) + view.around_page.search()
        link = html.B(f"{name}, this one") if is_this else dcc.Link(name, href=href)
        comparing = report_path(run.name) + view.search(against=one.name)
        rows.append(
            [
                link,
                html.Span(f"{clock(one.made_at, day=True)} UTC", className="exact"),
                html.Span(f"{one.cycle:,} of {visible(one.run_id)[:12]}", className="exact"),
                _same_or_not(one, run),
                html.Div(_against_the_run_before(one), className="wrap reason"),
                "" if is_this else dcc.Link("with this one", href=comparing, className="jump"),
            ]
        )
    headings = ("run", "made", "cut: cycle", "numbers", "against the run before it", "compare")
    return table(headings, rows, label="Runs about this period, the newest first")


def _against_the_run_before(run: ReportRun) -> str:
    notes = [note for note in (run.rebuilt, run.revised) if note]
    if notes:
        return visible(" ".join(notes))
    return "it is the first one" if run.number == 1 else "the same"


def _same_or_not(one: ReportRun, run: ReportRun) -> Any:
    if one.name == run.name:
        return html.Span(visible(one.digest), className="exact")
    return (
        worded("=", "the same", "ok") if one.digest == run.digest else worded("≠", "others", "slow")
    )


def differences_of(
    things: Sequence[Thing],
    numbers: tuple[Numbers, Numbers],
    runs: tuple[ReportRun, ReportRun],
    *,
    view: View,
    shelf: ReportShelf,
) -> Any:
    """A line a thing, the worse ones first."""
    if not things:
        return quiet("They have the same numbers.")
    clusters = {one.cluster for some in numbers for one in some.groups}
    rows = [
        [
            html.Div(PARTS[one.part], className="reason"),
            _about(one, runs[1], view, names_clusters=len(clusters) > 1),
            html.Div(
                [
                    *(_change(change) for change in one.changed[:CHANGES_SHOWN]),
                    *_rest(len(one.changed) - CHANGES_SHOWN),
                ],
                className="changes",
            ),
        ]
        for one in things[:THINGS_MAX]
    ]
    listed = [table(("of", "which", "what differs"), rows, label="What differs, the worse first")]
    if len(things) > THINGS_MAX:
        command = f"tidemark reports compare {runs[1].name} {runs[0].name} {shelf.option}"
        listed.append(quiet(f"and {plural(len(things) - THINGS_MAX, 'more line')}; all of them:"))
        listed.append(html.Code(command))
    lengths = {one.end_us - one.begin_us for one in numbers}
    if len(lengths) > 1:
        said = "The periods are not equally long: sums over them are not called better or worse."
        listed.insert(0, quiet(said))
    return listed


def _rest(number: int) -> list[Any]:
    return (
        [html.Span(f"and {plural(number, 'more figure')}", className="reason")]
        if number > 0
        else []
    )


def _about(thing: Thing, run: ReportRun, view: View, *, names_clusters: bool) -> Any:
    if thing.place is None:
        said = visible(
            spoken(thing.about) if thing.part in ("stalls", "duplicates") else thing.about
        )
        return html.Div([said, *([quiet("all clusters")] if _is_summed(thing, view) else [])])
    cluster, group = thing.place
    return group_link(cluster, group, run.begin, run.end, names_clusters=names_clusters)


def _is_summed(thing: Thing, view: View) -> bool:
    return bool(view.cluster) and thing.part in ("stalls", "duplicates", "checks", "offsets")


def _change(one: Changed) -> html.Div:
    sign = TENDENCY_SIGNS[one.tendency]
    pieces: list[Any] = [
        html.Span(f"{one.name} ", className="label-name"),
        f"{one.before} → {one.after}",
    ]
    if one.arrow:
        pieces.append(html.Span(f" {one.arrow}", **{"aria-hidden": "true"}))
    if sign:
        pieces.append(html.B(f" {sign} {one.tendency.value}"))
    return html.Div(pieces, className=f"differing {one.tendency.value}".strip())


def group_link(
    cluster: str, group: str, begin: datetime, end: datetime, *, names_clusters: bool
) -> html.Div:
    """A group, leading to its page in the period of a report."""
    href = group_path(group) + within(begin, end, cluster=cluster if names_clusters else "")
    link = dcc.Link(visible(group), href=href, className="name")
    where = [html.Div(visible(cluster), className="reason")] if names_clusters else []
    return html.Div([link, *where], className="where")


def group_table(numbers: Numbers | None, groups: Sequence[GroupFigures], view: View) -> Any:
    """A page of the groups of a report, each leading to its page in that period."""
    if numbers is None:
        return quiet("Which groups there were is in its numbers, which are not there.")
    if not groups:
        return quiet("No group of this cluster is in it." if view.cluster else "No group is in it.")
    pages = max(1, -(-len(groups) // GROUPS_PER_PAGE))
    first = (min(view.page, pages) - 1) * GROUPS_PER_PAGE
    begin, end = moment_at(numbers.begin_us), moment_at(numbers.end_us)
    several = len({one.cluster for one in numbers.groups}) > 1
    rows = [
        [
            worded(*VERDICT_SIGNS[one.verdict]),
            group_link(one.cluster, one.group, begin, end, names_clusters=several),
            html.Span(percent(one.share_percent), className="number"),
            html.Span(_before(numbers, one), className="number"),
            html.Span(f"{duration(one.objective_ms)} for {one.target_percent:g} %"),
            html.Span(one.worst, className="number"),
            html.Span(duration(1000 * one.stood_s) if one.stalls else "–", className="number"),
            html.Span(one.again if one.again != "0" else "–", className="number"),
            html.Span(count(one.dead_letters) if one.dead_letters else "–", className="number"),
            html.Span(
                f"withheld: {visible(one.withheld)}" if one.withheld else spoken(one.state),
                className="reason",
            ),
        ]
        for one in groups[first : first + GROUPS_PER_PAGE]
    ]
    headings = (
        "objective", "group", "within", "before", "its objective", "worst lag", "stood still",
        "again", "given up", "at the end",
    )  # fmt: skip
    return table(headings, rows, label="Groups of the report, the worst first")


def _before(numbers: Numbers, one: GroupFigures) -> str:
    if not numbers.before_is_known:
        return "unknown"
    return percent(one.share_before_percent) if one.was_there else "new"
