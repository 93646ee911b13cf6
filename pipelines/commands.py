"""Implements the `tidemark pipeline run`, `pipeline replay`, `evaluate` and `lab` commands.

Absent on purpose: work. SIGTERM and SIGINT let the cycle under way end, then the process exits with
0.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from engine.foundation.errors import ConfigError
from pipelines.base.command_options import (
    AddressOption,
    ConfOption,
    LakeOption,
    MasterOption,
    spark_settings_of,
)
from pipelines.base.time_units import given_us

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake

app = typer.Typer(no_args_is_help=True)
pipeline = typer.Typer(no_args_is_help=True, help="Compute the gold tables: run (live) or replay.")
app.add_typer(pipeline, name="pipeline")

BucketsOption = Annotated[
    int, typer.Option(help="Parts of the groups, for a new run: as many as cores.")
]


class Rules(StrEnum):
    """Rule sets whose cases can be run."""

    BURROW = "burrow"


class StopSignal:
    """Asks politely: set by SIGTERM or SIGINT, looked at between cycles."""

    def __init__(self, for_s: float | None) -> None:
        self._ends_s = None if for_s is None else time.monotonic() + for_s
        self._asked = False
        self.listen()

    def listen(self) -> None:
        """Take the two signals."""
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, self._ask)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._asked = True

    def absent(self) -> bool:
        """Nobody asked to stop, and time is not up."""
        return not self._asked and (self._ends_s is None or time.monotonic() < self._ends_s)


@pipeline.command("run")
def run(
    lake: LakeOption,
    window_ms: Annotated[int, typer.Option(help="Length of the evaluation window.")] = 30_000,
    slide_ms: Annotated[int, typer.Option(help="Distance of evaluation ticks.")] = 5_000,
    cycle_ms: Annotated[int, typer.Option(help="Shortest time between cycle starts.")] = 1_000,
    rows_per_cycle: Annotated[int, typer.Option(help="Bronze rows a cycle takes.")] = 200_000,
    buckets: BucketsOption = 2,
    for_s: Annotated[
        float | None, typer.Option("--for", help="Stop after so many seconds.")
    ] = None,
    master: MasterOption = "local[2]",
    address: AddressOption = None,
    conf: ConfOption = None,
    upkeep: Annotated[
        bool, typer.Option("--upkeep/--no-upkeep", help="Maintain the lake beside it.")
    ] = True,
    checks_every: Annotated[
        int, typer.Option(help="Check the lake beside it after so many cycles; 0: never.", min=0)
    ] = 30,
) -> None:
    """Compute gold from what the shipper brings, until stopped."""
    from pipelines.base.settings import Evaluation, Pace
    from pipelines.cycles.driver import Driver, Progress, on_spark
    from pipelines.cycles.live import await_first_shipment, only_driver, poll_s_of, run_live
    from pipelines.cycles.taking_over import live_driver
    from pipelines.lake.lake import Lake
    from pipelines.lake.session import open_session, require_java
    from pipelines.reading.emitters import Periods

    if for_s is not None and not for_s > 0:
        raise ConfigError("--for", for_s, "seconds, more than 0")
    stop = StopSignal(for_s)
    evaluation = Evaluation(window_ms=window_ms, slide_ms=slide_ms)
    pace = Pace(cycle_ms=cycle_ms, rows_per_cycle=rows_per_cycle, buckets=buckets)
    home = Lake.at(lake)
    require_java()
    with only_driver(home) as lease:
        spark = open_session(master, address=address, conf=spark_settings_of(conf))
        stop.listen()  # Again: Spark has put its own handler of SIGINT in place.

        def say_failure(sentence: str) -> None:
            typer.echo(sentence, err=True)

        periods = Periods(home, evaluation, say_failure)

        def say(progress: Progress) -> None:
            typer.echo(str(progress))
            sys.stdout.flush()
            periods.cycle()

        def begin() -> Driver:
            return live_driver(
                on_spark(spark), home, evaluation=evaluation, pace=pace, say=typer.echo
            )

        typer.echo(f"ready lake={home.root} window={window_ms} ms slide={slide_ms} ms")
        sys.stdout.flush()
        patience_ms = pace.first_shipment_wait_ms
        if await_first_shipment(home, patience_ms=patience_ms, wanted=stop.absent):
            with _beside(home, say_failure, upkeep=upkeep, checks_every=checks_every):
                run_live(
                    begin,
                    lease,
                    pace=pace,
                    wanted=stop.absent,
                    poll_s=poll_s_of(home),
                    say=say,
                    say_failure=say_failure,
                )
        spark.stop()


@contextmanager
def _beside(
    lake: Lake, say_failure: Callable[[str], None], *, upkeep: bool, checks_every: int
) -> Iterator[None]:
    """The processes that maintain the lake and check it while it is computed."""
    from pipelines.upkeep.companion import Companion, checking

    with ExitStack() as started:
        if upkeep:
            started.enter_context(Companion(lake.root, say_failure))
        if checks_every:
            check = checking(lake.root, checks_every)
            started.enter_context(Companion(lake.root, say_failure, name="checks", command=check))
        yield


@pipeline.command("replay")
def replay(
    lake: LakeOption,
    into: Annotated[str, typer.Option(help="Path or URI of the lake to compute into.")],
    begin: Annotated[
        str | None,
        typer.Option("--from", help="Begin, ISO 8601 (UTC unless it says else), or the first row."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="End, ISO 8601; or --cycle.")] = None,
    cycle: Annotated[
        int | None, typer.Option(help="In place of --to: what was known at the end of a cycle.")
    ] = None,
    compare: Annotated[bool, typer.Option(help="Compare with the gold that is there.")] = False,
    window_ms: Annotated[
        int | None, typer.Option(help="Length of the evaluation window; else the lake's own.")
    ] = None,
    slide_ms: Annotated[
        int | None, typer.Option(help="Distance of evaluation ticks; else the lake's own.")
    ] = None,
    rows_per_cycle: Annotated[int, typer.Option(help="Bronze rows a cycle takes.")] = 2_000_000,
    buckets: BucketsOption = 2,
    master: MasterOption = "local[2]",
    address: AddressOption = None,
    conf: ConfOption = None,
) -> None:
    """Compute gold again for a past range, or as it was at a cycle, into a lake of its own."""
    from pipelines.base.settings import Pace
    from pipelines.cycles import replaying
    from pipelines.cycles.driver import on_spark
    from pipelines.lake.lake import Lake
    from pipelines.lake.session import open_session

    source, target = Lake.at(lake), Lake.at(into)
    from_us, to_us = _replayed_range(begin, end, cycle)
    to = replaying.cuts_of_cycle(source, cycle) if cycle is not None else to_us
    evaluation = replaying.evaluation_of(source, window_ms=window_ms, slide_ms=slide_ms)
    replaying.require(source, target, from_us=from_us, to=to)
    computed = replaying.replay(
        on_spark(open_session(master, address=address, conf=spark_settings_of(conf))),
        source,
        target,
        from_us=from_us,
        to=to,
        evaluation=evaluation,
        pace=Pace(rows_per_cycle=rows_per_cycle, buckets=buckets),
        say=typer.echo,
    )
    if not compare:
        return
    judged = replaying.judged_part(computed, source)
    if judged != computed:
        typer.echo("compared up to where the live gold ends")
    differs = False
    for one in replaying.differences(source, target, judged):
        typer.echo(str(one))
        for sample in one.samples:
            typer.echo(f"  {sample}")
        differs = differs or not one.is_none
    if differs:
        raise typer.Exit(1)


@app.command("evaluate")
def evaluate(
    file: Annotated[Path, typer.Argument(help="Cases as JSON; docs/burrow.md has the kinds.")],
    rules: Annotated[Rules, typer.Option(help="Whose rules the cases are of.")],
) -> None:
    """Run cases of somebody's rules through our evaluator of them, and compare every field.

    Exit code 0: all are equal; 1: some differ; 2: the file is not one of cases.
    """
    from pipelines.rules.burrow.cases import run_cases
    from pipelines.rules.case_fields import CASE_FILE_BYTES_MAX, CaseFileError, parse

    assert rules is Rules.BURROW
    try:
        with file.open("rb") as opened:
            text = opened.read(CASE_FILE_BYTES_MAX + 1)
        results = list(run_cases(parse(text, name=file.name)))
    except OSError as error:
        problem = f"{file} cannot be read: {error.strerror}; name a file"
        typer.echo(f"tidemark evaluate: {problem}", err=True)
        raise typer.Exit(2) from None
    except CaseFileError as error:
        typer.echo(f"tidemark evaluate: {error}", err=True)
        raise typer.Exit(2) from None
    for one in results:
        typer.echo(str(one))
    different = sum(1 for one in results if one.differences)
    typer.echo(f"{len(results)} cases: {len(results) - different} ok, {different} DIFFERENT")
    if different:
        raise typer.Exit(1)


@app.command("lab")
def lab(
    lake: LakeOption = "var/lake",
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 8888,
    browser: Annotated[bool, typer.Option(help="Open a browser.")] = True,
) -> None:
    """Open the notebooks in JupyterLab, on a lake. An installed package copies them to ./notebooks
    first; a copy that is there stays as it is.
    """
    from pipelines.lab.lab import lab_command, lab_environment, own_notebooks, write_jupyter
    from pipelines.lake.lake import Lake
    from provision.commands import bring_spark
    from provision.places import JUPYTER

    bring_spark()  # Here, where somebody sees the bar, and not in a kernel.
    write_jupyter(JUPYTER)
    command = lab_command(port=port, browser=browser, notebooks=own_notebooks(Path.cwd()))
    # In place of this process: signals and the exit code are JupyterLab's own.
    os.execve(command[0], command, lab_environment(JUPYTER, Lake.at(lake)))  # noqa: S606


def _replayed_range(begin: str | None, end: str | None, cycle: int | None) -> tuple[int, int]:
    """The range to replay; without a beginning: from the first row; 0 where a cycle is the end."""
    if (end is None) == (cycle is None):
        raise ConfigError("--to", end, "a moment, or --cycle in its place")
    from_us = 0 if begin is None else given_us("--from", begin)
    to_us = 0 if end is None else given_us("--to", end)
    if end is not None and from_us >= to_us:
        raise ConfigError("--to", end, f"a moment after --from {begin}")
    return from_us, to_us
