"""A lake whose tables have many log entries: each cycle shortens them, and whatever is killed
meanwhile, gold is the same.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.analytics.aged import checkpointed, move_checkpoint
from pipelines import tm
from pipelines.cycles.plan import last_done
from pipelines.lake import table_writes
from pipelines.lake.lake import Lake
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import Upkeep
from tests.pipelines.gold_lake import SHORT, everything
from tests.pipelines.in_process import driver_of, run_to_the_end

pytestmark = pytest.mark.timeout(900)

AGED = 1_000
"""Entries that an earlier version has left in each table."""
ROWS = 300


def logs(lake: Path) -> dict[str, Path]:
    return {f"{log.parts[-3]}/{log.parts[-2]}": log for log in lake.glob("*/*/_delta_log")}


def lengths(lake: Path, *folders: str) -> dict[str, int]:
    return {
        name: sum(1 for _ in log.glob("*.json"))
        for name, log in logs(lake).items()
        if name.startswith(folders)
    }


def age(lake: Path, entries: int) -> None:
    """Commits without files in every table, and checkpoints that are old."""
    line = b'{"commitInfo":{"timestamp":%d,"operation":"WRITE","engineInfo":"delta-rs:1.6"}}\n' % (
        time.time_ns() // 10**6
    )
    for log in logs(lake).values():
        first = checkpointed(log) + 1
        (log / f"{first:020d}.json").write_bytes(line)
        for number in range(first + 1, first + entries):
            os.link(log / f"{first:020d}.json", log / f"{number:020d}.json")
        move_checkpoint(log, first - 1, first - 1 + entries)


@pytest.fixture
def young(fresh_lake: Callable[[], Path]) -> Path:
    """Half of the story is judged."""
    lake = fresh_lake()
    driver = driver_of(lake, evaluation=SHORT, rows_per_cycle=ROWS)
    for _ in range(4):
        driver.next_cycle()
    return lake


def test_the_logs_of_an_earlier_version_are_worked_off_and_gold_is_the_same(
    young: Path, computed_lake: Path
) -> None:
    age(young, AGED)
    assert min(lengths(young, "gold", "state").values()) > AGED
    said = []
    driver = driver_of(young, evaluation=SHORT, rows_per_cycle=ROWS)
    while (progress := driver.next_cycle()) is not None:
        said.append(str(progress))
    assert max(lengths(young, "gold", "state/plans").values()) < 200
    assert any("old log entries moved aside" in one for one in said)
    assert "log entries" not in said[-1], "what is done in every minute is not said"
    assert everything(young) == everything(computed_lake)


def test_a_maintainer_shortens_the_logs_that_nobody_writes_to(young: Path) -> None:
    age(young, table_writes.TOLD_FROM + 1)
    said: list[str] = []
    maintainer = Maintainer(Lake.at(str(young)), Upkeep(gold_days=100_000), said.append)
    for _ in range(3):
        maintainer.round(datetime.now(UTC))
    assert max(lengths(young, "gold", "state").values()) < 200
    assert any("old log entries moved aside" in one for one in said)


@pytest.mark.slow
def test_runs_that_are_killed_while_they_shorten_come_to_the_same_gold(
    young: Path, computed_lake: Path
) -> None:
    age(young, 500)
    for number in range(4):
        command = [sys.executable, "-m", "tests.pipelines.in_process", str(young), str(ROWS)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
            assert run.stdout is not None
            run.stdout.readline()
            for _ in range(number):
                run.stdout.readline()
            run.kill()
        assert last_done(Lake.at(str(young))) is not None
        assert tm.connect(young).groups().rows.height > 0
    run_to_the_end(driver_of(young, evaluation=SHORT, rows_per_cycle=ROWS))
    assert everything(young) == everything(computed_lake)
