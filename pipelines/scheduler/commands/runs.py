"""`tidemark jobs kill` and `tidemark jobs log`: kill a run or print its log.

Absent on purpose: work.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipelines.base.command_options import DatabaseOption, JsonOption, PreviewOption, echo_json
from pipelines.scheduler.commands.context import opened_service
from pipelines.scheduler.commands.preview import command_at

if TYPE_CHECKING:
    from pipelines.scheduler.centre.run_requests import Killed

one_run = typer.Typer()

RunArgument = Annotated[int, typer.Argument(help="The number of the run, as `history` has it.")]
TokenOption = Annotated[
    str | None,
    typer.Option(
        envvar="TIDEMARK_SCHEDULER_TOKEN", help="What executors and centre show each other."
    ),
]

FOLLOW_EACH_S: Final = 1.0


@one_run.command("kill")
def kill(
    log_id: RunArgument,
    preview: PreviewOption = False,
    database: DatabaseOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a run: cancel it, or have its executor end it. An executor of XXL-Job ends all runs of
    the job that it has. A killed run is not tried again."""
    from pipelines.scheduler.commands.output import NOTHING_DONE

    with command_at(database, is_preview=preview) as at:
        killed = at.service.kill_run(log_id, token=token)
    if as_json:
        echo_json({**asdict(killed), "is_done": not preview})
    elif preview:
        typer.echo(f"run {log_id} would be: {_would_be(killed)}")
        typer.echo(NOTHING_DONE)
    elif killed.address is not None:
        typer.echo(f"{killed.address} was asked to end it; {killed.message}".rstrip("; "))
    else:
        typer.echo(killed.message or f"nothing to end: {killed.state}")


def _would_be(killed: Killed) -> str:
    if killed.address is not None:
        return f"ended by {killed.address}, which is asked, and not tried again"
    return killed.message or f"left as it is: {killed.state}"


@one_run.command("log")
def log(
    log_id: RunArgument,
    from_line: Annotated[int, typer.Option(help="The first is 1.", min=1)] = 1,
    follow: Annotated[bool, typer.Option("--follow", help="Until the run has ended.")] = False,
    database: DatabaseOption = None,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """The log of a run, from its executor. With --json one object a page."""
    from pipelines.scheduler.centre.run_requests import NO_LOG

    with opened_service(database) as service:
        while True:
            page = service.log_of_run(log_id, from_line=from_line, token=token)
            is_new = page.to_line >= from_line
            if as_json and (is_new or page.is_end or not follow):
                echo_json(asdict(page))
            elif not as_json:
                typer.echo(page.text, nl=False)
            from_line = max(from_line, page.to_line + 1)
            if page.is_end or not (is_new or follow):
                break
            if not is_new:
                time.sleep(FOLLOW_EACH_S)
    if page.to_line == 0:
        typer.echo(f"{NO_LOG}; the run is {page.state}", err=True)
