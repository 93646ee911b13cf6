"""`tidemark jobs`: lists, shows and changes jobs, with previews and JSON output.

Absent on purpose: work.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import typer

from engine.foundation.errors import MustBe
from pipelines.base.command_options import DatabaseOption, JsonOption, echo_json
from pipelines.scheduler.commands.context import (
    JobArgument,
    SettingsArgument,
    moment,
    opened_service,
)
from pipelines.scheduler.commands.glue import glue
from pipelines.scheduler.commands.imports import imports
from pipelines.scheduler.commands.preview import CommandService, changes
from pipelines.scheduler.commands.runs import one_run
from pipelines.scheduler.commands.workflows import workflow

jobs = typer.Typer(no_args_is_help=True, help="Jobs: list, show, add, start, pause, run, ...")
jobs.add_typer(workflow, name="workflow")
jobs.add_typer(glue, name="glue")
jobs.add_typer(imports)
jobs.add_typer(one_run)


@jobs.command("list")
def list_jobs(
    database: DatabaseOption = None,
    after: Annotated[int, typer.Option(help="Those with greater numbers.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """The jobs, by number; a thousand at a time."""
    with opened_service(database) as service:
        found = service.jobs_after(after)
    if as_json:
        echo_json([asdict(job) for job in found])
        return
    for job in found:
        settings = job.settings
        when = f"{settings.schedule_kind} {settings.schedule_text}".strip()
        next_one = "paused" if not job.is_active else moment(job.next_ms)
        if job.wrong_because:
            next_one += f"  cannot be: {job.wrong_because}"
        typer.echo(f"{job.job_id}  {settings.title}  {when}  {next_one}")


@jobs.command("show")
def show(job_id: JobArgument, database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """All that is known of a job."""
    with opened_service(database) as service:
        job = service.job(job_id)
    if as_json:
        echo_json(asdict(job))
        return
    for name, value in {**asdict(job.settings), "is_active": job.is_active}.items():
        typer.echo(f"{name}: {value}")
    typer.echo(f"next: {moment(job.next_ms)}")
    if job.stopped_because:
        typer.echo(f"stopped: {job.stopped_because}")
    if job.wrong_because:
        typer.echo(f"cannot be: {job.wrong_because}")


@changes(jobs, "add")
def add(
    at: CommandService,
    group: Annotated[str, typer.Option(help="The application whose executors run it.")],
    settings: SettingsArgument = None,
) -> None:
    """Make a job, and the group when it is new; it runs once it is started. Says its number."""
    from pipelines.scheduler.job_settings import JobSettings, settings_from

    default = {"title": "", "author": at.service.change.author}
    chosen = JobSettings(**default | settings_from(settings or []))
    at.answer_new(at.service.add_job(group, chosen))


@changes(jobs, "edit")
def edit(
    at: CommandService,
    job_id: JobArgument,
    settings: SettingsArgument = None,
    group: Annotated[str | None, typer.Option(help="Another group.")] = None,
) -> None:
    """Change a job; what waits to be sent is cancelled and planned anew. Says what changed."""
    from pipelines.scheduler.job_settings import settings_from

    changed = replace(at.service.job(job_id).settings, **settings_from(settings or []))
    at.answer_change(at.service.edit_job(job_id, changed, app_name=group))


@changes(jobs, "copy")
def copy(
    at: CommandService,
    job_id: JobArgument,
    settings: SettingsArgument = None,
    group: Annotated[str | None, typer.Option(help="Another group than its own.")] = None,
) -> None:
    """Make a job like another, but for what changes; it is paused. Says its number."""
    from pipelines.scheduler.job_settings import settings_from

    same = at.service.job(job_id).settings
    changed = {"title": f"copy of {same.title}"[:255], "author": at.service.change.author}
    made = replace(same, **changed | settings_from(settings or []))
    at.answer_new(at.service.copy_job(job_id, made, app_name=group))


@changes(jobs, "start")
def start(at: CommandService, job_id: JobArgument) -> None:
    """Have its schedule hold; says when it runs next."""
    done = at.service.start_job(job_id)
    plain = moment(done.job.next_ms if done.job else None)
    at.answer_change(done, plain)


@changes(jobs, "pause")
def pause(at: CommandService, job_id: JobArgument) -> None:
    """Have it run no more, but by hand."""
    at.answer_change(at.service.pause_job(job_id))


@changes(jobs, "remove")
def remove(at: CommandService, job_id: JobArgument) -> None:
    """Remove it. Its runs stay until they are forgotten."""
    at.answer_change(at.service.remove_job(job_id), f"job {job_id} is removed")


@changes(jobs, "run")
def run_once(
    at: CommandService,
    job_id: JobArgument,
    parameters: Annotated[str | None, typer.Option(help="Instead of the job's.")] = None,
) -> None:
    """Have it run once, now, by a centre that is there. Says the number of the run."""
    import secrets

    from pipelines.scheduler.commands.output import answer_run

    job = at.service.job(job_id)
    log_id = at.service.run_job(job_id, secrets.token_hex(8), parameters)
    answer_run(job, None if at.is_preview else log_id, parameters, as_json=at.as_json)


@jobs.command("history")
def history(
    job_id: JobArgument,
    before: Annotated[
        int | None, typer.Option(help="Those older than this run: the last one shown.", min=1)
    ] = None,
    state: Annotated[str | None, typer.Option(help="Those of one state, such as FAILED.")] = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Its runs, the newest first, a line each; a thousand at most. The whole of what a run has said
    is in `jobs log`, or here with --json.
    """
    from pipelines.scheduler.result_words import line_of
    from pipelines.scheduler.run_life import RunState

    if state is not None and state.upper() not in set(RunState):
        raise MustBe("--state", state, f"one of {', '.join(RunState)}")
    with opened_service(database) as service:
        wanted = None if state is None else RunState(state.upper())
        found = service.runs_of(job_id, before=before, state=wanted)
    if as_json:
        echo_json([asdict(run) for run in found])
        return
    for run in found:
        why = line_of(run.result_message or run.trigger_message or "")
        shard = f"{run.shard_index}/{run.shard_total}"
        typer.echo(f"{run.log_id}  {moment(run.planned_ms)}  {run.state}  {shard}  {why}".rstrip())


@jobs.command("next")
def next_times(
    job_id: JobArgument,
    count: Annotated[int, typer.Option(help="So many.", min=1, max=1000)] = 5,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """When its schedule would have it run."""
    with opened_service(database) as service:
        job, now_ms = service.job(job_id), service.now_ms
    schedule = job.settings.schedule
    times = schedule.upcoming_ms(job.next_ms or schedule.next_ms(now_ms), count=count)
    if as_json:
        echo_json(times)
        return
    for one in times:
        typer.echo(moment(one))
