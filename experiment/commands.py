"""The `tidemark experiment kills` command: its options and exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiment.plan import Flush, Listener

app = typer.Typer(no_args_is_help=True)
experiment = typer.Typer(
    no_args_is_help=True, help="Harm real processes, and hold the lake's predictions against it."
)
app.add_typer(experiment, name="experiment")


@experiment.callback()
def of_what() -> None:
    """Harm real processes, and hold the lake's predictions against it."""


@experiment.command("kills")
def kills(
    kills: Annotated[int, typer.Option(help="How many; a kill takes about ten seconds.")] = 12,
    seed: Annotated[int, typer.Option(help="Decides moments, victims and flush modes.")] = 1,
    lake: Annotated[
        str | None, typer.Option(help="Path or URI of the lake; else one in the home folder.")
    ] = None,
    home: Annotated[
        Path, typer.Option(help="Folder for stores, ledgers and logs, one a run.")
    ] = Path("var/experiments"),
    listeners: Annotated[
        list[Listener] | None, typer.Option(help="Kinds of listeners; repeatable, else all.")
    ] = None,
    flush: Annotated[
        list[Flush] | None, typer.Option(help="Flush modes of the broker; repeatable, else both.")
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master: local[2], spark://HOST:PORT, ...")] = (
        "local[2]"
    ),
) -> None:
    """Kill a real broker and real consumers; what comes twice must have been predicted.

    Exit code 0: every message that came twice lies in a range recorded before, four fifths of what
    was predicted came, and what was certain came without exception, in half of the kills at least.
    """
    from demo.report import wide_console
    from experiment.kills import run_kills, to_the_end
    from experiment.plan import make_plan
    from experiment.report import print_outcome
    from pipelines.base.settings import Evaluation, Pace
    from pipelines.cycles.driver import Driver, on_spark
    from pipelines.cycles.live import only_driver
    from pipelines.lake.lake import Lake
    from pipelines.lake.session import open_session, require_java

    plan = make_plan(kills, seed, listeners or tuple(Listener), flush or tuple(Flush))
    require_java()
    console = wide_console()

    def compute(target: Lake) -> None:
        with only_driver(target):
            spark = open_session(master)
            job = on_spark(spark)
            to_the_end(Driver(job, target, target, evaluation=Evaluation(), pace=Pace()))
            spark.stop()

    def report(words: str) -> None:
        console.print(words, highlight=False)

    try:
        target = Lake.at(lake or str(home / "lake"))
        outcome = run_kills(plan, home, target, compute=compute, report=report)
    except KeyboardInterrupt:
        console.print("stopped")
        raise typer.Exit(130) from None
    print_outcome(outcome, console)
    raise typer.Exit(0 if outcome.verdict.holds else 1)
