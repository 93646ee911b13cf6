"""The demo with three seeds, and once with each incident left out: `make demo-matrix`.

Exit code 0 only when every run says that gold found all that was played and nothing that was not.

    python -m demo.matrix [--for SECONDS]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from demo.plan import Incident, make_plan
from demo.report import print_verdict, wide_console
from demo.stage import Settings, Stage

SEEDS = (1, 2, 3)


def runs() -> list[tuple[str, int, tuple[Incident, ...]]]:
    """Title, seed and incidents left out, of every run."""
    seeded: list[tuple[str, int, tuple[Incident, ...]]] = [(f"seed {s}", s, ()) for s in SEEDS]
    return seeded + [(f"without {incident.value}", SEEDS[0], (incident,)) for incident in Incident]


def main() -> int:
    """Play them all, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m demo.matrix")
    parser.add_argument("--for", dest="duration_s", type=int, default=120)
    duration_s = parser.parse_args().duration_s
    console = wide_console()
    failed: list[str] = []
    for title, seed, skip in runs():
        console.rule(title)
        with tempfile.TemporaryDirectory(prefix="tidemark-demo-") as folder:
            settings = Settings(Path(folder) / "home", dash_port=0, linger=False)
            stage = Stage(make_plan(seed, duration_s, skip), settings, console)
            verdict = stage.run(lambda verdict: print_verdict(verdict, console))
        if not verdict.success:
            failed.append(title)
    console.rule("matrix")
    console.print(
        f"{len(failed)} runs failed: {', '.join(failed)}" if failed else "all runs passed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
