"""`tidemark scheduler`: runs the centre, and lists daily totals and executors.

Absent on purpose: work.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from pipelines.base.command_options import DatabaseOption, JsonOption, echo_json
from pipelines.scheduler.commands.context import (
    ConfigOption,
    moment,
    opened_service,
    settings_from_xxl,
)
from pipelines.scheduler.commands.jobs import jobs
from pipelines.scheduler.commands.people import groups, show_audit, users

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
    port: Annotated[
        int | None, typer.Option(help="8080 by default; 0: a free one.", min=0, max=65535)
    ] = None,
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
        int | None,
        typer.Option(help="Days to store runs, 30 by default; fewer than 3: for ever.", min=0),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Be a centre, until stopped. Several may share one database."""
    import asyncio
    import logging

    from pipelines.database.database import opened
    from pipelines.scheduler.centre.serving import serve
    from pipelines.scheduler.xxl_settings import CENTRE

    def ready(address: str) -> None:
        typer.echo(f"ready address={address}")
        sys.stdout.flush()

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    given = {"port": port, "token": token, "log_days": log_days}
    settings = {"port": 8080, "token": None} | settings_from_xxl(config, CENTRE, given)
    state = opened(database)
    try:
        asyncio.run(serve(state, host=host, on_ready=ready, for_s=for_s, **settings))
    finally:
        state.close()


@scheduler.command("days")
def days(
    count: Annotated[int, typer.Option("--days", help="So many.", min=1, max=1000)] = 30,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """How the runs of each UTC day stand, as a centre counted them last; the newest day first."""
    with opened_service(database) as service:
        found = service.days(count)
    if as_json:
        echo_json([asdict(one) for one in found])
        return
    for one in found:
        counts = f"{one.open_count:,} open  {one.done_count:,} done  {one.failed_count:,} failed"
        typer.echo(f"{one.day}  {counts}")


@scheduler.command("executors")
def executors(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """Registered executors, and those written by hand in their group; gone: silent for 90 s."""
    with opened_service(database) as service:
        found = service.registered()
    if as_json:
        echo_json([asdict(one) for one in found])
        return
    for one in found:
        seen = "by hand" if one.seen_ms is None else f"seen {moment(one.seen_ms)}"
        typer.echo(f"{one.app_name}  {one.address}  {seen}{'  gone' if one.is_gone else ''}")
