"""A process that keeps a maintainer beside it until its input ends.

python -m tests.integration.pipelines.companion_parent LAKE
"""

from __future__ import annotations

import sys

from pipelines.upkeep.companion import Companion


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    with Companion(sys.argv[1], tell, first_after_s=0, every_s=1, restart_pause_s=0.1):
        tell("up")
        sys.stdin.read()
    tell("down")
