"""A process that keeps a companion beside it, as a pipeline does, until its input ends.

python -m tests.integration.pipelines.companion_parent LAKE [upkeep | checks]
"""

from __future__ import annotations

import sys

from pipelines.upkeep.companion import Companion, checking


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def beside(lake: str, name: str) -> Companion:
    command = checking(lake, 1) if name == "checks" else None
    return Companion(
        lake,
        print_line,
        name=name,
        command=command,
        first_after_s=0,
        every_s=1,
        restart_pause_s=0.1,
    )


if __name__ == "__main__":
    with beside(*(*sys.argv[1:], "upkeep")[:2]):
        print_line("up")
        sys.stdin.read()
    print_line("down")
