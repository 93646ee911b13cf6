"""`tidemark scheduler` and `tidemark jobs`: the centre's process; jobs looked at and changed.

Absent on purpose: work.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.foundation.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.alerting.store.database import Database
    from pipelines.scheduler.store.jobs import Change

app = typer.Typer(no_args_is_help=True)
scheduler = typer.Typer(no_args_is_help=True, help="The centre that runs jobs.")
jobs = typer.Typer(no_args_is_help=True, help="Jobs: list, show, add, start, pause, run, ...")
app.add_typer(scheduler, name="scheduler")
app.add_typer(jobs, name="jobs")

DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="TIDEMARK_DATABASE",
        help="sqlite:///PATH or postgresql://USER@HOST/NAME; else a file in ~/.tidemark, "
        "or in the folder that TIDEMARK_HOME names.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]
AuthorOption = Annotated[str, typer.Option(envvar="USER", help="Who says so.")]
JobArgument = Annotated[int, typer.Argument(help="The number of the job.")]
RunArgument = Annotated[int, typer.Argument(help="The number of the run, as `history` has it.")]
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="TIDEMARK_SCHEDULER_TOKEN", help="What executors and centre show each other."
    ),
]

FOLLOW_EACH_S: Final = 1.0


@scheduler.callback()
def of_the_scheduler() -> None:
    """Keep `run` a word of its own while it is the only one."""


@scheduler.command("run")
def run_centre(
    host: Annotated[str, typer.Option(help="Where executors find it.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: a free one.", min=0, max=65535)] = 8080,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="TIDEMARK_SCHEDULER_TOKEN",
            help="What executors and centre show each other; needed beyond 127.0.0.1.",
        ),
    ] = None,
    database: DatabaseOption = None,
    for_s: Annotated[float, typer.Option("--for", help="Stop after so many seconds.", min=0)] = 0,
    log_days: Annotated[
        int, typer.Option(help="So long runs are kept; fewer than 3: for ever.", min=0)
    ] = 30,
) -> None:
    """Be a centre, until stopped. Several may share one database."""
    import asyncio
    import logging

    from pipelines.alerting.state import opened
    from pipelines.scheduler.centre.serving import serve

    def ready(address: str) -> None:
        typer.echo(f"ready address={address}")
        sys.stdout.flush()

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    state = opened(database)
    try:
        serving = serve(
            state,
            host=host,
            port=port,
            token=token,
            on_ready=ready,
            for_s=for_s,
            log_days=log_days,
        )
        asyncio.run(serving)
    finally:
        state.close()


@jobs.command("list")
def list_jobs(
    database: DatabaseOption = None,
    after: Annotated[int, typer.Option(help="Those with greater numbers.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """The jobs, by number; a thousand at a time."""
    from pipelines.scheduler.store.jobs import jobs_after

    with _state(database) as state:
        found = jobs_after(state, after)
    if as_json:
        _echo([asdict(job) for job in found])
        return
    for job in found:
        told = job.settings
        when = f"{told.schedule_kind} {told.schedule_text}".strip()
        next_one = "paused" if not job.is_active else _moment(job.next_ms)
        if job.wrong_because:
            next_one += f"  cannot be: {job.wrong_because}"
        typer.echo(f"{job.job_id}  {told.title}  {when}  {next_one}")


@jobs.command("show")
def show(job_id: JobArgument, database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """All that is known of a job."""
    from pipelines.scheduler.store.jobs import job_of

    with _state(database) as state:
        job = job_of(state, job_id)
    if as_json:
        _echo(asdict(job))
        return
    for name, value in {**asdict(job.settings), "is_active": job.is_active}.items():
        typer.echo(f"{name}: {value}")
    typer.echo(f"next: {_moment(job.next_ms)}")
    if job.stopped_because:
        typer.echo(f"stopped: {job.stopped_because}")
    if job.wrong_because:
        typer.echo(f"cannot be: {job.wrong_because}")


@jobs.command("add")
def add(
    group: Annotated[str, typer.Option(help="The application whose executors run it.")],
    settings: Annotated[
        list[str], typer.Argument(help="NAME=VALUE, as title=… handler=… schedule_kind=CRON.")
    ],
    database: DatabaseOption = None,
    author: AuthorOption = "",
) -> None:
    """Make a job, and the group when it is new; it runs once it is started. Says its number."""
    from pipelines.scheduler.job_settings import JobSettings
    from pipelines.scheduler.store.jobs import add_group, add_job, groups

    with _state(database) as state:
        told = JobSettings(**{"title": "", "author": author} | _values(settings))
        there = {one.app_name: one.group_id for one in groups(state)}
        group_id = there.get(group) or add_group(state, group, _change(state, author))
        typer.echo(str(add_job(state, group_id, told, _change(state, author))))


@jobs.command("edit")
def edit(
    job_id: JobArgument,
    settings: Annotated[list[str], typer.Argument(help="NAME=VALUE of what changes.")],
    database: DatabaseOption = None,
    author: AuthorOption = "",
) -> None:
    """Change a job; what waits to be sent is cancelled and planned anew."""
    from pipelines.scheduler.store.jobs import edit_job, job_of

    with _state(database) as state:
        changed = replace(job_of(state, job_id).settings, **_values(settings))
        edit_job(state, job_id, changed, _change(state, author))


@jobs.command("start")
def start(job_id: JobArgument, database: DatabaseOption = None, author: AuthorOption = "") -> None:
    """Have its schedule hold; says when it runs next."""
    from pipelines.scheduler.store.jobs import start_job

    with _state(database) as state:
        typer.echo(_moment(start_job(state, job_id, _change(state, author))))


@jobs.command("pause")
def pause(job_id: JobArgument, database: DatabaseOption = None, author: AuthorOption = "") -> None:
    """Have it run no more, but by hand."""
    from pipelines.scheduler.store.jobs import pause_job

    with _state(database) as state:
        pause_job(state, job_id, _change(state, author))


@jobs.command("remove")
def remove(job_id: JobArgument, database: DatabaseOption = None, author: AuthorOption = "") -> None:
    """Remove it. Its runs stay until they are forgotten."""
    from pipelines.scheduler.store.jobs import remove_job

    with _state(database) as state:
        remove_job(state, job_id, _change(state, author))


@jobs.command("run")
def run_once(
    job_id: JobArgument,
    parameters: Annotated[str | None, typer.Option(help="Instead of the job's.")] = None,
    database: DatabaseOption = None,
    author: AuthorOption = "",
) -> None:
    """Have it run once, now, by a centre that is there. Says the number of the run."""
    import secrets

    from pipelines.scheduler.store.results import run_by_hand

    with _state(database) as state:
        key = secrets.token_hex(8)
        typer.echo(
            str(run_by_hand(state, job_id, key, _change(state, author), parameters=parameters))
        )


@jobs.command("kill")
def kill(
    log_id: RunArgument,
    database: DatabaseOption = None,
    author: AuthorOption = "",
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a run: cancel it, or have its executor end it. An executor of XXL-Job ends all runs of
    the job that it has. A killed run is not tried again."""
    from pipelines.scheduler.centre.run_requests import kill_run
    from pipelines.scheduler.run_life import RunState

    with _state(database) as state:
        killed = kill_run(state, log_id, _change(state, author), token=token)
    if as_json:
        _echo(asdict(killed))
    elif killed.address is not None:
        typer.echo(f"{killed.address} was told; {killed.message}".rstrip("; "))
    elif killed.state is RunState.CANCELLED:
        typer.echo("cancelled: it was not sent")
    else:
        typer.echo(f"nothing to end: {killed.state}")


@jobs.command("log")
def log(
    log_id: RunArgument,
    from_line: Annotated[int, typer.Option(help="The first is 1.", min=1)] = 1,
    follow: Annotated[bool, typer.Option("--follow", help="Until the run has ended.")] = False,
    database: DatabaseOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """The log of a run, from its executor. With --json one object a page."""
    from pipelines.scheduler.centre.run_requests import NO_LOG, log_of_run
    from pipelines.scheduler.store.clock import database_ms

    with _state(database) as state:
        while True:
            page = log_of_run(
                state, log_id, from_line=from_line, now_ms=database_ms(state), token=token
            )
            is_new = page.to_line >= from_line
            if as_json and (is_new or page.is_end or not follow):
                _echo(asdict(page))
            elif not as_json:
                typer.echo(page.text, nl=False)
            from_line = max(from_line, page.to_line + 1)
            if page.is_end or not (is_new or follow):
                break
            if not is_new:
                time.sleep(FOLLOW_EACH_S)
    if page.to_line == 0:
        typer.echo(f"{NO_LOG}; the run is {page.state}", err=True)


@jobs.command("history")
def history(
    job_id: JobArgument, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """Its runs, the newest first; a thousand at most."""
    from pipelines.scheduler.store.results import runs_of

    with _state(database) as state:
        found = runs_of(state, job_id)
    if as_json:
        _echo([asdict(run) for run in found])
        return
    for run in found:
        why = run.result_message or run.trigger_message or ""
        shard = f"{run.shard_index}/{run.shard_total}"
        typer.echo(f"{run.log_id}  {_moment(run.planned_ms)}  {run.state}  {shard}  {why}".rstrip())


@jobs.command("next")
def next_times(
    job_id: JobArgument,
    count: Annotated[int, typer.Option(help="So many.", min=1, max=1000)] = 5,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """When its schedule would have it run."""
    from pipelines.scheduler.store.clock import database_ms
    from pipelines.scheduler.store.jobs import job_of

    with _state(database) as state:
        job, now_ms = job_of(state, job_id), database_ms(state)
    times: list[int] = []
    next_ms = job.next_ms or job.settings.schedule.next_ms(now_ms)
    while next_ms is not None and len(times) < count:
        times.append(next_ms)
        next_ms = job.settings.schedule.next_ms(next_ms)
        if job.settings.schedule.waits_for_the_end:
            break
    if as_json:
        _echo(times)
        return
    for one in times:
        typer.echo(_moment(one))


@contextmanager
def _state(database: str | None) -> Iterator[Database]:
    from pipelines.alerting.state import opened

    state = opened(database)
    try:
        yield state
    finally:
        state.close()


def _values(texts: list[str]) -> dict[str, Any]:
    """Settings of a job by name, each of the kind that it has."""
    from dataclasses import fields

    from pipelines.scheduler.job_settings import JobSettings

    names = [field.name for field in fields(JobSettings)]
    values: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or name not in names:
            raise ConfigError("setting", text, f"NAME=VALUE; names: {', '.join(names)}")
        try:
            if name in {"timeout_s", "retries"}:
                values[name] = int(value)
            elif name == "children":
                values[name] = tuple(int(one) for one in value.split(",") if one.strip())
            else:
                values[name] = value
        except ValueError as error:
            raise ConfigError(name, value, "whole numbers") from error
    return values


def _change(state: Database, author: str) -> Change:
    from pipelines.scheduler.store.clock import database_ms
    from pipelines.scheduler.store.jobs import Change

    return Change(author, database_ms(state))


def _moment(moment_ms: int | None) -> str:
    if moment_ms is None:
        return "none"
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _echo(value: object) -> None:
    typer.echo(json.dumps(value))
