"""Lists on the job pages: jobs, executors, users, long-running operations and audit entries."""

from __future__ import annotations

from typing import Any, Final

from dash import dcc, html

from dashboards.formatting import duration, plural
from dashboards.pages.alert_components import worded
from dashboards.pages.components import card, coded, quiet, table
from dashboards.pages.job_components import (
    action_link,
    asking,
    cut,
    job_pill,
    moment,
    run_pill,
    schedule_text,
)
from dashboards.pages.job_url_state import PARTS, JobView, elsewhere, linked
from pipelines.database.operations import Operation
from pipelines.database.tables import Ended
from pipelines.operations.service import operation_json
from pipelines.scheduler.page_queries import Executor, PageService
from pipelines.scheduler.roles import Action
from pipelines.scheduler.store.groups import Group
from pipelines.scheduler.store.job_lists import JOBS_A_PAGE, JobLine, JobOrder, JobState
from pipelines.scheduler.store.people import User
from pipelines.scheduler.store.registry import GONE_MS

GROUPS_CHOSEN_MAX: Final = 500
EXECUTORS_SHOWN_MAX: Final = 200
AUDIT_SHOWN: Final = 200
GROUPS_BY_COMMAND: Final = (
    "Administrators change groups here; tokens of their own are given at the command line, which "
    "says them once: `tidemark scheduler groups token`."
)
PARTS_OF: Final = {"/jobs/audit": Action.SEE_AUDIT, "/jobs/users": Action.CHANGE_PEOPLE}
"""Somebody without the right to do this has no such page."""
USER_ACTIONS: Final = ("edit", "copy", "password", "remove")
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


def head(part: str, service: PageService, search: str | None) -> list[Any]:
    """The name of the page, its parts, and the way to make a job."""
    shown = [one for one in PARTS if one not in PARTS_OF or service.may(PARTS_OF[one])]
    links = [
        dcc.Link(
            PARTS[one],
            href=elsewhere(one, search),
            className="nav-link here" if one == part else "nav-link",
        )
        for one in shown
    ]
    actions = []
    if part == "/jobs" and any(
        service.may(Action.CHANGE_JOBS, group.group_id) for group in service.groups()
    ):
        actions.append(action_link("new job", linked(part, search, do="add")))
    if part == "/jobs/executors" and service.may(Action.CHANGE_GROUPS):
        actions.append(action_link("new group", linked(part, search, do="group-add", name=None)))
    if part == "/jobs/users" and service.may(Action.CHANGE_PEOPLE):
        actions.append(action_link("new user", linked(part, search, do="user-add", name=None)))
    return [
        html.Div(html.H1("Jobs"), className="page-head"),
        html.Div(
            [html.Nav(links, className="parts"), html.Div(actions, className="actions")],
            className="job-bar",
        ),
    ]


def jobs(service: PageService, view: JobView, search: str | None) -> Any:
    """The jobs that are found, a page of them."""
    page = service.job_page(view.query)
    apps = [group.app_name for group in service.groups()][:GROUPS_CHOSEN_MAX]
    query = view.query
    groups = [("", "all groups"), *((one, cut(one, 60)) for one in apps)]
    states = [(one.value, one.value or "all states") for one in JobState]
    orders = [(one.value, one.value or "number") for one in JobOrder]
    asks = html.Div(
        [
            asking("group", "group", query.app_name, groups),
            asking("state", "state", query.state.value, states),
            asking("sort", "sorted by", query.order.value, orders),
        ],
        className="asks",
    )
    if not page.lines:
        is_asked = query.text or query.app_name or query.state.value
        said = "No job is that." if is_asked else "There is no job yet that you may see."
        return [asks, quiet(said)]
    headings = ("job", "group", "state", "schedule", "next, by its zone", "last run", "p95", "do")
    rows = [_row(line, service, search) for line in page.lines]
    return [
        asks,
        table(headings, rows, label="Jobs"),
        _turns(page.page, page.found, search),
    ]


def _row(line: JobLine, service: PageService, search: str | None) -> list[Any]:
    job, settings = line.job, line.job.settings
    path = f"/jobs/{job.job_id}"
    what = html.Div(
        [
            html.Div(
                [
                    dcc.Link(
                        cut(settings.title), href=elsewhere(path, search), className="name jump"
                    ),
                    html.Span(f" {job.job_id}", className="reason"),
                ]
            ),
            html.Div(cut(settings.handler or settings.glue_type, 80), className="reason"),
        ],
        className="what",
    )
    why = job.wrong_because or job.stopped_because
    stands = [job_pill(job)] + ([html.Div(cut(why, 200), className="reason")] if why else [])
    last: Any = html.Span("never", className="reason")
    if line.last is not None:
        last = html.Div(
            [
                run_pill(line.last.state),
                html.Div(f"{moment(line.last.planned_ms)} UTC", className="exact"),
            ]
        )
    next_one = html.Span(
        moment(job.next_ms, settings.zone) if job.next_ms else "", className="exact"
    )
    return [
        what,
        html.Span(cut(line.app_name, 60), className="wrap"),
        html.Div(stands, className="where"),
        html.Div(schedule_text(job)),
        next_one,
        last,
        "" if line.p95_ms is None else html.Span(duration(line.p95_ms), className="number"),
        _actions(line, service, search),
    ]


def _actions(line: JobLine, service: PageService, search: str | None) -> Any:
    if not service.may(Action.CHANGE_JOBS, line.job.group_id):
        return ""
    path = f"/jobs/{line.job.job_id}"
    stands = "pause" if line.job.is_active else "start"
    return html.Div(
        [
            dcc.Link("run", href=elsewhere(path, search, do="run"), className="jump"),
            dcc.Link(stands, href=elsewhere(path, search, do=stands), className="jump"),
        ],
        className="links",
    )


def _turns(page: int, found: int, search: str | None) -> Any:
    pages = max(1, -(-found // JOBS_A_PAGE))
    begin, end = (page - 1) * JOBS_A_PAGE + 1, min(found, page * JOBS_A_PAGE)
    places = ((1, "first"), (page - 1, "previous"), (page + 1, "next"), (pages, "last"))
    links = [
        dcc.Link(text, href=linked("/jobs", search, page=to), className="choice")
        if 1 <= to <= pages and to != page
        else html.Span(text, className="choice")
        for to, text in places
    ]
    links.insert(2, html.Span(f"{begin:,} to {end:,} of {found:,}", className="choice here"))
    return html.Nav(links, className="choices pager", **{"aria-label": "Pages of jobs"})


def executors(service: PageService, search: str | None) -> list[Any]:
    """Groups, and where their executors are."""
    found = service.executors()
    now_ms = service.now_ms
    words = ("edit", "copy", "remove") if service.may(Action.CHANGE_GROUPS) else ()
    cards: list[Any] = [
        _group(
            group,
            there,
            now_ms,
            actions("/jobs/executors", search, "group", group.app_name, words=words),
        )
        for group, there in found
    ]
    if not cards:
        cards.append(quiet("There is no group yet that you may see."))
    return [*cards, html.P(coded(GROUPS_BY_COMMAND), className="quiet")]


def _group(group: Group, there: list[Executor], now_ms: int, actions: Any) -> Any:
    rows = [_executor(one, now_ms) for one in there[:EXECUTORS_SHOWN_MAX]]
    by_hand = group.manual_addresses is not None
    token = "a token of their own" if group.has_token else "the common token"
    title = "" if group.title == group.app_name else f"{cut(group.title)}; "
    how = "addresses written by hand" if by_hand else "they register"
    shown: Any = quiet("No executor is there: its runs are refused.")
    if rows:
        shown = table(
            ("executor", "state", "last beat"), rows, label=f"Executors of {group.app_name}"
        )
    if len(there) > EXECUTORS_SHOWN_MAX:
        shown = html.Div([shown, quiet(f"and {len(there) - EXECUTORS_SHOWN_MAX:,} more")])
    return card(
        cut(group.app_name),
        html.Div([shown, actions]),
        element=f"group-{group.group_id}",
        note=f"{title}{plural(len(there), 'executor')}, {how}, {token}",
    )


def _executor(one: Executor, now_ms: int) -> list[Any]:
    address = html.Span(cut(one.address, 255), className="exact")
    if one.seen_ms is None:
        return [address, worded("✎", "by hand", "unknown"), "nobody asks whether it is there"]
    age_ms = max(0, now_ms - one.seen_ms)
    pill = worded("●", "there", "ok") if age_ms < GONE_MS else worded("■", "gone", "stopped")
    return [address, pill, f"{duration(age_ms // 1000 * 1000)} ago"]


def audit(service: PageService, view: JobView) -> list[Any]:
    """The audit, the newest first. Raises NotPermitted unless he may see it."""
    wanted = view.query.text
    noted = [
        one
        for one in service.audit_of()
        if not wanted
        or wanted.casefold() in f"{one.author}\n{one.action}\n{one.subject}".casefold()
    ]
    if not noted:
        return [quiet("Nobody has changed anything that is that.")]
    rows = [
        [
            html.Span(moment(one.at_ms), className="exact"),
            html.Span(cut(one.author) if one.author else "nobody known", className="wrap"),
            cut(one.action),
            _subject(one.subject),
            html.Span(cut(one.detail, 300) if one.detail else "", className="wrap"),
        ]
        for one in noted[:AUDIT_SHOWN]
    ]
    note = (
        f"{AUDIT_SHOWN} at most, of the last thousand; `tidemark scheduler audit --before` has more"
    )
    listed = table(("when, UTC", "who", "did", "to", "how"), rows, label="Audit")
    return [listed, html.P(coded(note), className="quiet")]


def _subject(subject: str) -> Any:
    kind, _, number = subject.partition(":")
    if kind == "job" and number.isdigit():
        return dcc.Link(cut(subject), href=f"/jobs/{number}", className="jump")
    return html.Span(cut(subject))


def users(service: PageService, search: str | None) -> Any:
    """Users and their rights. Raises NotPermitted for who is no administrator."""
    names = {one.group_id: one.app_name for one in service.groups()}
    rows = [_user(one, names, search) for one in service.users()]
    return table(("user", "may", "signs in", ""), rows, label="Users")


def _user(user: User, names: dict[int, str], search: str | None) -> list[Any]:
    apps = ", ".join(cut(names.get(one, one), 64) for one in user.group_ids)
    may = "everything" if user.is_admin else f"see and change the jobs of {apps or 'no group'}"
    signs_in = worded("✓", "by password", "ok") if user.has_password else "no password"
    return [
        html.Span(cut(user.name), className="name"),
        html.Span(may, className="wrap"),
        signs_in,
        actions("/jobs/users", search, "user", user.name, words=USER_ACTIONS),
    ]


def actions(
    path: str, search: str | None, kind: str, name: str, *, words: tuple[str, ...]
) -> html.Div:
    """Links to what can be done with one of them."""
    links = [
        dcc.Link(word, href=linked(path, search, do=f"{kind}-{word}", name=name), className="jump")
        for word in words
    ]
    return html.Div(links, className="links")


def operations(service: PageService) -> list[Any]:
    """Long actions, the newest first."""
    rows = [_operation(one) for one in service.operations()]
    shown: Any = quiet("Nobody has begun a long action within the last week.")
    if rows:
        shown = table(("operation", "", "begun, UTC", "by", "said last"), rows, label="Operations")
    return [shown, html.P(coded(BY_COMMAND), className="quiet")]


def _operation(one: Operation) -> list[Any]:
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
