"""The command `make sim SEEDS=500`: every simulation story with each seed, in parallel.

    python -m tests.simulation --seeds 500 [--at-once N]

The stories without a seed run once, beside them. Each share of the seeds is a pytest of its own; a
line is printed when it ends, with its output when a story broke. The exit code is 1 then. A table
says which faults hit whom of a Raft group in which phase (`fault_cells`); of all stories together
none of those that have to be met may be missing. Absent on purpose: stopping at the first failure.
A night's run is to name every seed that fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.seeds import MANY, ONE, range_of
from tests.simulation.fault_cells import CELLS_FOLDER, table, unmet, written_in

ROOT = Path(__file__).resolve().parents[2]
ALL = "tests/simulation"
SEEDS_A_SHARE = 25
"""Enough that the start of pytest is small beside them, few enough that processors end together."""
NO_TEST_RAN = 5
"""Exit code of pytest."""


@dataclass(frozen=True)
class Share:
    """What one pytest runs: these seeds of every seeded story, or, without seeds, all others."""

    seeds: range | None

    def __str__(self) -> str:
        if self.seeds is None:
            return "stories without a seed"
        return f"seeds {self.seeds[0]}-{self.seeds[-1]}"

    def run(self, folder: str, cells_folder: str) -> tuple[int, str]:
        """Pytest's exit code and all it said; which cells it met is left in a folder."""
        environment = {name: value for name, value in os.environ.items() if name not in {ONE, MANY}}
        environment[CELLS_FOLDER] = cells_folder
        chosen = "not seeded and not slow"
        if self.seeds is not None:
            environment[MANY] = f"{self.seeds[0]}-{self.seeds[-1]}"
            chosen = "seeded and not slow"
        command = [sys.executable, "-m", "pytest", "-q", "-m", chosen, "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "--durations=0", "--durations-min=20", folder],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def shares(seeds: range) -> list[Share]:
    """The stories without a seed first, for some are long; then the seeds, some at a time."""
    cuts = range(seeds.start, seeds.stop, SEEDS_A_SHARE)
    return [
        Share(None),
        *(Share(range(first, min(first + SEEDS_A_SHARE, seeds.stop))) for first in cuts),
    ]


def main() -> int:
    """Play them all and say how it went, share by share."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=range_of, required=True, help="how many, or FIRST-LAST")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("folder", nargs="?", default=ALL, help="or a file of it")
    options = parser.parse_args()
    begun, broken = time.monotonic(), 0
    with (
        TemporaryDirectory() as cells_folder,
        ThreadPoolExecutor(options.at_once) as workers,
    ):
        running = {
            workers.submit(share.run, options.folder, cells_folder): share
            for share in shares(options.seeds)
        }
        for ended in as_completed(running):
            code, said = ended.result()
            fails = code not in {0, NO_TEST_RAN}
            broken += fails
            closing = (said.strip().splitlines() or ["pytest said nothing"])[-1]
            report(f"{said}\n{running[ended]}: BROKEN" if fails else f"{running[ended]}: {closing}")
        cells = written_in(Path(cells_folder))
    if cells:
        report(f"faults of a Raft group, by phase and role:\n{table(cells)}")
    if options.folder == ALL and (missing := unmet(cells)):
        report(f"{len(missing)} cells that have to be met were not")
        broken += 1
    took = f"{time.monotonic() - begun:.0f} s"
    if broken:
        report(f"broken after {took}; make sim SEED=N plays the number in a test's brackets again")
        return 1
    report(f"every story held with {Share(options.seeds)}, in {took}")
    return 0


def report(line: str) -> None:
    """Told at once: a run takes a while."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
