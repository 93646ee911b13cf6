"""Implements the `tidemark operations` commands, which manage long-running operations.

Absent on purpose: work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipelines.base.command_options import DatabaseOption, JsonOption, echo_json, user_name
from pipelines.operations.kinds import KINDS

if TYPE_CHECKING:
    from pipelines.database.database import Database
    from pipelines.database.operations import Operation

app = typer.Typer(no_args_is_help=True)
operations = typer.Typer(
    no_args_is_help=True, help="Long actions: run, list, show, wait, stop; each has an id."
)
app.add_typer(operations, name="operations")

IdArgument = Annotated[str, typer.Argument(help="The id of the operation.")]
POLL_S: Final = 0.5
HOURS_MAX: Final = 24 * 31


@operations.command("run")
def run(
    command: Annotated[
        list[str],
        typer.Argument(
            help="What follows `tidemark`, behind `--`: "
            + ", ".join(" ".join(words) for words in KINDS.values())
        ),
    ],
    operation_id: Annotated[
        str | None,
        typer.Option("--id", help="Its id; asked for again it is the same operation."),
    ] = None,
    hours: Annotated[int, typer.Option(help="So long it may take.", min=1, max=HOURS_MAX)] = 24,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Begin a long action in a process of its own, and say its id at once."""
    from pipelines.operations.service import begin

    with _opened(database) as state:
        made_id = begin(
            state,
            command,
            operation_id=operation_id,
            hours=hours,
            author=user_name(),
            address=database,
        )
        if as_json:
            _echo(state, made_id)
        else:
            typer.echo(made_id)


@operations.command("list")
def list_operations(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """The newest operations, a hundred at most; they are forgotten a week after their time."""
    from pipelines.operations.service import listed, operation_json

    with _opened(database) as state:
        found = listed(state)
    if as_json:
        echo_json([operation_json(one) for one in found])
        return
    for one in found:
        typer.echo(_line(one))


@operations.command("show")
def show(
    operation_id: IdArgument, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """How one stands, and the last lines of its command."""
    with _opened(database) as state:
        if as_json:
            _echo(state, operation_id)
        else:
            _print_operation(_found(state, operation_id))


@operations.command("wait")
def wait(
    operation_id: IdArgument,
    for_s: Annotated[float, typer.Option("--for", help="At most so many seconds.", min=0)] = 0,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until it is over; non-zero unless it is DONE."""
    from pipelines.database.tables import Ended

    give_up_s = time.monotonic() + for_s
    with _opened(database) as state:
        while (one := _found(state, operation_id)).state is Ended.RUNNING:
            if for_s and time.monotonic() >= give_up_s:
                break
            time.sleep(POLL_S)
        if as_json:
            _echo(state, operation_id)
        else:
            _print_operation(one)
    if one.state is not Ended.DONE:
        raise typer.Exit(1)


@operations.command("stop")
def stop(
    operation_id: IdArgument, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """Have its process end the command, where that is of this machine. What it did is done."""
    from pipelines.operations.service import stop as stop_it

    with _opened(database) as state:
        one = stop_it(state, operation_id)
        if as_json:
            _echo(state, operation_id)
        else:
            typer.echo("it is asked to end" if one.ended_us is None else f"it is {one.state}")


@contextmanager
def _opened(database: str | None) -> Iterator[Database]:
    from pipelines.database.database import opened

    state = opened(database)
    try:
        yield state
    finally:
        state.close()


def _found(state: Database, operation_id: str) -> Operation:
    from engine.foundation.errors import RuleBroken
    from pipelines.operations.service import found

    one = found(state, operation_id)
    if one is None:
        rule = f"there is no operation {operation_id!r}, or it is forgotten"
        raise RuleBroken("operation", operation_id, rule)
    return one


def _echo(state: Database, operation_id: str) -> None:
    from pipelines.operations.service import operation_json

    echo_json(operation_json(_found(state, operation_id)))


def _line(one: Operation) -> str:
    from pipelines.base.time_units import moment_at

    begun = moment_at(one.created_us).isoformat(timespec="seconds")
    return f"{one.operation_id}  {one.state}  {begun}  {one.author}  {' '.join(one.command)}"


def _print_operation(one: Operation) -> None:
    from pipelines.operations.service import operation_json

    typer.echo(_line(one))
    result = operation_json(one)["result"]
    if not isinstance(result, dict):
        said = result or one.said
        typer.echo(said, nl=bool(said))
        return
    for name, value in result.items():
        if name != "lines":
            typer.echo(f"{name}: {value}")
    for line in result.get("lines", ()):
        typer.echo(line)
