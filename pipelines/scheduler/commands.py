"""`tidemark scheduler`: the centre's process, and what it knows of days and executors.

Absent on purpose: work.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from pipelines.scheduler.for_commands import (
    DatabaseOption,
    JsonOption,
    echo_json,
    moment,
    opened_desk,
)
from pipelines.scheduler.job_commands import jobs
from pipelines.scheduler.people_commands import groups, show_audit, users

app = typer.Typer(no_args_is_help=True)
scheduler = typer.Typer(no_args_is_help=True, help="The centre that runs jobs.")
app.add_typer(scheduler, name="scheduler")
app.add_typer(jobs, name="jobs")
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


@scheduler.command("days")
def days(
    count: Annotated[int, typer.Option("--days", help="So many.", min=1, max=1000)] = 30,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """How the runs of each UTC day stand, as a centre counted them last; the newest day first."""
    with opened_desk(database) as desk:
        found = desk.days(count)
    if as_json:
        echo_json([asdict(one) for one in found])
        return
    for one in found:
        told = f"{one.open_count:,} open  {one.done_count:,} done  {one.failed_count:,} failed"
        typer.echo(f"{one.day}  {told}")


@scheduler.command("executors")
def executors(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Who registered, and those written by hand in their group; gone: silent for 90 s."""
    with opened_desk(database) as desk:
        found = desk.executors()
    if as_json:
        echo_json([asdict(one) for one in found])
        return
    for one in found:
        told = "by hand" if one.seen_ms is None else f"seen {moment(one.seen_ms)}"
        typer.echo(f"{one.app_name}  {one.address}  {told}{'  gone' if one.is_gone else ''}")
