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

from engine.foundation.errors import LakeError
from pipelines.catalogue import SPARK_TABLES
from pipelines.gold import create_gold
from pipelines.lake import Lake
from pipelines.marks import Marks
from pipelines.replay import compare, replay_range
from pipelines.settings import Evaluation, Pace
from tests.pipelines.cluster_story import moment
from tests.pipelines.gold_lake import SHORT, compute, everything, gold

pytestmark = pytest.mark.timeout(900)

COMMITS_BEFORE_KILL = (1, 2, 1, 3, 2)
"""A killed process had appended this many marts since it started; the others of that cycle not."""
ROWS_PER_CYCLE = 1500


def test_a_stream_killed_five_times_equals_one_cycle_over_everything(
    spark: SparkSession, told: Path, fresh_lake: Callable[[], Path]
) -> None:
    lake = fresh_lake()
    home = Lake.at(str(lake))
    Marks.open(home, SHORT.as_text())
    create_gold(spark, home)
    for commits in COMMITS_BEFORE_KILL:
        kill_stream_after(lake, commits)
    compute(spark, lake, rows_per_cycle=ROWS_PER_CYCLE)
    live = everything(lake)
    assert all(live.values()), "every mart has rows in this story"
    assert live == everything(told)


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


def test_a_replay_of_everything_equals_the_live_gold(
    spark: SparkSession, told: Path, tmp_path: Path
) -> None:
    side = Lake.at(str(tmp_path / "side"))
    span = replay(spark, told, side, from_s=0, to_s=10_000, rows_per_cycle=2000)
    for one in compare(Lake.at(str(told)), side, span):
        assert (one.missing, one.surplus) == (0, 0), one
    assert everything(told) == everything(tmp_path / "side")


def test_a_replay_of_a_range_takes_over_what_was_open_and_equals_its_part_of_gold(
    spark: SparkSession, told: Path, tmp_path: Path
) -> None:
    side = Lake.at(str(tmp_path / "side"))
    span = replay(spark, told, side, from_s=61, to_s=95, rows_per_cycle=1_000_000)
    differences = compare(Lake.at(str(told)), side, span)
    for one in differences:
        assert (one.missing, one.surplus) == (0, 0), one
    rows = {one.table: one.rows for one in differences}
    assert rows["stalled_windows"] > 0
    assert rows["consumer_lag"] < len(gold(told, "consumer_lag"))


def replay(
    spark: SparkSession, lake: Path, side: Lake, *, from_s: int, to_s: int, rows_per_cycle: int
) -> object:
    return replay_range(
        spark,
        Lake.at(str(lake)),
        side,
        from_us=moment(from_s),
        to_us=moment(to_s),
        evaluation=SHORT,
        pace=Pace(rows_per_cycle=rows_per_cycle),
        tell=print,
    )


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
