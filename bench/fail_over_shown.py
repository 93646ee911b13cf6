"""Measures how soon the overview's data shows that the leader of a Raft group died.

    python -m bench.fail_over_shown [--trials N] [--at FOLDER]

Plays `tidemark demo --raft --headless` and asks each 250 ms what the overview asks (`LakeData`),
from the leader's SIGKILL to the row of the fail-over. Between the two it notes when the new leader
says that it leads. A page asks each 2 s, which comes on top.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.bars import FAIL_OVER_SHOWN
from dashboards.reads.lake_data import LakeData
from pipelines.lake.lake import Lake
from tests.integration.scheduler.parties import is_alive

PLAY_S: Final = 100
NODES: Final = 3
LOOK_EACH_S: Final = 0.25
PATIENCE_S: Final = 240.0
SHOWN_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Shown:
    """Seconds after the leader's death."""

    led_s: float
    """The new leader's own row: since then it leads."""
    role_s: float
    """The feed has that row."""
    fail_over_s: float
    """The feed has the fail-over, with what it costs each group."""


def measure(folder: Path, seed: int) -> Shown:
    """Play once. Raises TimeoutError."""
    home = folder / f"demo-{seed}"
    command = [str(Path(sys.executable).parent / "tidemark"), "demo", "--raft", "--headless"]
    command += ["--for", str(PLAY_S), "--seed", str(seed), "--home", str(home), "--port", "0"]
    with (folder / "demo.log").open("wb") as log:
        play = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            return _watched(home)
        finally:
            play.terminate()
            play.wait()


def _watched(home: Path) -> Shown:
    store = f"{home / 'store'}/n"
    _until(lambda: len(_brokers(store)) == NODES, PATIENCE_S)
    nodes = _brokers(store)
    _until(lambda: not all(map(is_alive, nodes)), PATIENCE_S, each_s=0.01)
    died_at = datetime.now(UTC)
    data = LakeData(Lake.at(str(home / "lake")))
    begun = died_at - timedelta(seconds=60)

    def led() -> list[datetime]:
        rows = data.seen().lifecycle(begun, datetime.now(UTC))
        masters = rows.filter((rows["role"] == "MASTER") & (rows["event_time"] > died_at))
        return masters["event_time"].to_list()

    def fail_overs() -> bool:
        rows = data.seen().fail_overs(begun, datetime.now(UTC))
        return bool((rows["led_at"] > died_at).any())

    _until(lambda: bool(led()), SHOWN_WITHIN_S)
    role_s = (datetime.now(UTC) - died_at).total_seconds()
    led_s = (led()[0] - died_at).total_seconds()
    _until(fail_overs, SHOWN_WITHIN_S)
    return Shown(led_s, role_s, (datetime.now(UTC) - died_at).total_seconds())


def _brokers(store: str) -> list[int]:
    """The processes of the brokers whose stores begin so."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # It has ended, or is no process.
        is_broker = "broker" in words and any(word.startswith(store) for word in words)
        if is_broker and words[0].endswith(("python", "python3", "tidemark")):
            found.append(int(folder.name))
    return found


def _until(holds: Callable[[], bool], within_s: float, *, each_s: float = LOOK_EACH_S) -> None:
    ends_s = time.monotonic() + within_s
    while not holds():
        if time.monotonic() > ends_s:
            raise TimeoutError(f"not seen within {within_s} s")
        time.sleep(each_s)


def main() -> None:
    """Play some trials and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.fail_over_shown")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--at", type=Path, default=None, help="folder in which it plays")
    options = parser.parse_args()
    table = Table("seconds after the leader's death", "trials", "median", "longest", "bar")
    with tempfile.TemporaryDirectory(prefix="tidemark-shown-", dir=options.at) as folder:
        trials = [measure(Path(folder), seed) for seed in range(1, options.trials + 1)]
    shown = str(FAIL_OVER_SHOWN)
    for name, bar in (("led_s", ""), ("role_s", shown), ("fail_over_s", shown)):
        figures = [getattr(one, name) for one in trials]
        row = (name, str(len(figures)), f"{median(figures):.1f}", f"{max(figures):.1f}", bar)
        table.add_row(*row)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
