"""`tidemark scheduler` and `tidemark jobs`: the centre's process; jobs looked at and changed.

Absent on purpose: work.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import Annotated

import typer

from pipelines.scheduler.for_commands import (
    DatabaseOption,
    JobArgument,
    JsonOption,
    SettingsArgument,
    echo_json,
    moment,
    opened_desk,
)
from pipelines.scheduler.glue_commands import glue
from pipelines.scheduler.import_commands import imports
from pipelines.scheduler.people_commands import groups, show_audit, users
from pipelines.scheduler.run_commands import one_run
from pipelines.scheduler.workflow_commands import workflow

app = typer.Typer(no_args_is_help=True)
scheduler = typer.Typer(no_args_is_help=True, help="The centre that runs jobs.")
jobs = typer.Typer(no_args_is_help=True, help="Jobs: list, show, add, start, pause, run, ...")
app.add_typer(scheduler, name="scheduler")
app.add_typer(jobs, name="jobs")
jobs.add_typer(workflow, name="workflow")
jobs.add_typer(glue, name="glue")
jobs.add_typer(imports)
jobs.add_typer(one_run)
scheduler.add_typer(groups, name="groups")
scheduler.add_typer(users, name="users")
scheduler.command("audit")(show_audit)


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
    with opened_desk(database) as desk:
        found = desk.jobs_after(after)
    if as_json:
        echo_json([asdict(job) for job in found])
        return
    for job in found:
        told = job.settings
        when = f"{told.schedule_kind} {told.schedule_text}".strip()
        next_one = "paused" if not job.is_active else moment(job.next_ms)
        if job.wrong_because:
            next_one += f"  cannot be: {job.wrong_because}"
        typer.echo(f"{job.job_id}  {told.title}  {when}  {next_one}")


@jobs.command("show")
def show(job_id: JobArgument, database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """All that is known of a job."""
    with opened_desk(database) as desk:
        job = desk.job(job_id)
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


@jobs.command("add")
def add(
    group: Annotated[str, typer.Option(help="The application whose executors run it.")],
    settings: SettingsArgument = None,
    database: DatabaseOption = None,
) -> None:
    """Make a job, and the group when it is new; it runs once it is started. Says its number."""
    from pipelines.scheduler.job_settings import JobSettings
    from pipelines.scheduler.setting_names import settings_from

    with opened_desk(database) as desk:
        default = {"title": "", "author": desk.change.author}
        told = JobSettings(**default | settings_from(settings or []))
        typer.echo(str(desk.add_job(group, told)))


@jobs.command("install")
def install_own_jobs(
    app_name: Annotated[str, typer.Option("--app", help="Of the executor.")] = "tidemark",
    zone: Annotated[str, typer.Option(help="IANA zone of their times.")] = "UTC",
    send: Annotated[
        list[str] | None, typer.Option("--send", help="Receiver of reports; repeatable.")
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Start none of them.")] = False,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the platform's own jobs, those that are missing; what is there stays as it is."""
    from pipelines.own_jobs.installing import install

    with opened_desk(database) as desk:
        done = install(desk, app=app_name, zone=zone, send=send or (), is_started=not paused)
    if as_json:
        echo_json([asdict(one) for one in done])
        return
    for one in done:
        typer.echo(f"{one.job_id}  {one.title}  {'made' if one.is_new else 'there already'}")


@jobs.command("edit")
def edit(
    job_id: JobArgument,
    settings: SettingsArgument = None,
    group: Annotated[str | None, typer.Option(help="Another group.")] = None,
    database: DatabaseOption = None,
) -> None:
    """Change a job; what waits to be sent is cancelled and planned anew."""
    from pipelines.scheduler.setting_names import settings_from

    with opened_desk(database) as desk:
        changed = replace(desk.job(job_id).settings, **settings_from(settings or []))
        desk.edit_job(job_id, changed, app_name=group)


@jobs.command("copy")
def copy(
    job_id: JobArgument,
    settings: SettingsArgument = None,
    group: Annotated[str | None, typer.Option(help="Another group than its own.")] = None,
    database: DatabaseOption = None,
) -> None:
    """Make a job like another, but for what changes; it is paused. Says its number."""
    from pipelines.scheduler.setting_names import settings_from

    with opened_desk(database) as desk:
        same = desk.job(job_id).settings
        changed = {"title": f"copy of {same.title}"[:255], "author": desk.change.author}
        made = replace(same, **changed | settings_from(settings or []))
        typer.echo(str(desk.copy_job(job_id, made, app_name=group)))


@jobs.command("start")
def start(job_id: JobArgument, database: DatabaseOption = None) -> None:
    """Have its schedule hold; says when it runs next."""
    with opened_desk(database) as desk:
        typer.echo(moment(desk.start_job(job_id)))


@jobs.command("pause")
def pause(job_id: JobArgument, database: DatabaseOption = None) -> None:
    """Have it run no more, but by hand."""
    with opened_desk(database) as desk:
        desk.pause_job(job_id)


@jobs.command("remove")
def remove(job_id: JobArgument, database: DatabaseOption = None) -> None:
    """Remove it. Its runs stay until they are forgotten."""
    with opened_desk(database) as desk:
        desk.remove_job(job_id)


@jobs.command("run")
def run_once(
    job_id: JobArgument,
    parameters: Annotated[str | None, typer.Option(help="Instead of the job's.")] = None,
    database: DatabaseOption = None,
) -> None:
    """Have it run once, now, by a centre that is there. Says the number of the run."""
    import secrets

    with opened_desk(database) as desk:
        typer.echo(str(desk.run_job(job_id, secrets.token_hex(8), parameters)))


@jobs.command("history")
def history(
    job_id: JobArgument, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """Its runs, the newest first; a thousand at most."""
    with opened_desk(database) as desk:
        found = desk.runs_of(job_id)
    if as_json:
        echo_json([asdict(run) for run in found])
        return
    for run in found:
        why = run.result_message or run.trigger_message or ""
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
    with opened_desk(database) as desk:
        job, now_ms = desk.job(job_id), desk.now_ms
    schedule = job.settings.schedule
    times = schedule.upcoming_ms(job.next_ms or schedule.next_ms(now_ms), count=count)
    if as_json:
        echo_json(times)
        return
    for one in times:
        typer.echo(moment(one))
