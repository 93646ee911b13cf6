"""`tidemark jobs glue`: edits a job's source, and lists, shows and restores its versions.

Absent on purpose: work.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from pipelines.base.command_options import DatabaseOption, JsonOption, echo_json
from pipelines.scheduler.commands.context import JobArgument, moment, opened_service, text_of
from pipelines.scheduler.commands.preview import CommandService, changes

glue = typer.Typer(no_args_is_help=True, help="Sources that are sent to executors; versions.")

RemarkOption = Annotated[str, typer.Option(help="Why, for the list of versions.")]
VersionArgument = Annotated[int, typer.Argument(help="The number of the version.")]


@glue.command("list")
def list_versions(
    job_id: JobArgument, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """The versions that are kept, thirty at most; the newest, which the job has, first."""
    with opened_service(database) as service:
        found = service.glue_of(job_id)
    if as_json:
        echo_json([asdict(version) for version in found])
        return
    for one in found:
        described = f"{one.glue_id}  {moment(one.changed_ms)}  {one.author}  {one.glue_type}"
        typer.echo(f"{described}  {len(one.source):,} characters  {one.remark}".rstrip())


@glue.command("show")
def show(
    job_id: JobArgument,
    version: Annotated[int | None, typer.Argument(help="Else the newest.")] = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """The source itself, as it is sent."""
    from pipelines.scheduler.refusals import no_such

    with opened_service(database) as service:
        found = [one for one in service.glue_of(job_id) if version in {None, one.glue_id}]
    if not found:
        raise no_such("version", version or "of a source", key="version", where=f"job {job_id}")
    if as_json:
        echo_json(asdict(found[0]))
    else:
        typer.echo(found[0].source, nl=False)


@changes(glue, "edit")
def edit(
    at: CommandService,
    job_id: JobArgument,
    file: Annotated[Path, typer.Argument(help="The new source; `-`: standard input.")],
    *,
    glue_type: Annotated[
        str | None, typer.Option("--type", help="GLUE_SHELL, GLUE_PYTHON, ...; else as it is.")
    ] = None,
    remark: RemarkOption = "",
) -> None:
    """Give the job another source."""
    from engine.foundation.errors import RuleBroken
    from pipelines.scheduler.job_settings import BEAN

    settings = at.service.job(job_id).settings
    if (glue_type or settings.glue_type) == BEAN:
        raise RuleBroken("type", BEAN, "the job runs a handler: --type says what its source is")
    changed = replace(
        settings, glue_type=glue_type or settings.glue_type, glue_source=text_of(file)
    )
    done = at.service.edit_job(job_id, changed, remark=remark)
    at.answer_source(done, settings)


@changes(glue, "back")
def back(
    at: CommandService, job_id: JobArgument, version: VersionArgument, remark: RemarkOption = ""
) -> None:
    """Give it a source again that it had, as a new version."""
    settings = at.service.job(job_id).settings
    done = at.service.roll_back(job_id, version, remark=remark)
    at.answer_source(done, settings)
