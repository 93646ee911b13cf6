"""Commands of the pipelines: `tidemark pipeline run`, `tidemark pipeline replay`, `tidemark lab`.

Absent on purpose: work. SIGTERM and SIGINT let the cycle under way end, then the process exits with 0.
"""

from __future__ import annotations

import signal
import sys
import time
from datetime import UTC, datetime
from types import FrameType
from typing import Annotated

import typer

from engine.foundation.errors import ConfigError

app = typer.Typer(no_args_is_help=True)
pipeline = typer.Typer(no_args_is_help=True, help="Compute the gold tables: run (live) or replay.")
app.add_typer(pipeline, name="pipeline")

LakeOption = Annotated[str, typer.Option("--lake", help="Path or URI of the lake.")]


class StopSignal:
    """Asks politely: set by SIGTERM or SIGINT, looked at between cycles."""

    def __init__(self, for_s: float | None) -> None:
        self._ends_s = None if for_s is None else time.monotonic() + for_s
        self._asked = False
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
    cycle_ms: Annotated[int, typer.Option(help="Shortest time between cycle starts.")] = 2_000,
    for_s: Annotated[float | None, typer.Option("--for", help="Stop after so many seconds.")] = None,
    master: Annotated[str, typer.Option(help="Spark master.")] = "local[2]",
) -> None:
    """Compute gold from what the shipper brings, until stopped."""
    from pipelines.lake import Lake
    from pipelines.session import open_session, require_java
    from pipelines.settings import Evaluation, Pace
    from pipelines.stream import Progress, await_first_shipment, run_stream

    stop = StopSignal(for_s)
    evaluation = Evaluation(window_ms=window_ms, slide_ms=slide_ms)
    pace = Pace(cycle_ms=cycle_ms)
    home = Lake.at(lake)
    require_java()
    spark = open_session(master)

    def tell(progress: Progress) -> None:
        typer.echo(str(progress))
        sys.stdout.flush()

    patience_ms = pace.first_shipment_wait_ms
    if await_first_shipment(home, patience_ms=patience_ms, wanted=stop.absent):
        run_stream(
            spark, home, evaluation=evaluation, pace=pace, wanted=stop.absent, tell=tell
        )
    spark.stop()
