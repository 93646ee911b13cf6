"""Implements the `tidemark check` command, which checks a lake and reports the results.

With `--every-cycles` it runs round after round beside a pipeline and prints a line for each.

Exit codes: 0 all checks that count hold, 1 one does not, 2 the lake could not be judged. With
`--every-cycles` it is 0 at the end; failures are on the lines and in gold.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.foundation.errors import ConfigError, LakeError
from expectations.batch import require
from expectations.check import Outcome, Severity
from pipelines.base.command_options import ConfOption, spark_settings_of
from pipelines.lake.lake import DATA_DOCS_FOLDER, Lake

if TYPE_CHECKING:
    from expectations.job import Job
    from expectations.rounds import Round, Wishes

PLAIN_WIDTH: Final = 160
"""Columns of the table when nobody looks at a terminal: logs scroll sideways."""
POLL_S: Final = 2.0
"""Between two looks how far the pipeline has come."""
ROUND_ENDS_WITHIN_S: Final = 5
"""Once it is asked to stop; whoever started it waits for ten before he kills it."""
ROUND_S_MAX: Final = 300.0
"""After so long without a new cycle there is a round all the same: it finds silence."""
NONE: Final = "none"
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.command("check")
def check(
    lake: Annotated[str, typer.Option(help="Lake: a folder, or a URI such as s3://bucket/lake.")],
    fail_on: Annotated[
        str, typer.Option(help="Least severity that fails the run: critical, warning or info.")
    ] = "critical",
    run_id: Annotated[
        str | None, typer.Option(help="Name of the run; the same name is kept once.")
    ] = None,
    docs: Annotated[
        str | None,
        typer.Option(help="Folder for Data Docs, or none; else the lake's own, when it is local."),
    ] = None,
    every_cycles: Annotated[
        int | None, typer.Option(help="Go on: a round after every so many cycles.", min=1)
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[1]",
    address: Annotated[
        str | None, typer.Option(help="Of this machine, for a cluster's executors to call back.")
    ] = None,
    conf: ConfOption = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
    *,
    again: Annotated[
        bool, typer.Option("--again", help="Judge everything that is there, not what is new.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Keep no results.")] = False,
) -> None:
    """Check what is new in the lake; non-zero when a critical check fails."""
    try:
        least = Severity(fail_on.upper())
    except ValueError:
        allowed = ", ".join(severity.value.lower() for severity in Severity)
        raise ConfigError("fail-on", fail_on, f"one of {allowed}") from None
    place = Lake.at(lake)
    folder = None if dry_run else _docs_folder(place, docs)
    stop = _stop_at_signals(parent) if every_cycles is not None else threading.Event()
    try:
        if every_cycles is None:
            require(place)  # Before Great Expectations and Spark take their seconds.
        # Here and not above: Great Expectations takes seconds to load, which `--help` should not.
        from expectations.rounds import Wishes

        wishes = Wishes(run_id, not dry_run, again, folder)
        job = _job(master, address, spark_settings_of(conf))
        if every_cycles is not None:
            _go_on(place, job, wishes, every_cycles=every_cycles, stop=stop)
            signal.alarm(0)
            return
        done = _round(place, job, wishes)
    except LakeError as error:
        typer.echo(f"tidemark check: {error}", err=True)
        raise typer.Exit(2) from error
    _show(done, Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH))
    if done.failed(least):
        raise typer.Exit(1)


def _job(master: str, address: str | None, conf: dict[str, str]) -> Job:
    from expectations.job import on_spark
    from pipelines.lake.session import open_session

    return on_spark(open_session(master, address=address, conf=conf))


def _round(place: Lake, job: Job, wishes: Wishes) -> Round:
    from expectations.rounds import check_round

    return check_round(place, job, wishes, clock=_now)


def _docs_folder(place: Lake, docs: str | None) -> Path | None:
    if docs == NONE:
        return None
    if docs is not None:
        return Path(docs).absolute()
    return None if "://" in place.root else Path(place.root) / DATA_DOCS_FOLDER


def _go_on(
    place: Lake, job: Job, wishes: Wishes, *, every_cycles: int, stop: threading.Event
) -> None:
    """A round whenever so many cycles are complete, until asked to stop."""
    from pipelines.reading.moment import last_complete

    judged, last_s = 0, 0.0
    _print(f"ready lake={place.root} every {every_cycles} cycles")
    while not stop.is_set():
        try:
            moment = last_complete(place)
            cycle = moment.cycle if moment is not None else 0
            due = cycle >= judged + every_cycles or cycle < judged
            if cycle and (due or _steady_s() - last_s > ROUND_S_MAX):
                done = _round(place, job, wishes)
                judged, last_s = done.runs[-1].batch.cycle, _steady_s()
                _print(_line(done))
        except LakeError as error:
            _print(f"not checked this time ({error}); trying again")
        stop.wait(POLL_S)


def _stop_at_signals(parent: int | None) -> threading.Event:
    """Set by SIGTERM, SIGINT, and the end of the process that started this one. A round under way
    may end by itself for some seconds; what is not done then is judged again by the next.
    """
    stop = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.alarm(ROUND_ENDS_WITHIN_S)

    def end(_number: int, _frame: FrameType | None) -> None:
        from pipelines.lake.session import end_now

        end_now()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    signal.signal(signal.SIGALRM, end)

    def watch() -> None:
        while os.getppid() == parent:
            if stop.wait(POLL_S):
                return
        os.kill(os.getpid(), signal.SIGALRM)
        time.sleep(ROUND_ENDS_WITHIN_S)
        os._exit(0)

    if parent is not None:
        threading.Thread(target=watch, name="parent", daemon=True).start()
    return stop


def _line(done: Round) -> str:
    """A round in one line."""
    bad = [
        one.check.name
        for one in done.outcomes
        if not one.success and not one.nothing_to_check and one.severity is not Severity.INFO
    ]
    last = done.runs[-1]
    found = f"failing: {', '.join(bad)}" if bad else "all hold"
    rows = sum(run.batch.rows for run in done.runs)
    return f"checked to cycle {last.batch.cycle}, {rows:,} facts: {found}"


def _show(done: Round, console: Console) -> None:
    last = done.runs[-1]
    table = Table(title=f"Checks of run {last.run_id}", title_justify="left")
    # The name is what one looks for: it is never cut.
    for heading in ("", "check", "severity", "table", "checked"):
        table.add_column(heading, justify="right" if heading == "checked" else "left", no_wrap=True)
    table.add_column("observed", overflow="fold")
    outcomes = done.outcomes
    failed = [one for one in outcomes if not one.success and not one.nothing_to_check]
    idle = sum(one.nothing_to_check for one in outcomes)
    for outcome in [*failed, *(one for one in outcomes if one.success)]:
        table.add_row(
            _mark(outcome),
            outcome.check.name,
            outcome.severity.value.lower(),
            outcome.check.table,
            f"{outcome.checked_rows:,}",
            Text(outcome.observed_value),  # Group names are not markup.
        )
    console.print(table)
    for sentence in done.earlier:
        console.print(Text(f"still counts: {sentence}", style="bold red"))
    console.print(
        f"{len(outcomes) - len(failed) - idle} of {len(outcomes)} hold, {len(failed)} do not, "
        f"{idle} had nothing new to check; data to {last.observed_at:%Y-%m-%d %H:%M:%S} UTC"
    )


def _mark(outcome: Outcome) -> Text:
    """Word and colour: neither alone."""
    if outcome.success:
        return Text("holds", style="green")
    if outcome.severity is Severity.INFO:
        return Text("note", style="cyan")
    critical = outcome.severity is Severity.CRITICAL
    return Text("FAILS", style="bold red" if critical else "yellow")


def _print(line: str) -> None:
    typer.echo(f"{_now():%H:%M:%S} {line}")
    sys.stdout.flush()


def _now() -> datetime:
    return datetime.now(UTC)


def _steady_s() -> float:
    return time.monotonic()
