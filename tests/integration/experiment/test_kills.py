"""A few kills of real processes: everything that comes twice was predicted, and what was called
certain came; the Delta table has it row by row.

The gold is computed by the platform's cycles, in this process instead of in Spark.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable

from experiment import table
from experiment.kills import Outcome, run_kills, to_the_end
from experiment.plan import Flush, Listener, Victim, make_plan
from pipelines.backtest.truths import planted
from pipelines.lake.lake import Lake
from tests.pipelines.in_process import SHORT, driver_of

KILLS = 6
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake.at(str(tmp_path_factory.mktemp("kills") / "lake"))


@pytest.fixture(scope="module")
def outcome(lake: Lake) -> Outcome:
    plan = make_plan(KILLS, 3, tuple(Listener), tuple(Flush), pause_s_max=2.0)

    def compute(target: Lake) -> None:
        to_the_end(driver_of(Path(target.root), evaluation=SHORT))

    return run_kills(plan, Path(lake.root).parent / "home", lake, compute=compute, report=print)


def test_every_message_that_a_kill_repeats_lies_in_a_range_recorded_before(
    outcome: Outcome,
) -> None:
    found = outcome.verdict
    assert [row.unforeseen for row in outcome.rows if row.unforeseen] == []
    assert found.redelivered == found.foreseen > 0
    assert {row.killed.kill.victim for row in outcome.rows if row.redelivered} >= {
        Victim.CONSUMER,
        Victim.BOTH,
    }


def test_what_was_called_certain_comes_again_without_exception(outcome: Outcome) -> None:
    assert outcome.verdict.certain == outcome.verdict.certain_again > 0


def test_the_table_has_a_row_for_each_kill_and_queue_with_its_ranges(
    outcome: Outcome, lake: Lake
) -> None:
    rows = pl.DataFrame(pl.from_arrow(DeltaTable(table.address(lake)).to_pyarrow_table()))
    assert rows.height == len(outcome.rows) > KILLS
    assert rows["run"].unique().to_list() == [outcome.run]
    assert rows.select("kill", "group", "queue_id").is_unique().all()
    assert rows["redelivered_messages"].sum() == outcome.verdict.redelivered
    assert rows["foreseen_messages"].sum() == outcome.verdict.foreseen
    assert rows["hit_messages"].sum() == outcome.verdict.hits
    spans = rows.explode("redelivered_ranges").drop_nulls("redelivered_ranges")
    ends = spans["redelivered_ranges"].struct.field("to_offset")
    begins = spans["redelivered_ranges"].struct.field("from_offset")
    assert (ends - begins).sum() == outcome.verdict.redelivered


def test_the_kills_are_incidents_that_a_backtest_of_the_lake_knows(
    outcome: Outcome, lake: Lake
) -> None:
    killed = outcome.played.killed
    known = planted(lake, killed[0].at_us, killed[-1].until_us)
    assert known is not None
    assert [(one.begin_us, one.end_us, one.kind) for one in known] == [
        (one.at_us, one.until_us, f"KILL_{one.kill.victim.value}")
        for one in killed
        for _ in Listener
    ]
    assert {(one.cluster, one.group) for one in known} == {
        (outcome.played.cluster, listener.group) for listener in Listener
    }


def test_a_kill_is_reported_with_its_victims_and_the_broker_s_next_flush_mode(
    outcome: Outcome,
) -> None:
    killed = outcome.played.killed
    assert [one.kill.number for one in killed] == list(range(1, KILLS + 1))
    assert all(one.at_us < one.until_us for one in killed)
    lives = [one.flush for one in killed if one.kill.victim is not Victim.CONSUMER]
    assert lives == [one.kill.flush for one in killed if one.kill.victim is not Victim.CONSUMER]


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_of_a_hundred_kills_half_have_a_certain_part_and_four_fifths_of_what_is_foreseen_come(
    tmp_path: Path,
) -> None:
    """As the command judges it, with gold computed by Spark."""
    command = [str(Path(sys.executable).parent / "tidemark"), "experiment", "kills"]
    command += ["--kills", "102", "--seed", "20261126"]
    command += ["--home", str(tmp_path), "--lake", str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4_000:]
    assert "the prediction holds" in done.stdout
