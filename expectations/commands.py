"""The command `tidemark check`: a table on the terminal, an exit code, results in gold.

Exit codes: 0 all checks that count hold, 1 one does not, 2 the lake could not be judged.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.foundation.errors import ConfigError, LakeError
from expectations.check import Outcome, Severity
from pipelines.lake import Lake

if TYPE_CHECKING:
    from expectations.checkpoints import CheckRun

PLAIN_WIDTH: Final = 160
"""Columns of the table when nobody looks at a terminal: logs scroll sideways."""

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
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Keep no results.")] = False,
) -> None:
    """Check the lake; non-zero when a critical check fails."""
    try:
        least = Severity(fail_on.upper())
    except ValueError:
        allowed = ", ".join(severity.value.lower() for severity in Severity)
        raise ConfigError("fail-on", fail_on, f"one of {allowed}") from None
    # Here and not above: Great Expectations takes seconds to load, which `--help` should not.
    from expectations.checkpoints import run_checks
    from expectations.results import keep

    now = datetime.now(UTC)
    place = Lake.at(lake)
    try:
        run = run_checks(place, run_id=run_id or f"{now:%Y%m%dT%H%M%S.%fZ}", now=now)
        if not dry_run:
            keep(run, place)
    except LakeError as error:
        typer.echo(f"tidemark check: {error}", err=True)
        raise typer.Exit(2) from error
    terminal = sys.stdout.isatty()
    _show(run, Console(width=None if terminal else PLAIN_WIDTH))
    if run.failed(least):
        raise typer.Exit(1)


def _show(run: CheckRun, console: Console) -> None:
    table = Table(title=f"Checks of run {run.run_id}", title_justify="left")
    # The name is what one looks for: it is never cut.
    for heading in ("", "check", "severity", "table", "checked"):
        table.add_column(
            heading,
            justify="right" if heading == "checked" else "left",
            no_wrap=heading != "observed",
        )
    table.add_column("observed", overflow="fold")
    for outcome in run.outcomes:
        table.add_row(
            _mark(outcome),
            outcome.check.name,
            outcome.severity.value.lower(),
            outcome.table,
            f"{outcome.checked_rows:,}",
            Text(outcome.observed_value),  # Group names are not markup.
        )
    console.print(table)
    failed = [one for one in run.outcomes if not one.success and not one.nothing_to_check]
    empty = sum(one.nothing_to_check for one in run.outcomes)
    held = len(run.outcomes) - len(failed) - empty
    console.print(
        f"{held} of {len(run.outcomes)} hold, {len(failed)} do not, {empty} had nothing to check; "
        f"data to {run.observed_at:%Y-%m-%d %H:%M:%S} UTC"
    )


def _mark(outcome: Outcome) -> Text:
    """Word and colour: neither alone."""
    if outcome.success:
        return Text("holds", style="green")
    if outcome.nothing_to_check:
        return Text("empty", style="dim")
    if outcome.severity is Severity.INFO:
        return Text("note", style="cyan")
    critical = outcome.severity is Severity.CRITICAL
    return Text("FAILS", style="bold red" if critical else "yellow")
