"""Implements the `tidemark lake maintain`, `lake status` and `lake retire` commands.

Absent on purpose: work. SIGTERM and SIGINT let the step under way end, then the process exits
with 0.
"""

from __future__ import annotations

import difflib
import getpass
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from engine.foundation.errors import ConfigError, LakeError

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake
    from pipelines.upkeep.maintainer import Maintainer
    from pipelines.upkeep.settings import Upkeep

app = typer.Typer(no_args_is_help=True)
lake_commands = typer.Typer(
    no_args_is_help=True, help="Look after the lake: maintain, status, retire."
)
app.add_typer(lake_commands, name="lake")

LakeOption = Annotated[str, typer.Option("--lake", help="Path or URI of the lake.")]
DaysOption = Annotated[
    list[str] | None,
    typer.Option("--days", help="Days kept of one table: bronze/TABLE=30 or gold/TABLE=400."),
]

EVERY_LEAST_S: Final = 1.0
PARENT_LOOK_S: Final = 0.5
"""How often a child looks whether its parent is still there."""

FAILED_PAUSE_S: Final = 30.0
"""After a round that failed, at least so long."""


STATUS_WIDTH: Final = 200
"""Columns of a status that is not written to a terminal."""


@lake_commands.command("maintain")
def maintain(
    lake: LakeOption = "var/lake",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Until all is done; the default.")] = False,
    every: Annotated[
        float | None, typer.Option("--every", help="A round each so many seconds, until stopped.")
    ] = None,
    bronze_days: Annotated[int, typer.Option(help="Days facts are kept.")] = 30,
    gold_days: Annotated[int, typer.Option(help="Days answers are kept.")] = 400,
    dq_days: Annotated[int, typer.Option(help="Days outcomes of checks are kept.")] = 90,
    days: DaysOption = None,
    reader_hours: Annotated[int, typer.Option(help="Hours a replaced file stays.")] = 6,
    settle: Annotated[int, typer.Option(help="Seconds after which a past day is merged.")] = 60,
    parent: Annotated[
        int | None, typer.Option(help="Number of the process that starts this one; end with it.")
    ] = None,
) -> None:
    """Merge small files, drop days that are over their time, vacuum what was replaced."""
    from pipelines.lake.lake import Lake
    from pipelines.lake.lease import acquire
    from pipelines.upkeep.maintainer import ROLE, Maintainer
    from pipelines.upkeep.settings import Upkeep
    from pipelines.upkeep.table_facts import tables_of

    if every is not None and (once or every < EVERY_LEAST_S):
        raise ConfigError("--every", every, f"{EVERY_LEAST_S:g} or more, and not with --once")
    stop = threading.Event()
    if parent is not None:
        _watch_parent(parent, stop)
    upkeep = Upkeep(
        bronze_days=bronze_days,
        gold_days=gold_days,
        dq_days=dq_days,
        table_days=_table_days(days or []),
        reader_hours=reader_hours,
        settle_s=settle,
    )
    home = Lake.at(lake)
    tables_of(home)  # Refuses a lake that is missing, before anything is written there.
    if dry_run:
        for line in _preview_lines(home, upkeep):
            typer.echo(line)
        return

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    with acquire(home, ROLE) as lease:
        maintainer = Maintainer(home, upkeep, _say)
        _say(f"maintaining {home.root}")
        while not stop.is_set():
            if lease.is_lost:
                raise LakeError(f"{home.root} is maintained by another now; this one ends")
            done = _round(maintainer, lambda: lease.is_held and not stop.is_set(), every)
            if every is None and not done:
                return
            if every is not None:
                stop.wait(every if done is not None else max(every, FAILED_PAUSE_S))


def _round(maintainer: Maintainer, wanted: Callable[[], bool], every: float | None) -> int | None:
    """Steps done; None when the lake could not be asked, which ends nothing that goes on."""
    try:
        return maintainer.round(datetime.now(UTC), wanted)
    except LakeError as error:
        if every is None:
            raise
        _say(f"not maintained this time ({error}); trying again")
        return None


@lake_commands.command("status")
def status(
    lake: LakeOption = "var/lake",
    days: DaysOption = None,
) -> None:
    """One line a table: files, bytes, days, what was last done, what would be done next."""
    from rich.console import Console

    from pipelines.lake.lake import Lake
    from pipelines.lake.lease import holder_of
    from pipelines.upkeep.maintainer import ROLE, status_table
    from pipelines.upkeep.settings import Upkeep

    home = Lake.at(lake)
    wide = None if sys.stdout.isatty() else STATUS_WIDTH
    console = Console(width=wide)
    upkeep = Upkeep(table_days=_table_days(days or []))
    console.print(status_table(home, upkeep, datetime.now(UTC)))
    holder = holder_of(home, ROLE)
    console.print(f"maintained by {holder}" if holder else "maintained by nobody")


@lake_commands.command("retire")
def retire(
    emitter: Annotated[str, typer.Argument(help="Who is gone: cluster/broker/broker_id.")],
    lake: LakeOption = "var/lake",
    reason: Annotated[str | None, typer.Option(help="Why; kept with the row.")] = None,
) -> None:
    """Say that a broker was taken out for good: nothing of it is open or unknown any more."""
    from pipelines.lake.lake import Lake
    from pipelines.reading.retirements import retire as write

    by = f"{getpass.getuser()}@{socket.gethostname()}"
    write(Lake.at(lake), emitter, by=by, reason=reason, now=datetime.now(UTC))
    typer.echo(f"{emitter} is retired; if it reports anything more, it is there again")


def _preview_lines(home: Lake, upkeep: Upkeep) -> list[str]:
    from pipelines.upkeep.maintainer import preview

    lines = []
    for facts, work in preview(home, upkeep, datetime.now(UTC)):
        name = facts if isinstance(facts, str) else facts.name
        lines.append(f"{name}: {work}")
    return lines


def _say(line: str) -> None:
    typer.echo(f"{datetime.now(UTC):%H:%M:%S} {line}")
    sys.stdout.flush()


def _table_days(texts: list[str]) -> dict[str, int]:
    """`gold/consumer_lag=100` as a setting; ConfigError with the nearest names for a table that no
    lake has.
    """
    from engine.telemetry.tables import BRONZE_FOLDER, TABLES
    from pipelines.lake.lake import GOLD_FOLDER
    from pipelines.reading.catalogue import GOLD_TABLES

    known = [f"{BRONZE_FOLDER}/{table.name}" for table in TABLES]
    known += [f"{GOLD_FOLDER}/{table.name}" for table in GOLD_TABLES]
    found = {}
    for text in texts:
        table, separator, days = text.partition("=")
        if not separator or not days.isdecimal():
            raise ConfigError("--days", text, "TABLE=DAYS, like gold/consumer_lag=400")
        if table not in known:
            near = difflib.get_close_matches(table, known, n=3)
            which = f"; near it: {', '.join(near)}" if near else ""
            raise ConfigError(
                "--days", text, f"a table that lakes have, bronze/TABLE or gold/TABLE{which}"
            )
        found[table] = int(days)
    return found


def _watch_parent(parent: int, stop: threading.Event) -> None:
    """End with the process that started this one: SIGKILL of a parent stops no child."""

    def watch() -> None:
        while os.getppid() == parent:
            if stop.wait(PARENT_LOOK_S):
                return
        # What is under way is a merge that another may do again; the lease goes with the process.
        os._exit(0)

    threading.Thread(target=watch, name="parent", daemon=True).start()
