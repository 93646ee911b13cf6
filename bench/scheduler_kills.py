"""Kills centres and executors with `kill -9`, then checks the run history for errors.

Run by `python -m bench --only scheduler.kills`.

Two centres and two executors as processes over one database, four jobs that are due each second or
two, people who edit and pause them; one party after the other is killed at a random moment and
started again. The judge of the history then looks for a run that began twice, a planned time
without a run, and a run whose record differs from what happened; it is silent, or says what it
found.

    python -m bench.scheduler_kills [KILLS [KIND ...]]     kinds: sqlite postgresql
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.bars import SCHEDULER_LOST, SCHEDULER_TWICE, Bar
from tests.integration.alerting.stores import postgresql_address, sqlite_address
from tests.integration.scheduler.kill_story import killed_at_random

KILLS: Final = 100
KINDS: Final = ("sqlite", "postgresql")


def main() -> None:
    """Play it on each kind of database, and print what came of it."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    table = Table(title=f"kill -9 of centres and executors, {count:,} on each database")
    for name in ("database", "checker", "kills", "triggers", "runs began", "lost", "twice"):
        table.add_column(name, justify="left" if name in {"database", "checker"} else "right")
    table.add_column("outcome not known", justify="right")
    table.add_column("took", justify="right")
    for kind in sys.argv[2:] or KINDS:
        began_s = time.monotonic()
        figures, found = played(kind, count)
        took = f"{time.monotonic() - began_s:,.0f} s"
        shown = [f"{count:,}", f"{figures['triggers']:,}", f"{figures['runs']:,}"]
        bars = [_judged(bar, found) for bar in (SCHEDULER_LOST, SCHEDULER_TWICE)]
        table.add_row(kind, found or "silent", *shown, *bars, f"{figures['lost']:,}", took)
    Console(width=140).print(table)


def played(kind: str, count: int) -> tuple[Counter[str], str]:
    """The figures of a kind of database, and what the judge found; empty: nothing."""
    with TemporaryDirectory(prefix="tidemark-kills-") as folder, _address(kind, Path(folder)) as at:
        try:
            return asyncio.run(killed_at_random(at, Path(folder), count)), ""
        except AssertionError as error:
            return Counter(), str(error).splitlines()[0]


def _address(kind: str, folder: Path) -> AbstractContextManager[str]:
    return postgresql_address() if kind == "postgresql" else nullcontext(sqlite_address(folder))


def _judged(bar: Bar, found: str) -> str:
    """None, for the judge would have said so; with the bar."""
    return "?" if found else f"0 ({bar})"


if __name__ == "__main__":
    main()
