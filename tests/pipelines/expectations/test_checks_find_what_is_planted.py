"""Each law is broken once in a sound lake: the right check fails, and names the right key."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from engine.telemetry.tables import BY_NAME as BRONZE_TABLES
from expectations import commands
from expectations.check import Severity
from expectations.checkpoints import CheckRun, run_checks
from expectations.results import keep
from pipelines.catalogue import BY_NAME as GOLD_TABLES
from pipelines.lake import Lake, whole_table
from tests.gold_lake import END, write_gold_lake
from tests.lake_story import append_rows

NOW = END + timedelta(seconds=8)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return write_gold_lake(tmp_path / "lake")


def run(lake: Lake, run_id: str = "a-run") -> CheckRun:
    return run_checks(lake, run_id=run_id, now=NOW)


def failing(found: CheckRun) -> dict[str, str]:
    """Failing checks with what was observed; those with nothing to look at are not findings."""
    return {
        one.check.name: one.observed_value
        for one in found.outcomes
        if not one.success and not one.nothing_to_check
    }


def newest(lake: Lake, address: str, **wanted: Any) -> dict[str, Any]:
    rows = pl.DataFrame(pl.from_arrow(whole_table(lake.table(address)))).sort("seq")
    return rows.filter(**wanted).row(-1, named=True)


def newest_health(lake: Lake) -> dict[str, Any]:
    """Judgement of the next shipment of one row, as gold would write it."""
    table = whole_table(lake.table(lake.gold("emitter_health")))
    last = pl.DataFrame(pl.from_arrow(table)).sort("seq_to").row(-1, named=True)
    counts = dict.fromkeys(("rows_expected", "rows_found", "rows_distinct"), 1)
    return {**last, "seq_from": last["seq_to"] + 1, **counts}


def add_gold(lake: Lake, table: str, row: dict[str, Any]) -> None:
    append_rows(lake.gold(table), GOLD_TABLES[table].columns, [row], "observed_date")


def add_fact(lake: Lake, table: str, row: dict[str, Any], *, shipped: bool = True) -> None:
    """A fact with the next seq, and the shipment that carries the horizon over it."""
    append_rows(lake.bronze(table), BRONZE_TABLES[table].columns, [row], "event_date")
    if shipped:
        last = newest(lake, lake.bronze("shipments"))
        to = {"seq": last["seq"] + 1, "seq_from": last["seq_to"] + 1, "seq_to": row["seq"]}
        columns = BRONZE_TABLES["shipments"].columns
        append_rows(lake.bronze("shipments"), columns, [{**last, **to}], "event_date")


def horizon(lake: Lake) -> int:
    return int(newest(lake, lake.bronze("shipments"))["seq_to"])


def test_a_sound_lake_breaks_no_law(lake: Lake) -> None:
    found = run(lake)

    assert failing(found) == {}
    assert not found.failed(Severity.INFO)
    assert all(one.checked_rows > 0 for one in found.outcomes)
    assert (
        "4 falls, each with its cause"
        in {one.check.name: one.observed_value for one in found.outcomes}["every_fall_is_in_gold"]
    )


def test_a_report_below_the_one_before_it_is_named_with_its_queue(lake: Lake) -> None:
    report = newest(lake, lake.bronze("consume_offsets"), group="billing", queue_id=1)
    lower = {"offset": report["offset"] - 40, "seq": horizon(lake) + 1}
    add_fact(lake, "consume_offsets", {**report, **lower})

    broken = failing(run(lake))

    assert list(broken) == ["reported_offsets_never_fall_unexplained"]
    assert (
        "group=billing, topic=orders, queue_id=1"
        in broken["reported_offsets_never_fall_unexplained"]
    )


def test_a_report_beyond_the_shipped_horizon_is_not_judged_yet(lake: Lake) -> None:
    report = newest(lake, lake.bronze("consume_offsets"), group="billing", queue_id=1)
    lower = {"offset": report["offset"] - 40, "seq": horizon(lake) + 1}
    add_fact(lake, "consume_offsets", {**report, **lower}, shipped=False)

    assert failing(run(lake)) == {}


def test_a_refused_report_breaks_nothing(lake: Lake) -> None:
    report = newest(lake, lake.bronze("consume_offsets"), group="billing", queue_id=1)
    refused = {"offset": 3, "accepted": False, "seq": horizon(lake) + 1}
    add_fact(lake, "consume_offsets", {**report, **refused})

    assert failing(run(lake)) == {}


def test_a_restart_explains_a_fall_that_gold_need_not_have(lake: Lake) -> None:
    """The restarted broker held what its file told it, and the report is no lower than that."""
    DeltaTable(lake.gold("offset_violations")).delete()
    reports = DeltaTable(lake.bronze("consume_offsets"))
    first_of_life = {"previous_offset": "offset", "broker_epoch": "broker_epoch + 1"}
    reports.update({**first_of_life, "path": "'COMMIT_RPC'"}, predicate="path = 'RESTORE'")

    assert failing(run(lake)) == {}


def test_no_restart_makes_good_a_report_below_what_the_restarted_broker_held(lake: Lake) -> None:
    """A clean stop with the offset held, a clean boot, and a commit of two less."""
    report = newest(lake, lake.bronze("consume_offsets"), group="billing", queue_id=1)
    held = report["offset"]
    lower = {"offset": held - 2, "previous_offset": held, "seq": horizon(lake) + 1}
    next_life = {"broker_epoch": report["broker_epoch"] + 1, "path": "COMMIT_RPC"}
    add_fact(lake, "consume_offsets", {**report, **lower, **next_life})

    broken = failing(run(lake))

    assert list(broken) == ["reported_offsets_never_fall_unexplained"]

    add_gold(lake, "emitter_health", {**newest_health(lake), "seq_to": horizon(lake)})
    broken = failing(run(lake))
    assert set(broken) == {"reported_offsets_never_fall_unexplained", "every_fall_is_in_gold"}


def test_a_fall_that_gold_overlooked_is_a_fault_of_gold(lake: Lake) -> None:
    report = newest(lake, lake.bronze("consume_offsets"), group="ledger", queue_id=2)
    reset = {"offset": report["offset"] - 40, "path": "RESET", "seq": horizon(lake) + 1}
    add_fact(lake, "consume_offsets", {**report, **reset})
    health = newest_health(lake)
    add_gold(lake, "emitter_health", {**health, "seq_to": horizon(lake)})

    broken = failing(run(lake))

    assert list(broken) == ["every_fall_is_in_gold"]
    assert "group=ledger, topic=payments, queue_id=2" in broken["every_fall_is_in_gold"]


def test_an_unexplained_violation_in_gold_is_critical(lake: Lake) -> None:
    known = newest(lake, lake.gold("offset_violations"), queue_id=3)
    unexplained = {"explained": False, "cause": "UNEXPLAINED", "seq": known["seq"] + 1}
    add_gold(lake, "offset_violations", {**known, **unexplained})

    found = run(lake)

    assert list(failing(found)) == ["offsets_never_fall_unexplained"]
    assert [one.severity for one in found.failed(Severity.CRITICAL)] == [Severity.CRITICAL]


def test_a_commit_beyond_the_end_of_its_queue_is_found_in_gold_and_in_bronze(lake: Lake) -> None:
    lag = newest(lake, lake.gold("consumer_lag"), group="ledger", queue_id=0, topic="payments")
    add_gold(lake, "consumer_lag", {**lag, "committed": lag["max_offset"] + 7, "seq": 10**9})
    report = newest(lake, lake.bronze("consume_offsets"), group="ledger", queue_id=0)
    beyond = {"offset": report["max_offset"] + 7, "seq": horizon(lake) + 1}
    add_fact(lake, "consume_offsets", {**report, **beyond})

    broken = failing(run(lake))

    assert set(broken) == {"committed_at_most_max", "reported_offsets_at_most_max"}
    assert "beyond_max=7" in broken["committed_at_most_max"]


def test_a_lost_fact_is_missed_and_a_repeated_one_is_seen(lake: Lake) -> None:
    lost = "\"group\" = 'billing' and event_time = '2026-03-01 12:05:00+00:00'"
    DeltaTable(lake.bronze("group_watermarks")).delete(lost)
    report = newest(lake, lake.bronze("consume_offsets"))
    add_fact(lake, "consume_offsets", report, shipped=False)

    broken = failing(run(lake))

    assert set(broken) == {"facts_gapless", "facts_unique"}
    assert "missing=4" in broken["facts_gapless"]
    assert "repeated=1" in broken["facts_unique"]


def test_a_shipment_that_gold_skipped_is_found_between_its_neighbours(lake: Lake) -> None:
    DeltaTable(lake.gold("emitter_health")).delete("observed_at = '2026-03-01 12:05:00+00:00'")

    assert list(failing(run(lake))) == ["judged_facts_gapless"]


def test_gold_that_does_not_follow_the_horizon_is_late_and_a_silent_emitter_is_noted(
    lake: Lake,
) -> None:
    DeltaTable(lake.gold("emitter_health")).delete("observed_at > '2026-03-01 12:12:00+00:00'")

    found = run_checks(lake, run_id="late", now=END + timedelta(hours=2))

    broken = failing(found)
    assert set(broken) == {"gold_keeps_up", "emitters_speak"}
    assert "seconds_too_late=120" in broken["gold_keeps_up"]
    assert found.failed(Severity.CRITICAL) == []
    assert [one.check.name for one in found.failed(Severity.WARNING)] == ["gold_keeps_up"]


def test_an_interval_that_ends_before_it_begins_and_a_key_twice_are_found(lake: Lake) -> None:
    stall = newest(lake, lake.gold("stalled_windows"), state="CLOSED")
    early = {"closed_at": stall["opened_at"] - timedelta(seconds=1)}
    add_gold(lake, "stalled_windows", {**stall, **early})

    broken = failing(run(lake))

    assert set(broken) == {"stalled_windows_keys_unique", "stalled_windows_well_formed"}
    assert stall["window_id"] in broken["stalled_windows_keys_unique"]


def test_an_unknown_lag_must_say_why(lake: Lake) -> None:
    lag = newest(lake, lake.gold("consumer_lag"), group="billing", queue_id=3)
    add_gold(lake, "consumer_lag", {**lag, "lag_messages": None, "seq": 10**9})

    assert list(failing(run(lake))) == ["unknown_lag_says_why"]


def test_nothing_to_check_is_said_and_is_no_success(lake: Lake) -> None:
    for table in ("dead_letters", "consumer_lag", "offset_violations"):
        DeltaTable(lake.gold(table)).delete()

    found = {one.check.name: one for one in run(lake).outcomes}

    dead = found["dead_letters_know_their_origin"]
    assert (dead.success, dead.severity, dead.failed_rows) == (False, Severity.INFO, 0)
    assert dead.observed_value == "nothing to check: dead_letters has no rows"
    lag = found["lag_keys_unique"]
    assert (lag.success, lag.severity) == (False, Severity.WARNING)
    assert lag.observed_value == "nothing to check: consumer_lag has no rows"


def test_a_run_is_kept_once_with_its_failing_rows(lake: Lake) -> None:
    known = newest(lake, lake.gold("offset_violations"), queue_id=3)
    add_gold(lake, "offset_violations", {**known, "explained": False, "seq": known["seq"] + 1})
    found = run(lake, "kept-once")

    keep(found, lake)
    keep(found, lake)

    results = pl.DataFrame(pl.from_arrow(whole_table(lake.table(lake.gold("dq_results")))))
    mine = results.filter(run_id="kept-once")
    assert mine.height == len(found.outcomes)
    assert mine["observed_at"].unique().to_list() == [END]
    failures = pl.DataFrame(pl.from_arrow(whole_table(lake.table(lake.gold("dq_failures")))))
    kept = failures.filter(run_id="kept-once").rows(named=True)
    assert [row["row_key"] for row in kept] == [
        "broker=broker-a, group=ledger, topic=payments, queue_id=3"
    ]
    assert "unexplained_falls=1" in kept[0]["detail"]


def command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(commands.app, list(arguments))
    return done.exit_code, done.output


def test_the_command_prints_a_table_and_fails_by_severity(lake: Lake) -> None:
    code, text = command("--lake", lake.root)
    assert code == 0
    assert "facts_gapless" in text
    assert "22 of 23 hold, 1 do not" in text  # The story is long over: its emitter is silent.

    assert command("--lake", lake.root, "--fail-on", "info")[0] == 1

    known = newest(lake, lake.gold("offset_violations"), queue_id=3)
    add_gold(lake, "offset_violations", {**known, "explained": False, "seq": known["seq"] + 1})
    code, text = command("--lake", lake.root)
    assert code == 1
    assert "FAILS" in text
    assert "group=ledger" in text


def test_a_lake_that_cannot_be_judged_is_one_sentence_and_exit_2(
    lake: Lake, tmp_path: Path
) -> None:
    code, text = command("--lake", str(tmp_path / "nowhere"))
    assert (code, len(text.strip().splitlines())) == (2, 1)
    assert "nothing was ever shipped there" in text

    data = next(Path(lake.gold("consumer_lag")).rglob("*.parquet"))
    data.unlink()
    code, text = command("--lake", lake.root)
    assert (code, len(text.strip().splitlines())) == (2, 1)
    assert "consumer_lag" in text
    assert "missing or damaged" in text

    for file in Path(lake.gold("ownership"), "_delta_log").iterdir():
        file.unlink()
    code, text = command("--lake", lake.root)
    assert code == 2
    assert "has no gold table ownership" in text
