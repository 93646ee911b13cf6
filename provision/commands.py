"""The `tidemark setup` command, which installs or checks Spark's non-Python dependencies.

Place in the walk: a person may run it once; if not, whatever starts Spark first calls
`bring_spark`. `make` does the same for a working copy, with what tests need (`__main__`).

Absent on purpose: RocketMQ, browsers and servers, which only tests and some demos need.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from engine.foundation.errors import TidemarkError
from provision import jars, java, spark
from provision.errors import ProvisionError
from provision.places import CACHE, delta_jars

app = typer.Typer()

POLL_S = 0.2


class SetupError(TidemarkError):
    """Something is missing that cannot be brought from here; the message says what to do."""


@app.callback()
def of_the_set_up() -> None:
    """Commands of the set-up."""


@app.command("setup")
def setup(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing: list what is here and what is missing.")
    ] = False,
    rocketmq: Annotated[
        bool, typer.Option("--rocketmq", help="Bring what `demo --rocketmq` plays on as well.")
    ] = False,
) -> None:
    """Bring what Spark needs: the Delta jars, and a Java where root may install one.

    Exit code 0: all is here. With --check 1 where something is missing.
    """
    console = Console()
    if not check:
        bring_spark(may_install=True)
    if rocketmq and not check:
        with _as_one_line():
            jars.ensure(jars.ROCKETMQ, java_home=java.ensure(with_compiler=True))
    home = java.find(with_compiler=False)
    faults = spark.missing()
    if home is not None:
        console.print(f"Java {java.major_version(home)}: {home}", soft_wrap=True)
    if not jars.faults_of(jars.DELTA):
        console.print(f"Delta jars: {delta_jars()}", soft_wrap=True)
    for fault in faults:
        console.print(f"missing: {fault}", soft_wrap=True, markup=False)
    raise typer.Exit(1 if faults else 0)


def bring_spark(*, may_install: bool = False) -> None:
    """Bring what Spark needs, with a bar where somebody looks on. Raises ConfigError."""
    with _as_one_line(), _download_shown():
        spark.ensure(may_install=may_install)


@contextmanager
def _as_one_line() -> Iterator[None]:
    """What cannot be brought is a line for the person at the terminal."""
    try:
        yield
    except ProvisionError as error:
        raise SetupError(str(error)) from error


@contextmanager
def _download_shown() -> Iterator[None]:
    """Show on standard error how far the download of the jars is, until the block ends."""
    console = Console(stderr=True)
    if not console.is_terminal or not jars.faults_of(jars.DELTA):
        yield
        return
    wanted = {jar.file_name for jar in jars.read_pins(jars.DELTA.pins)}
    ended = threading.Event()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("fetching the Delta jars for Spark", total=len(wanted))

        def look() -> None:
            while not ended.wait(POLL_S):
                here = {path.name for path in (CACHE / "ivy").rglob("*.jar")}
                progress.update(task, completed=len(wanted & here))

        looking = threading.Thread(target=look, daemon=True)
        looking.start()
        try:
            yield
        finally:
            ended.set()
            looking.join()
