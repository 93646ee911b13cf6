"""`tidemark` on a machine that can be ordered to break, by files in the folder TIDEMARK_ORDERS.

    python -m tests.chaos.member broker --store ...

    kill    the name of a kill point: the process is killed when it comes there
    slow    seconds that each sync of a file takes longer

The command and all it runs are the product's own.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from tests.chaos.kill_points import ALL
from tidemark import main

FOLDER: Final = "TIDEMARK_ORDERS"
KILL: Final = "kill"
SLOW: Final = "slow"


def program(orders: Path) -> tuple[str, ...]:
    """Words that begin a command line instead of `tidemark`."""
    return ("env", f"{FOLDER}={orders}", sys.executable, "-m", __name__)


def order(folder: Path, name: str, words: str) -> None:
    """Give one, as a whole."""
    folder.mkdir(exist_ok=True)
    fresh = folder / f"{name}.tmp"
    fresh.write_text(words)
    fresh.rename(folder / name)


def _slowed(sync: Callable[[int], None], switch: Path) -> Callable[[int], None]:
    def work(descriptor: int) -> None:
        if switch.exists():
            time.sleep(float(switch.read_text()))
        sync(descriptor)

    return work


def _reached(name: str, switch: Path) -> None:
    if switch.exists() and switch.read_text() == name:
        os.kill(os.getpid(), signal.SIGKILL)


def _install(folder: Path) -> None:
    for name, point in ALL.items():
        point.install(partial(_reached, name, folder / KILL))
    slow = folder / SLOW
    os.fdatasync, os.fsync = _slowed(os.fdatasync, slow), _slowed(os.fsync, slow)  # type: ignore[assignment]


if __name__ == "__main__":
    _install(Path(os.environ[FOLDER]))
    main()
