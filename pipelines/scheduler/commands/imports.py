"""`tidemark jobs import`: imports jobs from an XXL-Job database dump or a live server.

Absent on purpose: work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.foundation.errors import MustBe
from pipelines.base.command_options import DatabaseOption, JsonOption, echo_json
from pipelines.scheduler.commands.preview import command_at

if TYPE_CHECKING:
    from pipelines.scheduler.importing.mysql_dump import Row

imports = typer.Typer()

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A file that mysqldump wrote, or mysql://USER@HOST:PORT/NAME "
        "(its password in TIDEMARK_IMPORT_PASSWORD)."
    ),
]


@imports.command("import")
def import_jobs(
    source: SourceArgument,
    zone: Annotated[
        str, typer.Option(help="IANA zone in which its admin runs: of its cron rules and times.")
    ],
    apply: Annotated[bool, typer.Option("--apply", help="Import; else only show it.")] = False,
    start: Annotated[
        bool, typer.Option("--start", help="Start what ran there: stop it there first.")
    ] = False,
    history: Annotated[bool, typer.Option("--history", help="Its runs too.")] = False,
    name: Annotated[
        str, typer.Option(help="Which database it is: what came from it comes once.")
    ] = "xxl-job",
    password: Annotated[
        str | None, typer.Option(envvar="TIDEMARK_IMPORT_PASSWORD", hidden=True)
    ] = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take over groups, jobs, sources and users of an XXL-Job database; what is not, and why."""
    from pipelines.scheduler.importing.xxl_job import taken_run, taking
    from pipelines.scheduler.schedules import zone_of

    there = zone_of(zone)
    with _read(source, password, history) as (tables, past):
        plan = taking(tables, there)
        with command_at(database, is_preview=not apply) as at:
            done = at.service.take_over(plan, name, is_started=start and apply)
            runs = (run for row in past if (run := taken_run(row, there)) is not None)
            count = at.service.take_history(runs, name) if apply else 0
    if as_json:
        remarks = [{"subject": one.subject, "told": one.text} for one in done.remarks]
        echo_json(asdict(done) | {"remarks": remarks, "runs": count, "is_done": apply})
        return
    for one in done.took:
        what = "new" if one.is_new else "here already"
        number = "" if one.our_id is None else f" as {one.our_id}"
        typer.echo(f"{one.kind} {one.their_id} {one.name}: {what}{number}")
    for remark in done.remarks:
        typer.echo(f"! {remark.subject}: {remark.text}")
    if not apply:
        typer.echo("Nothing was changed: --apply does it.")
        return
    if history:
        typer.echo(f"{count:,} runs")
    if not start:
        typer.echo("Jobs are paused: stop them there, then `tidemark jobs start` them here.")


@contextmanager
def _read(
    source: str, password: str | None, with_history: bool
) -> Iterator[tuple[dict[str, list[Row]], Iterable[Row]]]:
    """The rows of tables, and those of the history if it is wanted."""
    from pipelines.scheduler.importing.live import server
    from pipelines.scheduler.importing.mysql_dump import DUMP_BYTES_MAX, tables_of
    from pipelines.scheduler.importing.xxl_job import HISTORY, TABLES

    if "://" in source:
        with server(source, password) as there:
            yield there.tables(TABLES), there.rows(HISTORY) if with_history else ()
        return
    try:
        file = Path(source)
        if file.stat().st_size > DUMP_BYTES_MAX:
            allowed = f"at most {DUMP_BYTES_MAX:,} bytes: leave out {HISTORY}, or name the server"
            raise MustBe("import", source, allowed)
        dump = file.read_text("utf-8", errors="replace")
    except OSError as error:
        raise MustBe("import", source, f"a file that can be read ({error})") from error
    tables = tables_of(dump, (*TABLES, HISTORY) if with_history else TABLES)
    if not set(TABLES) & set(tables):
        raise MustBe("import", source, f"a dump with rows of {', '.join(TABLES)}")
    yield tables, tables.pop(HISTORY, [])
