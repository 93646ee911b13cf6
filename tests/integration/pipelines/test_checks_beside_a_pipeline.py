"""The checks beside a pipeline, as processes: their end is no one else's, and nothing of them, also
not their Java, outlives it. What they find is seen in the run of a demo.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pipelines.lake.lake import Lake
from pipelines.upkeep.companion import NICENESS
from tests.gold_lake import write_gold_lake

ROOT = Path(__file__).parents[3]
PATIENCE_S = 120

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """One in which cycles are complete."""
    return write_gold_lake(tmp_path / "lake")


class Pipeline:
    """What stands where a pipeline would, and what it and its companion have said."""

    def __init__(self, process: subprocess.Popen[str], lines: Path) -> None:
        self.process = process
        self._lines = lines
        self._begun: set[int] = set()

    def says(self, words: str) -> int:
        """How many lines with these words there are."""
        return sum(words in line for line in self.lines())

    def lines(self) -> list[str]:
        return self._lines.read_text().splitlines()

    def checks(self, *, but: int = 0) -> int:
        """The process of the checks that runs now and is not `but`, once its Java runs.

        It must have low priority, and gives it up here: beside enough others it never runs.
        """
        found = until(lambda: next((pid for pid in children(self.process.pid) if pid != but), None))
        self._begun.add(found)
        until(lambda: os.getpriority(os.PRIO_PROCESS, found) == NICENESS)
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, found, os.getpriority(os.PRIO_PROCESS, 0))
        until(lambda: len(family(found)) > 1)
        return found

    def end_all(self) -> None:
        """Nothing outlives the test, whatever it finds."""
        self.process.kill()
        for pid in [one for begun in self._begun for one in family(begun)]:
            with suppress(ProcessLookupError):
                if not has_ended(pid):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def pipeline_with_checks(lake: Lake, lines: Path) -> Iterator[Pipeline]:
    module = "tests.integration.pipelines.companion_parent"
    with (
        lines.open("w") as out,
        subprocess.Popen(
            [sys.executable, "-m", module, lake.root, "checks"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            text=True,
        ) as process,
    ):
        pipeline = Pipeline(process, lines)
        try:
            yield pipeline
        finally:
            pipeline.end_all()


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(one) for one in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    return [pid, *(one for child in children(pid) for one in family(child))]


def has_ended(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def until(look: Callable[[], int | None]) -> int:
    deadline_s = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    return found


def test_checks_that_die_are_reported_and_started_again_and_die_with_a_pipeline_that_is_killed(
    lake: Lake, tmp_path: Path
) -> None:
    with pipeline_with_checks(lake, tmp_path / "lines") as pipeline:
        first = pipeline.checks()
        before = family(first)
        os.kill(first, signal.SIGKILL)
        second = pipeline.checks(but=first)
        until(lambda: pipeline.says("checks ended with code -9; started again in 0 s") == 1)
        until(lambda: all(has_ended(pid) for pid in before))
        assert pipeline.process.poll() is None, "the pipeline goes on"
        after = family(second)
        pipeline.process.kill()
        until(lambda: all(has_ended(pid) for pid in after))


def test_the_checks_beside_a_pipeline_end_before_it(lake: Lake, tmp_path: Path) -> None:
    with pipeline_with_checks(lake, tmp_path / "lines") as pipeline:
        checks = pipeline.checks()
        until(lambda: pipeline.says(f"ready lake={lake.root} every 1 cycles"))
        beside = family(checks)
        pipeline.process.communicate(timeout=PATIENCE_S)
        assert pipeline.process.returncode == 0
        assert has_ended(checks)
        until(lambda: all(has_ended(pid) for pid in beside))
        assert pipeline.lines().count("down") == 1
        assert pipeline.says("ended with code") == 0
