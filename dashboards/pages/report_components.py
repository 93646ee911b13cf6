"""Components for the page of a report: facts, files, runs and differences."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from dash import dcc, html

from dashboards.formatting import clock, count, duration, plural, spoken, visible
from dashboards.models.report_numbers import (
    PARTS,
    THINGS_MAX,
    Changed,
    Thing,
    news_counts,
    percent,
    summary,
)
from dashboards.pages.alert_components import worded
from dashboards.pages.components import quiet, table
from dashboards.reads.report_shelf import ReportShelf
from dashboards.url_state import View, group_path, report_file_path, report_path, within
from pipelines.base.time_units import moment_at
from pipelines.reports.comparing import Tendency
from pipelines.reports.numbers import GroupFigures, Numbers, Verdict
from pipelines.reports.shelf import NOTEBOOK_FILE, NUMBERS_FILE, PAGE_FILE, PAPER_FILE, ReportRun

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
            html.Span(count(one.redelivered) if one.redelivered else "–", className="number"),
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
