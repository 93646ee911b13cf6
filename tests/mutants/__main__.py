"""The command `make mutants`: plants each listed bug and checks that its tests fail.

    python -m tests.mutants [--only ROW_OR_TOPIC ...] [--every N] [--at-once N] [--trust-the-tests]

Bugs are planted one at a time. It prints a line for each when it is judged; then every test that
failed runs once more without a bug: one that fails anyway proves nothing. Ends with 1 when a mutant
survives, cannot be planted or is not proven.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.table import Table

from tests.mutants.mutants import (
    CAUGHT,
    ROOT,
    UNPROVEN,
    Mutant,
    Verdict,
    copy_project,
    fail_anyway,
    judge,
    read_mutants,
)

TESTS_AT_A_TIME = 40
"""In one pytest, when they run without a bug."""


class Copies:
    """As many copies of the project as mutants are judged at once."""

    def __init__(self, copies: Iterable[Path]) -> None:
        self._free: SimpleQueue[Path] = SimpleQueue()
        for copy in copies:
            self._free.put(copy)

    @contextmanager
    def one(self) -> Iterator[Path]:
        """One that nobody else uses meanwhile."""
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)

    def judge(self, mutant: Mutant) -> Verdict:
        """Judge it in a copy."""
        with self.one() as copy:
            return judge(mutant, copy)

    def fail_anyway(self, tests: Sequence[str]) -> dict[str, str]:
        """Those that fail without a bug → what pytest said."""
        with self.one() as copy:
            return fail_anyway(copy, tests)


def judge_all(
    mutants: Sequence[Mutant], copies: Copies, workers: ThreadPoolExecutor, console: Console
) -> list[Verdict]:
    """Judge them, with a line for each as it ends; in the order of the list."""
    running = [workers.submit(copies.judge, mutant) for mutant in mutants]
    for number, ended in enumerate(as_completed(running), start=1):
        verdict = ended.result()
        console.print(
            f"{number:4}/{len(mutants)} {verdict.outcome:8} {verdict.seconds:5.1f} s  "
            f"{verdict.mutant.topic}: {verdict.mutant.says}",
            markup=False,
            soft_wrap=True,
        )
    return [ended.result() for ended in running]


def prove(
    verdicts: Sequence[Verdict], copies: Copies, workers: ThreadPoolExecutor
) -> list[Verdict]:
    """The same verdicts, but for bugs that were caught by a test that fails anyway."""
    failed = sorted({verdict.failed for verdict in verdicts if verdict.failed})
    cuts = range(0, len(failed), TESTS_AT_A_TIME)
    shares = [failed[first : first + TESTS_AT_A_TIME] for first in cuts]
    anyway: dict[str, str] = {}
    for found in workers.map(copies.fail_anyway, shares):
        anyway |= found
    return [
        replace(verdict, outcome=UNPROVEN, detail=f"{verdict.failed}:\n{anyway[verdict.failed]}")
        if verdict.failed in anyway
        else verdict
        for verdict in verdicts
    ]


def main() -> int:
    """Judge the mutants asked for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", nargs="+", default=[], help="rows or file names, such as C7")
    parser.add_argument("--every", type=int, default=1, help="a sample: each N-th of them")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--trust-the-tests", action="store_true", help="no run without a bug")
    options = parser.parse_args()
    chosen = [
        mutant
        for mutant in read_mutants()
        if not options.only or {mutant.row, mutant.topic} & set(options.only)
    ][:: options.every]
    console = Console(width=140)
    if not chosen:
        console.print(f"no mutant of {options.only}")
        return 1
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="tidemark-mutants-") as folder,
        ThreadPoolExecutor(options.at_once) as workers,
    ):
        folders = [Path(folder) / f"copy-{number}" for number in range(options.at_once)]
        for copy in folders:
            copy_project(ROOT, copy)
        copies = Copies(folders)
        verdicts = judge_all(chosen, copies, workers, console)
        if not options.trust_the_tests:
            verdicts = prove(verdicts, copies, workers)
    show(verdicts, console)
    alive = [verdict for verdict in verdicts if verdict.outcome != CAUGHT]
    console.print(
        f"{len(verdicts) - len(alive)} of {len(verdicts)} mutants caught "
        f"in {(time.monotonic() - begun) / 60:.1f} minutes, {options.at_once} at once"
    )
    return 1 if alive else 0


def show(verdicts: Sequence[Verdict], console: Console) -> None:
    """The table by row, with its sum, and what was said of each that was not caught."""
    table = Table("row", "planted bug", "verdict", "s", "failed first", show_footer=True)
    table.columns[3].footer = f"{sum(verdict.seconds for verdict in verdicts):.0f}"
    for verdict in sorted(verdicts, key=lambda verdict: verdict.mutant.row):
        style = "green" if verdict.outcome == CAUGHT else "bold red"
        table.add_row(
            verdict.mutant.row,
            verdict.mutant.says,
            f"[{style}]{verdict.outcome}",
            f"{verdict.seconds:.1f}",
            verdict.failed.rpartition("::")[2].replace("[", r"\["),
        )
    console.print(table)
    for verdict in verdicts:
        if verdict.outcome != CAUGHT:
            console.rule(f"{verdict.mutant.topic}: {verdict.mutant.says}")
            console.print(verdict.detail, markup=False)


if __name__ == "__main__":
    sys.exit(main())
