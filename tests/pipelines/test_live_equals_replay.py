"""However cycles are cut, killed and run again: the same rows in all columns of all gold tables."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from engine.foundation.errors import LakeError
from pipelines import commands
from pipelines.catalogue import SPARK_TABLES
from pipelines.gold import create_gold
from pipelines.lake import Lake
from pipelines.marks import Marks
from pipelines.replay import Range, compare, find_range, replay_range
from pipelines.settings import Evaluation, Pace
from pipelines.stream import carry_out, next_plan
from tests.pipelines.cluster_story import moment
from tests.pipelines.gold_lake import SHORT, compute, everything, gold

pytestmark = pytest.mark.timeout(900)

KILLS = [
    pytest.param((1, 3), id="two kills"),
    pytest.param((1, 2, 1, 3, 2), id="five kills", marks=pytest.mark.slow),
]
"""A killed process had appended this many marts since it started; the others of that cycle not."""
ROWS_PER_CYCLE = 1500


@pytest.mark.parametrize("commits_before_kill", KILLS)
def test_a_stream_killed_again_and_again_equals_one_cycle_and_its_own_replay_after_gold_is_lost(
    spark: SparkSession,
    told: Path,
    fresh_lake: Callable[[], Path],
    commits_before_kill: tuple[int, ...],
) -> None:
    lake = fresh_lake()
    home = Lake.at(str(lake))
    Marks.open(home, SHORT.as_text())
    create_gold(spark, home)
    for commits in commits_before_kill:
        kill_stream_after(lake, commits)
    compute(spark, lake, rows_per_cycle=ROWS_PER_CYCLE)
    live = everything(lake)
    without_rows = [table for table, rows in live.items() if not rows]
    assert not without_rows, f"the story of the fixture `told` gives them no row: {without_rows}"
    assert live == everything(told)
    shutil.rmtree(lake / "gold")
    shutil.rmtree(lake / "state")
    replay(spark, lake, home, from_s=0, to_s=10_000)
    assert everything(lake) == live


def kill_stream_after(lake: Path, commits: int) -> None:
    """Start the stream as a user would, and SIGKILL it once it has appended to `commits` marts."""
    before = gold_commits(lake)
    stream = subprocess.Popen(
        [
            str(Path(sys.executable).parent / "tidemark"),
            *("pipeline", "run", "--lake", str(lake), "--cycle-ms", "0"),
            *("--window-ms", str(SHORT.window_ms), "--slide-ms", str(SHORT.slide_ms)),
            *("--rows-per-cycle", str(ROWS_PER_CYCLE)),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline_s = time.monotonic() + 240
        while gold_commits(lake) < before + commits:
            assert stream.poll() is None, f"the stream ended by itself with {stream.returncode}"
            assert time.monotonic() < deadline_s, "the stream appended nothing"
            time.sleep(0.01)
    finally:
        stream.kill()
        stream.wait()


def gold_commits(lake: Path) -> int:
    """Delta commits in all gold tables together."""
    return sum(1 for _ in (lake / "gold").glob("*/_delta_log/*.json"))


def test_the_command_compares_as_far_as_the_live_run_has_come(
    spark: SparkSession, told: Path, fresh_lake: Callable[[], Path], tmp_path: Path
) -> None:
    """Bronze goes on behind the live run, and `--to` lies behind both."""
    lake = fresh_lake()
    home = Lake.at(str(lake))
    marks = Marks.open(home, SHORT.as_text())
    create_gold(spark, home)
    plan = next_plan(home, marks, Pace(rows_per_cycle=ROWS_PER_CYCLE))
    assert plan is not None
    carry_out(spark, home, plan, SHORT)
    done = CliRunner().invoke(
        commands.app,
        [
            *("pipeline", "replay", "--lake", str(lake), "--into", str(tmp_path / "side")),
            *("--from", "2026-03-01T12:00:00Z", "--to", "2026-03-01T15:00:00Z", "--compare"),
            *("--window-ms", str(SHORT.window_ms), "--slide-ms", str(SHORT.slide_ms)),
        ],
    )
    assert done.exit_code == 0, done.output
    assert "compared up to where the live gold ends" in done.output
    judged = [line for line in done.output.splitlines() if line.endswith("surplus")]
    assert judged == [
        f"{table.name}: {len(gold(lake, table.name))} rows, 0 missing, 0 surplus"
        for table in SPARK_TABLES
    ]
    assert everything(tmp_path / "side") == everything(told), "the replay goes on to --to"


def test_a_replay_of_a_range_takes_over_what_was_open_and_equals_its_part_of_gold(
    spark: SparkSession, told: Path, tmp_path: Path
) -> None:
    side = Lake.at(str(tmp_path / "side"))
    span = replay(spark, told, side, from_s=61, to_s=95)
    differences = compare(Lake.at(str(told)), side, span)
    for one in differences:
        assert (one.missing, one.surplus) == (0, 0), one
    rows = {one.table: one.rows for one in differences}
    assert rows["stalled_windows"] > 0
    assert rows["consumer_lag"] < len(gold(told, "consumer_lag"))


def replay(spark: SparkSession, lake: Path, into: Lake, *, from_s: int, to_s: int) -> Range:
    """A replay in one cycle; returns what it covered."""
    home = Lake.at(str(lake))
    span = find_range(home, into, from_us=moment(from_s), to_us=moment(to_s), tell=print)
    pace = Pace(rows_per_cycle=1_000_000)
    replay_range(spark, home, into, span, evaluation=SHORT, pace=pace, tell=print)
    return span


def test_gold_without_marks_is_refused(told: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(told, lake)
    shutil.rmtree(lake / "state")
    with pytest.raises(LakeError, match=r"marks .* are gone"):
        Marks.open(Lake.at(str(lake)), SHORT.as_text())


def test_marks_without_their_gold_are_refused(told: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(told, lake)
    shutil.rmtree(lake / "gold" / SPARK_TABLES[0].name)
    with pytest.raises(LakeError, match=f"gold lacks {SPARK_TABLES[0].name}"):
        Marks.open(Lake.at(str(lake)), SHORT.as_text())


def test_a_run_is_not_continued_with_other_settings(told: Path) -> None:
    with pytest.raises(LakeError, match="use the same settings"):
        Marks.open(Lake.at(str(told)), Evaluation().as_text())
