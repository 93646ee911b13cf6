"""`tidemark jobs workflow`: checks, adds and edits workflows and shows or stops their runs.

A workflow is a job: `jobs list`, `start`, `pause`, `run`, `history`, `next`, `glue`, `remove` are
for it too. Absent on purpose: work.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from pipelines.base.command_options import DatabaseOption, JsonOption, PreviewOption, echo_json
from pipelines.scheduler.commands.context import (
    JobArgument,
    SettingsArgument,
    opened_service,
    text_of,
)
from pipelines.scheduler.commands.preview import CommandService, changes, command_at

workflow = typer.Typer(no_args_is_help=True, help="Jobs as steps: add, edit, steps, stop, ...")

FileArgument = Annotated[
    Path, typer.Argument(help="TOML: tables [steps.NAME] with job and after; `-`: standard input.")
]
RunArgument = Annotated[int, typer.Argument(help="The number of the workflow's run.")]


@workflow.command("check")
def check(file: FileArgument, as_json: JsonOption = False) -> None:
    """Say in which order the steps may begin, or what is wrong."""
    from pipelines.scheduler.workflows import Workflow

    steps = Workflow.parse(text_of(file)).steps
    if as_json:
        echo_json([asdict(step) for step in steps])
        return
    for step in steps:
        after = f" after {', '.join(step.after)}" if step.after else ""
        always = " always" if step.always else ""
        typer.echo(f"{step.name}: job {step.job_id}{after}{always}")


@workflow.command("add")
def add(
    group: Annotated[str, typer.Option(help="The group that it belongs to.")],
    file: FileArgument,
    settings: SettingsArgument = None,
    preview: PreviewOption = False,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a workflow; it runs once it is started. Says its number."""
    from pipelines.scheduler.job_settings import JobSettings, settings_from
    from pipelines.scheduler.workflows import WORKFLOW

    source = text_of(file)
    with command_at(database, is_preview=preview, as_json=as_json) as at:
        author = at.service.change.author
        chosen = {"title": file.stem, "author": author} | settings_from(settings or [])
        made = JobSettings(**chosen | {"glue_type": WORKFLOW, "glue_source": source})
        at.answer_new(at.service.add_job(group, made))


@changes(workflow, "edit")
def edit(
    at: CommandService,
    job_id: JobArgument,
    file: FileArgument,
    remark: Annotated[str, typer.Option(help="Why, for the versions.")] = "",
) -> None:
    """Give it other steps; runs under way go on by the old ones."""
    from pipelines.scheduler.workflows import WORKFLOW

    job = at.service.job(job_id)
    changed = replace(
        job.settings, glue_type=WORKFLOW, glue_source=text_of(file), handler="", timeout_s=0
    )
    done = at.service.edit_job(job_id, changed, remark=remark)
    at.answer_source(done, job.settings)


@workflow.command("steps")
def steps(
    log_id: RunArgument, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """States of the steps of a run, and the runs that carry them."""
    with opened_service(database) as service:
        found = service.steps_of(log_id)
    if as_json:
        echo_json([asdict(step) for step in found])
        return
    for step in found:
        runs = " ".join(map(str, step.log_ids)) or "-"
        typer.echo(f"{step.name}  job {step.job_id}  {step.state}  {runs}")


@workflow.command("stop")
def stop(
    log_id: RunArgument,
    preview: PreviewOption = False,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Begin no further step of a run; what executors have goes on."""
    with command_at(database, is_preview=preview) as at:
        is_stopped = at.service.stop_run(log_id)
    if as_json:
        echo_json({"log_id": log_id, "is_done": is_stopped and not preview})
    elif preview:
        typer.echo("it would be stopped" if is_stopped else "it is over")
    else:
        typer.echo("stopped" if is_stopped else "it was over")
