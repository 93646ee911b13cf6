"""Page for a single job: its settings, schedule, runs, run logs and sources.

Place in the walk: `jobs` asks who reads it, and draws the components made here. Logs are followed
through executors, by a few threads of their own, so that those which do not answer hold up no page
that asks none.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from dash import dcc, html, no_update

from dashboards.actions.job_previews import TIMES_SHOWN
from dashboards.formatting import duration, plural, spoken, visible
from dashboards.page_context import PageContext
from dashboards.pages.components import card, node, quiet, table
from dashboards.pages.job_components import (
    MESSAGE_SHOWN_MAX,
    STEP_SIGNS,
    action_link,
    asking,
    cut,
    exact,
    facts,
    job_pill,
    moment,
    run_pill,
    worded,
)
from dashboards.pages.job_panel import SOURCE_CHARS_MAX, diff, source_of
from dashboards.pages.job_url_state import (
    JOB_PARTS,
    JobAddress,
    JobView,
    address_of,
    elsewhere,
    linked,
    view_of,
)
from engine.foundation.errors import ConfigError, TidemarkError
from pipelines.scheduler.diffs import source_diff
from pipelines.scheduler.job_settings import BEAN
from pipelines.scheduler.page_queries import PageService
from pipelines.scheduler.roles import Action, NotPermitted
from pipelines.scheduler.run_life import ENDED, OPEN, OUTSIDE, RunState
from pipelines.scheduler.store.results import Run

SHARD_ROWS_MAX: Final = 200
ASKS_AT_ONCE: Final = 4
"""Questions to executors; each may wait for an answer for some seconds. Beyond ASKS_WAITING_MAX a
page gets nothing new, and asks again with its next tick."""
ASKS_WAITING_MAX: Final = 16


class JobPage:
    """One look at one job."""

    def __init__(
        self, service: PageService, address: JobAddress, view: JobView, search: str | None
    ) -> None:
        """Raises NotPermitted for a job that is none of his, ConfigError for none."""
        assert address.job_id is not None, "the page of one job"
        self._service = service
        self._address = address
        self._view = view
        self._search = search
        self._job = service.job(address.job_id)
        self._group = service.group_of(self._job)
        self._may_change = service.may(Action.CHANGE_JOBS, self._job.group_id)

    def head(self) -> list[Any]:
        """Its name, where it stands, what may be done, and its parts."""
        job, path = self._job, self._address.path
        actions = [action_link(text, self._to(do=action)) for action, text in self._actions()]
        parts = [
            dcc.Link(
                text,
                href=elsewhere(f"/jobs/{job.job_id}" + (f"/{part}" if part else ""), self._search),
                className="nav-link here" if part == self._address.job_part else "nav-link",
            )
            for part, text in JOB_PARTS.items()
            if not part or job.settings.glue_type != BEAN
        ]
        return [
            html.Div(
                [
                    dcc.Link("Jobs", href=elsewhere("/jobs", self._search), className="crumb"),
                    node("h1", [cut(job.settings.title), node("small", f" {job.job_id}")]),
                    job_pill(job),
                ],
                className="page-head job-head",
                **{"data-path": path},
            ),
            html.Div([html.Nav(parts, className="parts"), html.Div(actions, className="actions")],
                     className="job-bar"),
        ]  # fmt: skip

    def _actions(self) -> list[tuple[str, str]]:
        if not self._may_change:
            return []
        if self._address.job_part == "source":
            return [("source", "edit the source")]
        stands = ("pause", "pause") if self._job.is_active else ("start", "start")
        others = (("edit", "edit"), ("copy", "copy"), ("remove", "remove"))
        return [("run", "run now"), stands, *others]

    def body(self) -> list[Any]:
        """What the part is made of."""
        if self._address.job_part == "source":
            return self._sources()
        return [html.Div([self._settings(), self._next()], className="job-split"), self._history()]

    def _settings(self) -> Any:
        settings = self._job.settings
        titles = self._service.titles_of(list(settings.children[:20]))
        children = ", ".join(
            f"{one} {cut(titles[one], 40)}" if one in titles else str(one)
            for one in settings.children
        )
        wrong = []
        if self._job.wrong_because is not None:
            wrong.append(("it cannot be", html.Span(cut(self._job.wrong_because, 400))))
        if self._job.stopped_because is not None:
            wrong.append(("the scheduler stopped it", cut(self._job.stopped_because, 400)))
        shown = facts(
            [
                *wrong,
                ("group", cut(self._group.app_name)),
                ("schedule", f"{settings.schedule_kind} {settings.schedule_text}".strip()),
                ("zone", cut(settings.zone)),
                ("handler", cut(settings.handler)),
                ("kind of source", "" if settings.glue_type == BEAN else cut(settings.glue_type)),
                ("parameters", cut(settings.parameters, 400) if settings.parameters else ""),
                ("routing", cut(settings.route)),
                ("while another run is at work", cut(settings.blocking)),
                ("misfires", cut(settings.misfire)),
                ("time-out", f"{settings.timeout_s} s" if settings.timeout_s else "none"),
                ("retries", str(settings.retries)),
                ("children", children),
                ("author", cut(settings.author) if settings.author else ""),
                ("changed", f"{moment(self._job.changed_ms)} UTC"),
            ]
        )
        return card("What is it?", shown, element="job-settings")

    def _next(self) -> Any:
        job, zone = self._job, self._job.settings.zone
        try:
            schedule = job.settings.schedule
            first = job.next_ms or schedule.next_ms(self._service.now_ms)
            times = schedule.upcoming_ms(first, count=TIMES_SHOWN)
        except ConfigError:
            return card("When does it run?", quiet("Its schedule cannot be."), element="job-next")
        if not times:
            said = "When somebody, a parent or a workflow starts it."
            if job.is_active:
                said = "When its run at work has ended."
            return card("When does it run?", quiet(said), element="job-next")
        clocks = [zone] if zone == "UTC" else [zone, "UTC"]
        rows = [
            [html.Span(moment(one, clock), className="exact") for clock in clocks] for one in times
        ]
        note = "" if job.is_active else "once it is started"
        headings = [f"by {cut(clock, 40)}" for clock in clocks]
        listed = table(headings, rows, label="Next times")
        return card("When does it run?", listed, element="job-next", note=note)

    def _history(self) -> Any:
        view = self._view
        found, is_more = self._service.runs_page(
            self._job.job_id, state=view.run_state, before=view.before
        )
        options = [("", "all states"), *((one.value, spoken(one.value)) for one in RunState)]
        chosen = view.run_state.value if view.run_state else ""
        shown: list[Any] = [
            html.Div(asking("rstate", "runs that are", chosen, options), className="asks")
        ]
        if found:
            headings = ("run", "state", "planned, UTC", "sent", "took", "why", "shard", "executor",
                        "its message", "do")  # fmt: skip
            rows = [self._run_row(run) for run in found]
            shown.append(table(headings, rows, label="Runs, the newest first"))
        else:
            shown.append(quiet("No run of it is known."))
        turns = []
        if view.before is not None:
            turns.append(dcc.Link("newest", href=self._to(before=None), className="choice"))
        if is_more:
            older = self._to(before=found[-1].log_id)
            turns.append(dcc.Link("older", href=older, className="choice"))
        if turns:
            shown.append(html.Nav(turns, className="choices pager", **{"aria-label": "Runs"}))
        return card("What became of its runs?", html.Div(shown), element="job-history")

    def _run_row(self, run: Run) -> list[Any]:
        message = run.result_message or run.trigger_message or ""
        is_this = run.log_id == self._view.run
        link = dcc.Link(
            str(run.log_id),
            href=self._to(run=run.log_id, do=None),
            className="jump here" if is_this else "jump",
        )
        shard = f"{run.shard_index + 1} of {run.shard_total}" if run.shard_total > 1 else ""
        again = f", try {run.attempt + 1}" if run.attempt else ""
        late = f" (reported {run.late_code} later)" if run.late_code is not None else ""
        return [
            link,
            run_pill(run.state),
            html.Span(moment(run.planned_ms), className="exact"),
            html.Span(moment(run.sent_ms)[11:] if run.sent_ms else "", className="exact"),
            _took(run, self._service.now_ms),
            html.Span(_cause(run) + again),
            shard,
            html.Span(run.address or "", className="exact"),
            html.Span(cut(message, MESSAGE_SHOWN_MAX) + late if message or late else "",
                      className="wrap"),
            self._kill_link(run),
        ]  # fmt: skip

    def _kill_link(self, run: Run) -> Any:
        if run.state not in OPEN or not self._may_change:
            return ""
        return dcc.Link("kill", href=self._to(run=run.log_id, do="kill"), className="jump")

    def run(self) -> Any:
        """The run that is looked at: where it stands, its shards, or its steps."""
        if self._view.run is None or self._address.job_part:
            return None
        run = self._service.run(self._view.run)
        if run.job_id != self._job.job_id:
            raise ConfigError("run", run.log_id, f"one of job {self._job.job_id}")
        message = run.result_message or run.trigger_message or ""
        actions = []
        if run.state not in ENDED and self._may_change:
            actions.append(action_link("kill it", self._to(do="kill")))
        actions.append(dcc.Link("close", href=self._to(run=None, do=None), className="jump"))
        shown: list[Any] = [
            html.Div([run_pill(run.state), html.Span(_cause(run)), *actions], className="actions"),
            facts(
                [
                    ("planned", f"{moment(run.planned_ms)} UTC"),
                    ("sent", f"{moment(run.sent_ms)} UTC" if run.sent_ms else "not yet"),
                    ("ended", f"{moment(run.ended_ms)} UTC" if run.ended_ms else "not yet"),
                    ("executor", run.address or "none"),
                    ("try", str(run.attempt + 1)),
                    ("its message", cut(message, 2_000) if message else ""),
                ]
            ),
        ]
        if run.shard_total > 1:
            shown.append(self._shards(run))
        if self._job.settings.is_workflow and run.address is None:
            shown.append(self._steps(run))
        return card(f"Run {run.log_id}", html.Div(shown), element="job-run")

    def _shards(self, run: Run) -> Any:
        shards = self._service.shards_of(run)
        done = sum(one.state is RunState.DONE for one in shards)
        over = sum(one.state in ENDED for one in shards)
        rows = [
            [
                f"{one.shard_index + 1} of {one.shard_total}",
                html.Div(html.Div(className=f"bar-fill bar-{_bar(one.state)}"), className="bar",
                         **{"aria-hidden": "true"}),
                run_pill(one.state),
                html.Span(one.address or "", className="exact"),
                str(one.attempt + 1),
                _took(one, self._service.now_ms),
                dcc.Link(f"run {one.log_id}", href=self._to(run=one.log_id), className="jump"),
            ]
            for one in shards[:SHARD_ROWS_MAX]
        ]  # fmt: skip
        headings = ("shard", "progress", "state", "executor", "try", "took", "run")
        said = f"{plural(over, 'shard')} of {len(shards):,} over, {done:,} done"
        listed = table(headings, rows, label="Shards")
        return html.Div([html.P(said, className="reason"), listed], className="shards")

    def _steps(self, run: Run) -> Any:
        try:
            steps = self._service.steps_of(run.log_id)
        except ConfigError:
            return quiet("None of its steps has begun.")
        titles = self._service.titles_of([step.job_id for step in steps])
        rows = [
            [
                html.Span(step.name, className="name"),
                worded(*_step_sign(step.state.value)),
                ", ".join(step.after),
                dcc.Link(
                    f"{step.job_id} {cut(titles.get(step.job_id, ''), 60)}"
                    if step.job_id in titles else str(step.job_id),
                    href=elsewhere(f"/jobs/{step.job_id}", self._search,
                                   **({"run": step.log_ids[-1]} if step.log_ids else {})),
                    className="jump",
                ),
                ", ".join(map(str, step.log_ids[-5:])),
            ]
            for step in steps
        ]  # fmt: skip
        return table(("step", "state", "after", "job", "runs"), rows, label="Steps")

    def _sources(self) -> list[Any]:
        settings = self._job.settings
        shown: list[Any] = [source_of(settings.glue_source)]
        if len(settings.glue_source) > SOURCE_CHARS_MAX:
            shown.append(quiet("It is longer than a page shows; `tidemark jobs glue show` has it."))
        now = card("What is run?", html.Div(shown), element="job-source", note=settings.glue_type)
        versions = self._service.glue_of(self._job.job_id)
        rows = [
            [
                dcc.Link(str(one.glue_id), href=self._to(glue=one.glue_id, do=None),
                         className="jump here" if one.glue_id == self._view.glue else "jump"),
                html.Span(moment(one.changed_ms), className="exact"),
                html.Span(cut(one.author), className="wrap"),
                html.Span(cut(one.remark) if one.remark else "", className="wrap"),
                one.glue_type,
                f"{len(one.source):,}",
                self._back_link(one.glue_id, is_now=at == 0),
            ]
            for at, one in enumerate(versions)
        ]  # fmt: skip
        headings = ("version", "since, UTC", "by", "why", "kind", "characters", "do")
        listed = table(headings, rows, label="Versions, the newest first")
        cards = [card("Which versions are there?", listed, element="job-versions")]
        looked_at = next((one for one in versions if one.glue_id == self._view.glue), None)
        if looked_at is not None:
            lines = source_diff(looked_at.source, settings.glue_source)[2:]
            compared = diff(lines) if lines else quiet("It is the same as now.")
            shown = html.Div(
                [html.H3("From then to now"), compared, html.H3("As it was"),
                 source_of(looked_at.source)]
            )  # fmt: skip
            title = f"Version {looked_at.glue_id}"
            cards.insert(0, card(title, shown, element="job-version"))
        return [*cards, now]

    def _back_link(self, glue_id: int, *, is_now: bool) -> Any:
        if is_now:
            return "now"
        if not self._may_change:
            return ""
        return dcc.Link("roll back", href=self._to(glue=glue_id, do="back"), className="jump")

    def _to(self, **changes: object) -> str:
        return linked(self._address.path, self._search, **changes)


def _took(run: Run, now_ms: int) -> Any:
    if run.sent_ms is None:
        return ""
    if run.ended_ms is not None:
        return duration(max(0, run.ended_ms - run.sent_ms))
    since_ms = max(0, now_ms - run.sent_ms)
    return f"for {duration(since_ms // 1000 * 1000)}" if run.state in OUTSIDE else ""


def _cause(run: Run) -> str:
    kind, _, of = run.cause.partition(":")
    return {
        "plan": "planned",
        "hand": "by hand",
        "after": f"after run {of}",
        "flow": f"step of run {of.partition(':')[0]}",
    }.get(kind, "taken over")


def _bar(state: RunState) -> str:
    if state is RunState.DONE:
        return "done"
    if state in ENDED:
        return "failed"
    return "running" if state in OUTSIDE else "waiting"


def _step_sign(state: str) -> tuple[str, str, str]:
    sign, css = STEP_SIGNS.get(state, ("◔", "unknown"))
    return sign, spoken(state), css


class Logs:
    """Logs of runs, asked for at their executors, so many at a time."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._asks = ThreadPoolExecutor(ASKS_AT_ONCE, thread_name_prefix="ask")
        self._under_way = 0

    async def beside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do it in one of the few threads for it; no_update when too many wait."""
        if self._under_way >= ASKS_WAITING_MAX:
            return no_update
        self._under_way += 1
        try:
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._asks, context.run, work, *arguments)
        finally:
            self._under_way -= 1

    def page(self, path: str | None, search: str | None, known: Any) -> dict[str, Any] | None:
        """The next lines of the run that the address names; None when it names none of his."""
        address, view = address_of(path), view_of(search)
        if address is None or address.job_id is None or view.run is None or address.job_part:
            return None
        if self._context.visitors is None:
            return None
        from_line = _next_line(known, view.run)
        empty = {
            "run": view.run,
            "from_line": from_line,
            "to_line": 0,
            "text": "",
            "is_end": False,
        }
        try:
            visitor = self._context.visitor()
            service = self._context.visitors.service(visitor)
            if service is None or service.run(view.run).job_id != address.job_id:
                return None
            token = self._context.executor_token
            page = service.log_of_run(view.run, from_line=from_line, token=token)
        except (NotPermitted, ConfigError):
            return None
        except TidemarkError as error:
            return empty | {"said": f"Its log cannot be read now: {visible(error)}"}
        return empty | {
            "to_line": page.to_line,
            "text": exact(page.text),
            "is_end": page.is_end,
            "said": _log_said(page.to_line, is_end=page.is_end),
        }


def _next_line(known: Any, run: int) -> int:
    if not isinstance(known, dict) or known.get("run") != run:
        return 1
    from_line, to_line = known.get("from_line"), known.get("to_line")
    if type(from_line) is not int or type(to_line) is not int:
        return 1
    return max(1, from_line, to_line + 1)


def _log_said(to_line: int, *, is_end: bool) -> str:
    if is_end:
        return "The run has ended." if to_line else "It has no log, or none any more."
    return "It goes on." if to_line else "Nothing is logged yet."
