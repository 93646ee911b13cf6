"""Adds `tidemark jobs install` to the scheduler's job commands.

The scheduler does not know the platform's own jobs; this room adds the command that installs them.
Absent on purpose: what the jobs are (`installing`).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pipelines.base.command_options import echo_json
from pipelines.platform_jobs.installing import install
from pipelines.scheduler.commands.app import app
from pipelines.scheduler.commands.jobs import jobs
from pipelines.scheduler.commands.preview import CommandService, changes

__all__ = ["app"]


@changes(jobs, "install")
def install_platform_jobs(
    at: CommandService,
    *,
    app_name: Annotated[str, typer.Option("--app", help="Of the executor.")] = "tidemark",
    zone: Annotated[str, typer.Option(help="IANA zone of their times.")] = "UTC",
    send: Annotated[
        list[str] | None, typer.Option("--send", help="Receiver of reports; repeatable.")
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Start none of them.")] = False,
) -> None:
    """Make the platform's own jobs, those that are missing; what is there stays as it is."""
    done = install(at.service, app=app_name, zone=zone, send=send or (), is_started=not paused)
    if at.is_preview:
        at.answer({}, "")
        return
    if at.as_json:
        echo_json([asdict(one) for one in done])
        return
    for one in done:
        typer.echo(f"{one.job_id}  {one.title}  {'made' if one.is_new else 'there already'}")
