"""Runs the demo with three seeds, then once without each incident (`make demo-matrix`).

Exit code 0 only when gold found every incident that was played, and no other, in every run.

    python -m demo.matrix [--rocketmq] [--for SECONDS] [--only TITLE ...]

A run that does not reach its end counts as failed; the others are played all the same, and what it
left behind stays where it is.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from demo.kinds import OWN, ROCKETMQ, Kind
from demo.plan import Incident, Plan, make_plan
from demo.processes import StageError
from demo.report import print_verdict, wide_console
from demo.stage import Settings, perform

SEEDS = (1, 2, 3)


def runs(incidents: Iterable[Incident]) -> list[tuple[str, int, tuple[Incident, ...]]]:
    """Title, seed and incidents left out, of every run."""
    seeded: list[tuple[str, int, tuple[Incident, ...]]] = [(f"seed {s}", s, ()) for s in SEEDS]
    return seeded + [(f"without {incident.value}", SEEDS[0], (incident,)) for incident in incidents]


def main() -> int:
    """Play them all, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m demo.matrix")
    parser.add_argument("--for", dest="duration_s", type=int, default=120)
    parser.add_argument("--rocketmq", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="TITLE")
    options = parser.parse_args()
    kind = ROCKETMQ if options.rocketmq else OWN
    wanted = [run for run in runs(kind.looks) if options.only is None or run[0] in options.only]
    if not wanted:
        parser.error(f"the runs are: {', '.join(title for title, _, _ in runs(kind.looks))}")
    console = wide_console()
    failed: list[str] = []
    for title, seed, skip in wanted:
        console.rule(title)
        if not play(make_plan(seed, options.duration_s, skip, kind.looks), kind, console):
            failed.append(title)
    console.rule("matrix")
    console.print(
        f"{len(failed)} runs failed: {', '.join(failed)}" if failed else "all runs passed"
    )
    return 1 if failed else 0


def play(plan: Plan, kind: Kind, console: Console) -> bool:
    """One run in a folder of its own, kept when it fails: did it end, and with success?"""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-demo-"))
    settings = Settings(folder / "home", dash_port=0, linger=False, kind=kind)
    try:
        verdict = perform(plan, settings, console, lambda verdict: print_verdict(verdict, console))
    except StageError as error:
        console.print(f"the run ended early: {error}")
        return False
    if verdict.success:
        shutil.rmtree(folder)
    else:
        console.print(f"lake and logs of this run stay in {folder}")
    return verdict.success


if __name__ == "__main__":
    sys.exit(main())
