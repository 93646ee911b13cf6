"""Command-line entry point that mounts each package's commands by name.

A command's module is imported when that command runs, never before: `tidemark --help` and a
starting broker must not pay for Spark, Dash or Great Expectations.

Absent on purpose: options, defaults, work. Each room's `commands.py` has an `app` in which the
command of that name lives. A TidemarkError that reaches this file becomes one line on standard
error, `tidemark COMMAND: what is wrong`, and exit code 1; docs/exit-codes.md has all codes.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from engine.foundation.errors import TidemarkError
from provision.places import JAVA_LINK

__all__ = ["COMMANDS", "Mount", "app", "load", "main"]


class Mount(NamedTuple):
    """Where a command lives, and the line `tidemark --help` shows without importing it."""

    module: str
    summary: str


COMMANDS = {
    "setup": Mount("provision.commands", "Bring what Spark needs: Java, jars; or check it."),
    "demo": Mount("demo.commands", "Play a whole cluster with incidents, and show what is found."),
    "experiment": Mount("experiment.commands", "Kill real processes, score what was predicted."),
    "engine": Mount("engine.commands", "Run a name server and a broker in one process."),
    "namesrv": Mount("engine.commands", "Run a name server."),
    "broker": Mount("engine.commands", "Run a broker."),
    "observe": Mount("engine.observe", "Watch a RocketMQ cluster that others run, from outside."),
    "store": Mount("engine.store.commands", "Look at the files of a store: check."),
    "admin": Mount("engine.admin.commands", "Ask a cluster, or change it: topics, groups, ..."),
    "shipper": Mount("engine.telemetry.commands", "Ship a broker's spooled facts to the lake."),
    "pipeline": Mount("pipelines.commands", "Compute the gold tables: run (live) or replay."),
    "lake": Mount("pipelines.upkeep.commands", "Look after the lake: maintain, status, retire."),
    "evaluate": Mount("pipelines.commands", "Run cases of another tool's rules, and compare."),
    "backtest": Mount("pipelines.backtest.commands", "Try rules on the past, side by side."),
    "alerts": Mount(
        "pipelines.alerting.commands", "Watch gold and notify people; ask of alerts; check rules."
    ),
    "executor": Mount(
        "pipelines.scheduler.executor.commands", "Run the jobs of a module when a centre asks."
    ),
    "scheduler": Mount("pipelines.scheduler.commands.app", "Be a centre that runs jobs: run."),
    "jobs": Mount(
        "pipelines.platform_jobs.commands", "Look at jobs, or change them: add, run, ..."
    ),
    "reports": Mount(
        "pipelines.reports.commands", "Reports of past periods: run, list, show, open, compare."
    ),
    "operations": Mount(
        "pipelines.operations.commands", "Long actions, begun and asked for: run, list, wait, ..."
    ),
    "check": Mount("expectations.commands", "Check the lake; non-zero when a critical one fails."),
    "dash": Mount("dashboards.commands", "Serve the dashboard."),
    "lab": Mount("pipelines.commands", "Open the notebooks in JupyterLab."),
}


class LazyGroup(TyperGroup):
    """A command group whose members are known by name and imported on use."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of COMMANDS: from the whole to its parts."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in that carries name and summary: enough for help and completion, free of
        imports.
        """
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name].summary)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The real command, imported now because it is about to run."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, load(name) if name is not None else stand_in, rest


def load(name: str) -> Any:
    """Import the room that owns the command and return it from the room's `app`."""
    room = importlib.import_module(COMMANDS[name].module)
    return get_group(room.app).commands[name]


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def tidemark() -> None:
    """Who is behind, by how much, why, and what may be consumed twice."""


def main() -> None:
    """Entry point of the `tidemark` command."""
    if not __debug__:
        sys.exit("tidemark: refuses to run under `python -O`: its invariants are assertions.")
    # The Java that set-up found fit for Spark, for this process and its children.
    if JAVA_LINK.exists():
        os.environ["JAVA_HOME"] = str(JAVA_LINK.resolve())
    try:
        app()
    except TidemarkError as error:
        name = next((word for word in sys.argv[1:] if word in COMMANDS), "")
        sys.exit(f"tidemark {name}: {error}" if name else f"tidemark: {error}")


if __name__ == "__main__":
    main()
