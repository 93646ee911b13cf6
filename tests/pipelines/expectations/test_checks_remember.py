"""What a run leaves to the next: how far it came, and the little that laws must remember.

A run's cost goes with what is new: shown by the files and rows it is given, at two ages of a lake.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from engine.foundation.errors import LakeError
from expectations import commands
from expectations import memory as memories
from expectations.check import Finding, Severity
from expectations.checkpoints import Seen, look
from expectations.job import on_spark
from expectations.memory import Memory, begun_for
from expectations.results import keep
from expectations.rounds import Wishes, check_round
from expectations.work import Order
from pipelines.base.settings import LOOK_BACK_US
from pipelines.lake.lake import DATA_DOCS_FOLDER, Lake
from tests.checked_lake import CheckedLake, broken, checked_rows, in_this_process, rows_of
from tests.gold_lake import END, write_gold_lake
from tests.lake_story import EMITTER


@pytest.fixture
def lake(fresh: CheckedLake) -> CheckedLake:
    """A sound lake, checked to its end."""
    return fresh


def read(order: Order) -> tuple[int, int]:
    """(files, bytes) that a run was given to read."""
    files = [file for new in order.new.values() for file in (*new.files, *new.fresh)]
    paths = {(file.path, file.version): file.size_bytes for file in files}
    return len(paths), sum(paths.values())


def quiet_cycle(lake: CheckedLake) -> Seen:
    lake.watermark()
    lake.complete()
    return lake.look()


def critical(seen: Seen) -> Finding:
    """The one critical check that does not hold."""
    [found] = [
        one
        for one in seen.findings
        if one.check.name in broken(seen) and one.check.severity is Severity.CRITICAL
    ]
    return found


class TestCost:
    def test_a_run_reads_what_is_new_whatever_the_age_of_the_lake(self, lake: CheckedLake) -> None:
        quiet_cycle(lake)
        young = read(lake.orders[-1])
        for _ in range(8):
            lake.watermark()
            lake.complete()
        lake.look()

        quiet_cycle(lake)

        assert read(lake.orders[-1]) == young
        assert young[0] < 8
        assert read(lake.orders[0])[1] > 10 * young[1]

    def test_without_news_nothing_is_read_and_nothing_is_held_to_be_checked(
        self, lake: CheckedLake
    ) -> None:
        again = lake.look()

        assert read(lake.orders[-1]) == (0, 0)
        assert broken(again) == {}
        assert checked_rows(again)["emitters_speak"] > 0

    def test_a_long_past_is_judged_in_batches_of_a_bound(self, tmp_path: Path) -> None:
        lake = CheckedLake(write_gold_lake(tmp_path / "lake"))
        for _ in range(6):
            for _ in range(10):
                lake.watermark()
            lake.complete()
        first = lake.look(rows_max=1)  # The story is one cycle, judged as a whole.
        assert first.batch.cycle == 1
        assert not first.batch.is_last

        batches = []
        while True:
            run = lake.look(rows_max=25)
            batches.append((run.batch.cycle_from, run.batch.cycle, run.batch.rows))
            assert broken(run) == {}
            if run.batch.is_last:
                break

        assert batches == [(1, 3, 20), (3, 5, 20), (5, 7, 20)]

    def test_what_was_checked_does_not_depend_on_the_cuts(self, tmp_path: Path) -> None:
        rows = {}
        for name, rows_max in (("whole", 10**6), ("parts", 11)):
            lake = CheckedLake(write_gold_lake(tmp_path / name))
            for _ in range(4):
                for _ in range(10):
                    lake.watermark()
                lake.complete()
            counts: dict[str, int] = {}
            while True:
                run = lake.look(rows_max=rows_max)
                for check, count in checked_rows(run).items():
                    if check.endswith(("_filled", "_keys_unique")):
                        counts[check] = counts.get(check, 0) + count
                if run.batch.is_last:
                    break
            rows[name] = counts

        assert rows["parts"] == rows["whole"]


class TestLogs:
    def forget_the_log(self, lake: Lake) -> None:
        """As a checkpoint and the retention of the log leave it."""
        for folder in (*Path(lake.root, "bronze").iterdir(), *Path(lake.root, "gold").iterdir()):
            table = DeltaTable(str(folder))
            table.create_checkpoint()
            for version in range(table.version()):
                (folder / "_delta_log" / f"{version:020d}.json").unlink(missing_ok=True)

    def test_a_lake_whose_log_is_gone_is_judged_by_its_files_and_then_followed_again(
        self, lake: CheckedLake
    ) -> None:
        lake.watermark()
        lake.complete()
        lake.watermark()
        lake.complete()
        self.forget_the_log(lake.lake)

        run = lake.look()

        assert broken(run) == {}
        assert checked_rows(run)["group_watermarks_filled"] == 2
        assert checked_rows(run)["consumer_lag_filled"] == 2
        assert not lake.orders[-1].new["consumer_lag"].is_exact
        quiet_cycle(lake)
        assert lake.orders[-1].new["consumer_lag"].is_exact
        assert read(lake.orders[-1])[0] < 8

    def test_files_that_were_merged_and_vacuumed_are_no_loss(self, lake: CheckedLake) -> None:
        for _ in range(3):
            lake.watermark()
            lake.complete()
        for address in (lake.lake.gold("consumer_lag"), lake.lake.bronze("group_watermarks")):
            DeltaTable(address).optimize.compact()
            DeltaTable(address).vacuum(0, enforce_retention_duration=False, dry_run=False)

        run = lake.look()

        assert broken(run) == {}
        assert checked_rows(run)["consumer_lag_filled"] == 3

    def test_gold_that_was_begun_anew_is_judged_anew(self) -> None:
        known = replace(Memory(), run_id="before", cycle=7)

        assert begun_for(known, "before") is known
        assert begun_for(known, "after") == replace(Memory(), run_id="after")


class TestEmitters:
    def test_lost_rows_fail_until_a_complete_snapshot_has_come(self, lake: CheckedLake) -> None:
        loss = lake.fact("lifecycle", kind="SPOOL_LOSS", detail="12 rows of 3 segments")
        lake.complete()
        found = lake.look()
        assert list(broken(found)) == ["no_rows_lost"]
        assert "12 rows of 3 segments" in broken(found)["no_rows_lost"]
        assert critical(found).failures[0].emitter == EMITTER

        assert list(broken(quiet_cycle(lake))) == ["no_rows_lost"]

        lake.fact("lifecycle", kind="SNAPSHOT", seq_from=loss)
        lake.complete()
        assert list(broken(lake.look())) == ["no_rows_lost"]
        lake.fact("lifecycle", kind="SNAPSHOT", seq_from=loss + 1)
        lake.complete()
        assert broken(lake.look()) == {}

    def test_an_emitter_that_fell_silent_is_critical_and_one_that_stopped_is_not(
        self, lake: CheckedLake
    ) -> None:
        assert broken(lake.look(later_s=60)) == {}
        silent = lake.look(later_s=70)
        assert list(broken(silent)) == ["emitters_speak"]
        assert critical(silent).failures[0].since == END
        assert broken(lake.look(later_s=86_401)) == {}  # Nobody waits for it any more.

        lake.fact("lifecycle", kind="SHUTDOWN")
        lake.complete()
        assert broken(lake.look(later_s=7_200)) == {}

    def test_a_clock_ahead_of_its_shippers_is_critical(self, lake: CheckedLake) -> None:
        lake.watermark()
        lake.complete(shipped_time=lake.next - timedelta(seconds=6))
        found = lake.look()
        assert list(broken(found)) == ["clocks_not_ahead"]
        assert "its clock is 6.0 s ahead of its shipper's" in broken(found)["clocks_not_ahead"]

        lake.watermark()
        lake.complete(shipped_time=lake.next + timedelta(seconds=61))
        assert list(broken(lake.look())) == ["clocks_not_behind"]

        lake.watermark()
        lake.complete(shipped_time=lake.next + timedelta(seconds=1))
        assert broken(lake.look()) == {}

    def test_gold_far_behind_what_was_shipped_is_late(self, lake: CheckedLake) -> None:
        lake.watermark()
        memory = lake.memory
        lake.complete()
        emitter = memory.emitters[EMITTER]
        ahead = lake.like("shipments")
        at = END + timedelta(seconds=120)
        row = {"seq": ahead["seq"] + 1, "seq_from": ahead["seq_to"] + 1, "event_time_to": at}
        lake.append_fact("shipments", {**ahead, **row})

        found = broken(lake.look(later_s=118))

        assert emitter.seq_to < lake.seq
        assert "gold_keeps_up" in found
        assert "115 s behind" in found["gold_keeps_up"]
        assert "emitters_speak" not in found

    def test_a_gap_between_two_runs_is_found(self, lake: CheckedLake) -> None:
        lake.seq += 1  # Shipped, and in no table.
        lake.complete()
        lake.watermark()
        lake.complete()

        assert "missing=1" in broken(lake.look())["facts_gapless"]

    @pytest.mark.parametrize("is_judged_at_once", [True, False])
    def test_what_a_life_passed_over_is_not_missing_and_what_it_lost_is(
        self, lake: CheckedLake, is_judged_at_once: bool
    ) -> None:
        for _ in range(2):
            lake.pass_over(10**15)
            lake.watermark()
            lake.complete()
            if is_judged_at_once:
                assert broken(lake.look()) == {}
        seen = lake.look()
        assert broken(seen) == {}
        assert checked_rows(seen)["facts_gapless"] < 10
        lake.pass_over(10**15)
        lake.watermark()
        lake.seq += 1  # Shipped, and in no table.
        lake.complete()
        assert "missing=1," in broken(lake.look())["facts_gapless"]

    def test_shipments_that_gold_has_not_judged_are_found_beside_what_was_passed_over(
        self, lake: CheckedLake
    ) -> None:
        lake.watermark()
        lake.complete()
        assert broken(lake.look()) == {}
        lake.seq += 1  # As if gold had left out a shipment of one row.
        lake._shipped += 1
        lake.pass_over(10**15)
        lake.watermark()
        lake.complete()
        found = broken(lake.look())
        assert "seq between judged shipments: 1" in found["judged_shipments_follow"]


class TestQueues:
    def failures(self, lake: CheckedLake, **marks: int) -> dict[str, str]:
        """What fails of a cycle that brings the marks of a queue, if any."""
        if marks:
            lake.fact("queue_watermarks", topic="t", **{"broker_epoch": 1, **marks})
        lake.complete()
        return broken(lake.look())

    def test_an_end_that_falls_is_found_however_long_ago_it_was_reported(
        self, lake: CheckedLake
    ) -> None:
        assert self.failures(lake, min_offset=5, max_offset=10) == {}
        assert broken(quiet_cycle(lake)) == {}
        assert broken(quiet_cycle(lake)) == {}
        found = self.failures(lake, min_offset=4, max_offset=12)
        assert list(found) == ["queue_ends_never_fall_in_a_life"]
        assert "min_before=5, min_offset=4" in found["queue_ends_never_fall_in_a_life"]
        assert self.failures(lake, min_offset=4, max_offset=12) == {}

    def test_a_life_that_ended_in_a_cycle_without_marks_is_forgotten(
        self, lake: CheckedLake
    ) -> None:
        assert self.failures(lake, max_offset=10) == {}
        lake.fact("lifecycle", kind="TOPIC_GONE", topic="t")
        assert self.failures(lake) == {}
        assert self.failures(lake, max_offset=3) == {}
        assert list(self.failures(lake, max_offset=2)) == ["queue_ends_never_fall_in_a_life"]

    def test_another_life_of_the_broker_may_begin_with_less(self, lake: CheckedLake) -> None:
        assert self.failures(lake, max_offset=10) == {}
        assert self.failures(lake, max_offset=3, broker_epoch=2) == {}

    def test_what_an_earlier_version_remembered_is_gone_on_from(self, lake: CheckedLake) -> None:
        keep(lake.check(), lake.lake, now=lake.moment)
        file = Path(lake.lake.state(memories.FOLDER), "memory.json")
        remembered = json.loads(file.read_text())
        file.write_text(json.dumps({**remembered, "intervals": remembered.pop("carried")}))

        assert memories.load(lake.lake) == lake.memory


class TestResults:
    def test_a_run_is_kept_once_with_its_failing_rows_and_then_remembered(
        self, lake: CheckedLake
    ) -> None:
        lake.answer("retry_flow", group="billing", difference=2, sent_back=2)
        lake.complete()
        run = lake.check()

        keep(run, lake.lake, now=lake.moment)
        keep(run, lake.lake, now=lake.moment)

        results = rows_of(lake.lake, lake.lake.gold("dq_results")).filter(run_id=run.run_id)
        assert results.height == len(run.outcomes)
        assert results["observed_at"].unique().to_list() == [run.observed_at]
        assert results["judged_from"].unique().to_list() == [END]
        failures = rows_of(lake.lake, lake.lake.gold("dq_failures")).filter(run_id=run.run_id)
        assert failures.select("expectation", "about_emitter", "about_group").rows() == [
            ("retry_sheet_closes", EMITTER, "billing")
        ]
        assert memories.load(lake.lake) == run.memory

    def test_a_damaged_memory_is_one_sentence(self, lake: CheckedLake) -> None:
        keep(lake.check(), lake.lake, now=lake.moment)
        Path(lake.lake.state(memories.FOLDER), "memory.json").write_text("{")

        with pytest.raises(LakeError, match=r"memory\.json is damaged .* remove it"):
            memories.load(lake.lake)

    def test_a_round_keeps_one_file_of_what_is_carried_a_table(self, tmp_path: Path) -> None:
        lake = write_gold_lake(tmp_path / "lake")
        for wishes in (Wishes(), Wishes(again=True), Wishes(again=True, keeps=False)):
            check_round(lake, in_this_process, wishes, clock=lambda: END)
            known = memories.load(lake)
            there = {path.name for path in Path(lake.state(memories.FOLDER)).iterdir()}
            assert there == {"memory.json", *known.carried.values()}

    def test_what_an_earlier_round_found_counts_as_long_as_verdicts_rest_on_it(
        self, lake: CheckedLake
    ) -> None:
        def one() -> tuple[bool, int]:
            done = check_round(
                lake.lake,
                in_this_process,
                Wishes(run_id=f"round at {lake.moment}, {len(list_of_runs)}"),
                clock=lambda: lake.moment,
            )
            list_of_runs.append(done)
            return done.failed(Severity.CRITICAL), len(done.earlier)

        list_of_runs: list[object] = []
        assert one() == (False, 0)
        lake.answer("retry_flow", group="billing", difference=2, sent_back=2)
        lake.complete()
        assert one() == (True, 0)
        assert one() == (True, 1)
        lake.moment += timedelta(microseconds=LOOK_BACK_US, minutes=1)
        lake.watermark()
        lake.complete()
        assert one() == (False, 0)


# What executors run is run here by every other test; `TestCommand` has it run by Spark.
@pytest.mark.slow
@pytest.mark.timeout(300)  # Spark starts for it when it runs alone.
def test_executors_of_spark_find_the_same(spark: SparkSession, lake: CheckedLake) -> None:
    lake.answer("retry_flow", group="billing", difference=2, sent_back=2)
    lake.watermark()
    lake.complete()

    here, there = (
        look(lake.lake, carry_out, Memory(), now=lake.moment)
        for carry_out in (in_this_process, on_spark(spark))
    )

    assert there.findings == here.findings
    assert there.batch.is_last
    assert len(there.findings) > 100
    assert critical(there).check.name == "retry_sheet_closes"


@pytest.mark.timeout(300)
class TestCommand:
    def run(self, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(commands.app, list(arguments))
        return done.exit_code, done.output

    def test_it_prints_what_it_finds_keeps_it_and_fails_by_severity(
        self, spark: SparkSession, lake: CheckedLake
    ) -> None:
        assert spark.sparkContext is not None
        root = lake.lake.root

        lake.answer("retry_flow", group="billing", difference=2, sent_back=2)
        lake.complete()

        code, text = self.run("--lake", root, "--run-id", "first")

        assert code == 1
        assert re.search(r"FAILS\W+retry_sheet_closes", text)
        assert "data to 2026-03-01 12:15:05 UTC" in text
        kept = rows_of(lake.lake, lake.lake.gold("dq_results")).filter(run_id="first")
        assert kept.height > 100
        assert Path(root, DATA_DOCS_FOLDER, "index.html").is_file()

    def test_a_lake_that_cannot_be_judged_is_one_sentence_and_exit_2(
        self, lake: CheckedLake, tmp_path: Path
    ) -> None:
        code, text = self.run("--lake", str(tmp_path / "nowhere"))
        assert (code, len(text.strip().splitlines())) == (2, 1)
        assert "nothing was ever shipped there" in text

        for file in Path(lake.lake.gold("ownership"), "_delta_log").iterdir():
            file.unlink()
        code, text = self.run("--lake", lake.lake.root)
        assert code == 2
        assert "has no gold table ownership" in text

    def test_a_missing_data_file_is_a_sentence_that_names_it(self, lake: CheckedLake) -> None:
        data = next(Path(lake.lake.gold("consumer_lag")).rglob("*.parquet"))
        data.unlink()
        wishes = Wishes(keeps=False, again=True)

        with pytest.raises(LakeError, match=r"consumer_lag/.*parquet cannot be read"):
            check_round(lake.lake, in_this_process, wishes, clock=lambda: END)
