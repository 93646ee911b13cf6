"""Prints the demo's verdict as tables on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from demo.verdict import Verdict

PLAIN_WIDTH = 150
"""Columns when nobody looks at a terminal: logs scroll sideways, a cut-off figure says nothing."""


def wide_console() -> Console:
    """A console as wide as the terminal, or wide enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)


def print_verdict(verdict: Verdict, console: Console) -> None:
    """Print the groups, the incidents and the checks."""
    console.print(_groups(verdict))
    console.print(_incidents(verdict))
    failed = ", ".join(verdict.failed_checks) or "none"
    console.print(f"failed checks: {failed}")
    verb = "shows" if verdict.success else "does NOT show"
    console.print(f"verdict: gold {verb} what was played, no more and no less")


def _groups(verdict: Verdict) -> Table:
    table = Table(title="what gold says of each group")
    for heading in (
        "group",
        "lag",
        "time lag",
        "stalled windows",
        "duplicate-risk windows",
        "predicted duplicates",
        "observed duplicates",
        "dead letters",
    ):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for row in verdict.groups:
        at_least = "" if row.is_lag_whole else "at least "
        table.add_row(
            row.group,
            "unknown" if row.lag_messages is None else f"{at_least}{row.lag_messages}",
            "unknown" if row.time_lag_ms is None else f"{row.time_lag_ms / 1000:.1f} s",
            str(row.stalled_windows),
            str(row.risk_windows),
            str(row.predicted_duplicates),
            row.observed_duplicates.number,
            str(row.dead_letters),
        )
    return table


def _incidents(verdict: Verdict) -> Table:
    table = Table(title="incidents")
    for heading in ("incident", "played", "found", "evidence"):
        table.add_column(heading, overflow="fold")
    for finding in verdict.findings:
        mark = "" if finding.as_expected else "  <- not as expected"
        table.add_row(
            finding.incident.value,
            "yes" if finding.played else "left out",
            ("yes" if finding.found else "no") + mark,
            finding.evidence,
        )
    return table
