"""Upkeep beside writers and readers, in real processes, killed at any moment: no row is lost, none
is there twice, and who follows the log sees each once.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from engine.telemetry.tables import LIFECYCLE
from pipelines.lake.lake import Lake, whole_table
from tests.amounts import kills

ROOT = Path(__file__).parents[3]
EMITTERS = ("emitter-a", "emitter-b")
LINES_MAX = 200_000
"""A process that says more than this goes round in circles."""
SEED = 20_260_310


class Fire:
    """One process of tests.integration.pipelines.fire, and what it says."""

    def __init__(self, *arguments: str) -> None:
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.pipelines.fire", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if len(self.said) == LINES_MAX:
                self.process.kill()
            self.said.append(line.strip())

    def await_word(self, word: str = "") -> None:
        """Wait until it is at work, or has said a line with this word."""
        deadline_s = time.monotonic() + 30
        while not any(word in line for line in tuple(self.said)):
            assert time.monotonic() < deadline_s
            assert self.process.poll() is None
            time.sleep(0.01)

    def end(self) -> None:
        """Let it report the rest and end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.write("end\n")
        self.process.stdin.close()
        assert self.process.wait(60) == 0
        self._close()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._close()

    def _close(self) -> None:
        self._listening.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize(
    "vacuum",
    [
        pytest.param(True, id="files vacuumed at once"),
        pytest.param(False, id="kept files", marks=pytest.mark.slow),
    ],
)
@kills(4, in_full=20)
def test_no_row_is_lost_or_doubled_while_the_maintainer_is_killed(
    tmp_path: Path, *, vacuum: bool, kills: int
) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    with ExitStack() as stack:
        writers = [started(stack, "write", lake.root, emitter) for emitter in EMITTERS]
        for writer in writers:
            writer.await_word()
        reader = started(stack, "read", lake.root)
        reader.await_word()
        tended = tend_and_kill(stack, lake, kills, hostile=vacuum)
        for writer in writers:
            writer.end()
        reader.end()

    safe = {name: int(writer.said[-1]) for name, writer in zip(EMITTERS, writers, strict=True)}
    wanted = Counter((name, seq) for name in EMITTERS for seq in range(1, safe[name] + 1))
    address = lake.bronze(LIFECYCLE.name)
    there = whole_table(lake.table(address)).select(["emitter", "seq"])
    assert rows(there) == wanted
    said_count = Counter(line for line in reader.said if not line.startswith(("again", "detour")))
    assert said_count == Counter(f"{name} {seq}" for name, seq in wanted)
    assert any("merged" in line for line in tended), tended
    again = [line for line in reader.said if line.startswith(("again", "detour"))]
    if not vacuum:
        assert again == [], "the log alone showed every row once; nothing had to be dropped"
    merges = [one["operation"] for one in lake.table(address).history()].count("OPTIMIZE")
    assert merges > 1
    assert sum(safe.values()) > 100


def started(stack: ExitStack, *arguments: str) -> Fire:
    process = Fire(*arguments)
    stack.callback(process.kill)
    return process


def tend_and_kill(stack: ExitStack, lake: Lake, kills: int, *, hostile: bool) -> list[str]:
    """What maintainers said that were killed one after another, the last one behind a merge."""
    choice = random.Random(SEED)
    said: list[str] = []
    for _ in range(kills):
        tender = started(stack, "tend", lake.root, *(["vacuum"] if hostile else []))
        tender.await_word()
        time.sleep(choice.uniform(0, 1.5))
        tender.kill()
        said += tender.said
    tender = started(stack, "tend", lake.root, *(["vacuum"] if hostile else []))
    tender.await_word("merged")
    tender.kill()
    return said + tender.said


def rows(table: pa.Table) -> Counter[tuple[str, int]]:
    return Counter((row["emitter"], row["seq"]) for row in table.to_pylist())
