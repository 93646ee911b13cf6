"""However cycles are cut, killed, run again or replayed: the same rows in all columns of all gold
tables.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from engine.foundation.errors import LakeError
from pipelines import commands
from pipelines.base.settings import Evaluation, Pace
from pipelines.cycles.cuts import Cut
from pipelines.cycles.job import SHARED_BYTES, run_job
from pipelines.cycles.live import only_driver
from pipelines.cycles.replaying import Difference, differences, evaluation_of, judged_part, replay
from pipelines.lake.lake import Lake
from pipelines.reading.catalogue import COMPUTED_TABLES
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import Upkeep
from tests.amounts import kills
from tests.pipelines.cluster_story import moment
from tests.pipelines.gold_lake import SHORT, compute, everything, gold
from tests.pipelines.in_process import driver_of, in_process, run_to_the_end

pytestmark = pytest.mark.timeout(900)

ROWS_PER_CYCLE = 500
"""Eight cycles for the story."""


@pytest.mark.parametrize(
    "shared_bytes",
    [
        pytest.param(0, id="two stages"),
        # The stream that is killed by SIGKILL and the demo have one, and the same rows.
        pytest.param(SHARED_BYTES, id="one stage", marks=pytest.mark.slow),
    ],
)
def test_executors_of_spark_write_the_rows_that_one_process_writes(
    spark: SparkSession, computed_lake: Path, fresh_lake: Callable[[], Path], shared_bytes: int
) -> None:
    lake = fresh_lake()
    job = partial(run_job, spark, shared_bytes=shared_bytes)
    compute(lake, rows_per_cycle=1500, job=job)
    live = everything(lake)
    without_rows = {table for table, rows in live.items() if not rows}
    assert not without_rows, (
        f"the story of the fixture `computed_lake` gives them no row: {without_rows}"
    )
    assert live == everything(computed_lake)


@kills(4, in_full=60)
def test_a_driver_killed_at_any_moment_again_and_again_ends_with_the_same_rows(
    computed_lake: Path, fresh_lake: Callable[[], Path], kills: int
) -> None:
    lake = fresh_lake()
    seeded = random.Random(kills)
    for _ in range(kills):
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.pipelines.in_process", str(lake), str(ROWS_PER_CYCLE)],
            stdout=subprocess.PIPE,
        )
        assert driver.stdout is not None
        driver.stdout.readline()  # It has begun.
        time.sleep(seeded.random() * 0.4)
        driver.kill()
        driver.communicate()
    compute(lake, rows_per_cycle=ROWS_PER_CYCLE)
    assert everything(lake) == everything(computed_lake)
    for table in COMPUTED_TABLES:
        committed = [
            entry["cycle"]
            for entry in DeltaTable(str(lake / "gold" / table.name)).history()
            if "cycle" in entry
        ]
        assert len(set(committed)) == len(committed), f"{table.name}: one commit a cycle"


def test_the_stream_killed_by_sigkill_goes_on_where_it_was(
    computed_lake: Path, fresh_lake: Callable[[], Path]
) -> None:
    lake = fresh_lake()
    with start_stream(lake) as stream:
        try:
            assert stream.stdout is not None
            while "cycle 2:" not in (line := stream.stdout.readline()):
                assert line, "the stream ended by itself"
        finally:
            stream.kill()
    compute(lake, rows_per_cycle=ROWS_PER_CYCLE)
    assert everything(lake) == everything(computed_lake)


def start_stream(lake: Path) -> subprocess.Popen[str]:
    """As a user would."""
    return subprocess.Popen(
        [
            str(Path(sys.executable).parent / "tidemark"),
            *("pipeline", "run", "--lake", str(lake), "--cycle-ms", "0"),
            *("--window-ms", str(SHORT.window_ms), "--slide-ms", str(SHORT.slide_ms)),
            *("--rows-per-cycle", str(ROWS_PER_CYCLE)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_second_driver_of_a_lake_is_refused_with_who_holds_it(
    fresh_lake: Callable[[], Path],
) -> None:
    lake = fresh_lake()
    with only_driver(Lake.at(str(lake))), start_stream(lake) as second:
        try:
            assert second.wait(60) == 1
            assert second.stderr is not None
            errors = second.stderr.read()
        finally:
            second.kill()
    assert f"process {os.getpid()} on " in errors
    assert not (lake / "gold").exists(), "it has written nothing"


def test_a_failing_store_is_reported_and_tried_again_and_ends_nothing(
    computed_lake: Path, fresh_lake: Callable[[], Path]
) -> None:
    """A file of bronze is away for a while, as in an object store that answers with errors."""
    lake = fresh_lake()
    files = (lake / "bronze" / "group_watermarks").glob("*/*.parquet")
    first = min(files, key=lambda file: file.stat().st_mtime_ns)  # Names are random.
    away = lake / "away.parquet"
    first.rename(away)
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.pipelines.in_process", str(lake), str(ROWS_PER_CYCLE)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert driver.stdout is not None
        driver.stdout.readline()
        failure = driver.stdout.readline()
        assert first.name in failure
        assert "trying again in 1 s" in failure
        away.rename(first)
        last = max(row["observed_at"] for row in gold(computed_lake, "emitter_health"))
        while f"horizon {last:%H:%M:%S}" not in (line := driver.stdout.readline()):
            assert line, "the run ended by itself"
    finally:
        driver.send_signal(signal.SIGTERM)
        driver.communicate()
    assert everything(lake) == everything(computed_lake)


@pytest.mark.parametrize("restarted", [False, True], ids=["the same driver", "a new driver"])
def test_unread_files_that_somebody_merged_and_removed_are_found_in_what_they_became(
    computed_lake: Path, fresh_lake: Callable[[], Path], *, restarted: bool
) -> None:
    lake = fresh_lake()
    driver = driver_of(lake, evaluation=SHORT, rows_per_cycle=ROWS_PER_CYCLE)
    driver.next_cycle()
    assert merge_and_remove(lake) > 10
    if restarted:
        driver = driver_of(lake, evaluation=SHORT, rows_per_cycle=ROWS_PER_CYCLE)
    assert run_to_the_end(driver) > 2
    assert everything(lake) == everything(computed_lake)


def merge_and_remove(lake: Path) -> int:
    """Merge the days of bronze, and unlink at once what was merged; how many files."""
    home, upkeep = Lake.at(str(lake)), Upkeep(bronze_days=36_500, gold_days=36_500, settle_s=0)
    Maintainer(home, upkeep, print).round(datetime.now(UTC) + timedelta(days=2))
    removed = 0
    for table in (lake / "bronze").iterdir():
        held = {Path(uri).name for uri in home.table(str(table)).file_uris()}
        for file in table.glob("event_date=*/*.parquet"):
            if file.name not in held:
                file.unlink()
                removed += 1
    return removed


def test_gold_that_is_lost_is_computed_again_from_bronze_alone(
    computed_lake: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(computed_lake, lake)
    shutil.rmtree(lake / "gold")
    shutil.rmtree(lake / "state")
    home = Lake.at(str(lake))
    replayed(home, home, from_s=0, to_s=10_000, evaluation=SHORT)
    assert everything(lake) == everything(computed_lake)


def test_a_replay_of_a_range_starts_from_a_kept_state_and_equals_its_part_of_gold(
    fresh_lake: Callable[[], Path], tmp_path: Path
) -> None:
    lake = fresh_lake()
    compute(lake, rows_per_cycle=ROWS_PER_CYCLE)
    live, side = Lake.at(str(lake)), Lake.at(str(tmp_path / "side"))
    computed = replayed(live, side, from_s=61, to_s=95)
    [cut] = computed
    assert cut.seq_from > 0, "not from the first row"
    found = list(differences(live, side, judged_part(computed, live)))
    assert all(one.is_none for one in found), "\n".join(map(str, found))
    rows = {one.table: one.rows for one in found}
    assert rows["stalled_windows"] > 0
    assert 0 < rows["consumer_lag"] < len(gold(lake, "consumer_lag"))


def replayed(
    live: Lake, side: Lake, *, from_s: int, to_s: int, evaluation: Evaluation | None = None
) -> tuple[Cut, ...]:
    """A replay of these seconds of the story."""
    return replay(
        in_process,
        live,
        side,
        from_us=moment(from_s),
        to=moment(to_s),
        evaluation=evaluation or evaluation_of(live),
        pace=Pace(rows_per_cycle=1_000_000),
        say=print,
    )


def test_a_row_that_was_changed_is_found_with_its_column(
    computed_lake: Path, tmp_path: Path
) -> None:
    live, side = Lake.at(str(computed_lake)), Lake.at(str(tmp_path / "side"))
    computed = replayed(live, side, from_s=0, to_s=10_000)
    DeltaTable(side.gold("dead_letters")).update(updates={"reconsume_times": "99"})
    by_table: dict[str, Difference] = {one.table: one for one in differences(live, side, computed)}
    assert by_table.pop("dead_letters").changed == {"reconsume_times": 1}
    assert all(one.is_none for one in by_table.values())


def test_the_command_compares_with_the_lakes_own_settings_as_far_as_the_live_run_has_come(
    computed_lake: Path, fresh_lake: Callable[[], Path], tmp_path: Path
) -> None:
    """Bronze goes on behind the live run, and `--to` lies behind both."""
    lake = fresh_lake()
    assert driver_of(lake, evaluation=SHORT, rows_per_cycle=1500).next_cycle() is not None
    done = CliRunner().invoke(
        commands.app,
        [
            *("pipeline", "replay", "--lake", str(lake), "--into", str(tmp_path / "side")),
            *("--from", "2026-03-01T12:00:00Z", "--to", "2026-03-01T15:00:00Z", "--compare"),
        ],
    )
    assert done.exit_code == 0, done.output
    assert "compared up to where the live gold ends" in done.output
    judged = [line for line in done.output.splitlines() if line.endswith("equal")]
    assert judged == [
        f"{table.name}: {len(gold(lake, table.name))} rows, equal" for table in COMPUTED_TABLES
    ]
    assert everything(tmp_path / "side") == everything(computed_lake), "the replay goes on to --to"


def test_gold_without_plans_is_refused(computed_lake: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(computed_lake, lake)
    shutil.rmtree(lake / "state")
    with pytest.raises(LakeError, match=r"its plans .* are gone"):
        driver_of(lake, evaluation=SHORT)


def test_plans_without_their_gold_are_refused(computed_lake: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(computed_lake, lake)
    shutil.rmtree(lake / "gold" / COMPUTED_TABLES[0].name)
    with pytest.raises(LakeError, match=f"gold lacks {COMPUTED_TABLES[0].name}"):
        driver_of(lake, evaluation=SHORT)


def test_a_run_is_not_continued_with_other_settings(computed_lake: Path) -> None:
    with pytest.raises(LakeError, match="use the same settings"):
        driver_of(computed_lake, evaluation=Evaluation())


def test_a_replay_into_a_lake_that_has_gold_is_refused(computed_lake: Path) -> None:
    home = Lake.at(str(computed_lake))
    with pytest.raises(LakeError, match="has been computed before"):
        replayed(home, home, from_s=0, to_s=10)


@pytest.mark.parametrize(("from_s", "to_s"), [(90_000, 99_000), (-99_000, -90_000)])
def test_a_range_in_which_nothing_was_shipped_is_one_sentence(
    computed_lake: Path, tmp_path: Path, from_s: int, to_s: int
) -> None:
    """A day later, and a day before."""
    with pytest.raises(LakeError, match="nothing was shipped in that range: it reaches from 20"):
        replayed(Lake.at(str(computed_lake)), Lake.at(str(tmp_path)), from_s=from_s, to_s=to_s)
