"""`make mutants`: plant every listed bug, one at a time, and see the tests named for it fail.

    python -m tests.mutants [--only ROW_OR_TOPIC ...] [--at-once N] [--trust-the-tests]

First every named test runs without a bug: one that fails anyway proves nothing. Ends with 1 when a
mutant survives or cannot be planted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from rich.console import Console
from rich.table import Table

from tests.mutants.mutants import (
    CAUGHT,
    ROOT,
    Mutant,
    Verdict,
    copy_project,
    judge,
    read_mutants,
    run_tests,
)


def judge_all(mutants: Sequence[Mutant], folder: Path, at_once: int) -> list[Verdict]:
    """Judge them in as many copies of the project as run at once, in the order of the list."""
    free: SimpleQueue[Path] = SimpleQueue()
    for number in range(at_once):
        copy_project(ROOT, folder / f"copy-{number}")
        free.put(folder / f"copy-{number}")

    def one(mutant: Mutant) -> Verdict:
        copy = free.get()
        try:
            return judge(mutant, copy)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(at_once) as workers:
        return list(workers.map(one, mutants))


def faults_without_a_bug(mutants: Sequence[Mutant], folder: Path) -> str:
    """What pytest says of the named tests on the project as it is; empty when all pass."""
    copy_project(ROOT, folder / "unchanged")
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    code, said = run_tests(folder / "unchanged", tests)
    return "" if code == 0 else said


def main() -> int:
    """Judge the mutants asked for and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", nargs="+", default=[], help="rows or file names, such as C7")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--trust-the-tests", action="store_true", help="no run without a bug")
    options = parser.parse_args()
    chosen = [
        mutant
        for mutant in read_mutants()
        if not options.only or {mutant.row, mutant.topic} & set(options.only)
    ]
    console = Console(width=140)
    if not chosen:
        console.print(f"no mutant of {options.only}")
        return 1
    with tempfile.TemporaryDirectory(prefix="tidemark-mutants-") as folder:
        if not options.trust_the_tests:
            said = faults_without_a_bug(chosen, Path(folder))
            if said:
                console.print(f"The tests fail without any mutant:\n{said}", markup=False)
                return 1
        verdicts = judge_all(chosen, Path(folder), options.at_once)
    table = Table("row", "planted bug", "verdict", "s")
    for verdict in sorted(verdicts, key=lambda verdict: verdict.mutant.row):
        style = "green" if verdict.outcome == CAUGHT else "bold red"
        seconds = f"{verdict.seconds:.0f}"
        table.add_row(
            verdict.mutant.row, verdict.mutant.says, f"[{style}]{verdict.outcome}", seconds
        )
    console.print(table)
    alive = [verdict for verdict in verdicts if verdict.outcome != CAUGHT]
    for verdict in alive:
        console.rule(f"{verdict.mutant.topic}: {verdict.mutant.says}")
        console.print(verdict.detail, markup=False)
    console.print(f"{len(verdicts) - len(alive)} of {len(verdicts)} mutants caught")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
