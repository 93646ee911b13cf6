"""The `tidemark demo` command: stages incidents on a cluster and shows what gold reveals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from demo.kinds import OWN, RAFT, ROCKETMQ
from demo.plan import Incident, make_plan
from demo.report import print_verdict, wide_console
from demo.stage import Settings, perform
from provision.commands import bring_spark

app = typer.Typer()

DURATION_S_DEFAULT = 120


@app.command("demo")
def demo(
    for_s: Annotated[
        int | None,
        typer.Option("--for", help="Play for so many seconds from the first gold row, then end."),
    ] = None,
    headless: Annotated[
        bool, typer.Option("--headless", help="End after the verdict instead of staying up.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides times, queues and victims.")] = 1,
    skip: Annotated[
        list[Incident] | None, typer.Option(help="Leave an incident out; may be repeated.")
    ] = None,
    home: Annotated[Path, typer.Option(help="Folder for lake, store and logs.")] = Path("var"),
    port: Annotated[int, typer.Option(help="Port of the dashboard; 0 takes a free one.")] = 8050,
    accounts: Annotated[
        bool,
        typer.Option("--accounts", help="Give each client an account, let nobody else in."),
    ] = False,
    raft: Annotated[
        bool,
        typer.Option("--raft", help="Play on three brokers that elect their leader; it dies."),
    ] = False,
    rocketmq: Annotated[
        bool,
        typer.Option(
            "--rocketmq", help="Play on a real Apache RocketMQ, which is watched from outside."
        ),
    ] = False,
) -> None:
    """Play a whole cluster with incidents, and show what is found.

    Exit code 0: every incident that was played was found in gold, none that was left out, and every
    check holds.
    """
    bring_spark()  # Here, where somebody sees the bar, and not in a process of the stage.
    console = wide_console()
    if raft and rocketmq:
        raise typer.BadParameter("play on one kind of cluster", param_hint="--raft, --rocketmq")
    kind = ROCKETMQ if rocketmq else RAFT if raft else OWN
    duration_s = DURATION_S_DEFAULT if for_s is None else for_s
    plan = make_plan(seed, duration_s, skip or (), kind.looks)
    linger = for_s is None and not headless
    settings = Settings(home, port, linger, with_accounts=accounts, kind=kind)
    try:
        verdict = perform(plan, settings, console, lambda verdict: print_verdict(verdict, console))
    except KeyboardInterrupt:
        console.print("stopped")
        raise typer.Exit(0 if linger else 130) from None
    raise typer.Exit(0 if verdict.success else 1)
