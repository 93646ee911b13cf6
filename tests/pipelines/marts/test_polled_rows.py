"""Rows of a broker that is watched from outside say that they were polled, and how far they may be
off; rows of one that reports itself do not. The same rows come out however cycles are cut.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.base.settings import Evaluation
from tests.needed_steps import needed_for
from tests.pipelines.bronze_lake import START_US, BronzeWriter
from tests.pipelines.partition import bronze_of, horizons_of, run

STEPS = needed_for("consumer_lag", "group_state")
PERIOD_S = 10


def mark(writer: BronzeWriter, second: float, committed: int, end: int) -> None:
    writer.at(second)
    writer.report(
        "group_watermarks",
        group="g",
        topic="orders",
        queue_id=0,
        committed=committed,
        committed_state="EXACT" if committed < end else "AT_END",
        store_time_at_committed=START_US if committed < end else None,
        min_offset=0,
        max_offset=end,
        reports=1,
        message_model="CLUSTERING",
        members=1,
    )


def both_reported(folder: Path, *, changes_s: int | None = None) -> Any:
    """The same story by an observer and by a broker of its own: six looks."""
    observer, broker = BronzeWriter(folder, broker="seen"), BronzeWriter(folder, broker="own")
    observer.emitter = "cluster-1/seen/observer"
    for number in range(12):
        second = number * PERIOD_S
        for writer in (observer, broker):
            writer.at(second)
            if number == 0:
                writer.report("lifecycle", kind="BOOT")
            if writer is observer and number in (0, changes_s):
                period_ms = 10_000 if number == 0 else 20_000
                writer.report("lifecycle", kind="OBSERVED", report_each_ms=period_ms)
            mark(writer, second, 10 * number, 20 * number)
            writer.ship()
    return bronze_of(folder)


@pytest.fixture(scope="module")
def gold(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    return run(STEPS, both_reported(tmp_path_factory.mktemp("polled")), Evaluation())


def of(gold: dict[str, list[dict[str, Any]]], name: str, broker: str) -> list[dict[str, Any]]:
    rows = [row for row in gold[name] if row["broker"] == broker]
    return sorted(rows, key=lambda row: row["observed_at"])


def test_what_was_polled_is_observed_with_an_error_of_a_period(gold: Any) -> None:
    rows = of(gold, "consumer_lag", "seen")
    behind = [row for row in rows if row["lag_messages"]]
    assert {row["provenance"] for row in behind} == {"OBSERVED"}
    assert {(row["error_ms"], row["time_lag_error_ms"]) for row in behind} == {(10_000, 10_000)}
    last = rows[-1]
    assert (last["lag_change_per_minute"], last["error_messages"]) == (60, 10)
    states = of(gold, "group_state", "seen")
    assert {(row["provenance"], row["error_ms"]) for row in states} == {("OBSERVED", 10_000)}


def test_what_was_emitted_has_no_error(gold: Any) -> None:
    rows = of(gold, "consumer_lag", "own")
    assert {row["provenance"] for row in rows} == {"EXACT"}
    assert {(row["error_ms"], row["error_messages"]) for row in rows} == {(None, None)}
    assert {row["time_lag_error_ms"] for row in rows} == {0}
    states = of(gold, "group_state", "own")
    assert {(row["provenance"], row["error_ms"]) for row in states} == {(None, None)}
    same = [[row["state"] for row in of(gold, "group_state", one)] for one in ("own", "seen")]
    assert same[0] == same[1]


def test_a_period_holds_from_when_it_was_reported_whatever_a_cycle_holds(tmp_path: Path) -> None:
    bronze = both_reported(tmp_path, changes_s=6)
    whole = run(STEPS, bronze, Evaluation())
    errors = [row["error_ms"] for row in of(whole, "consumer_lag", "seen")]
    assert errors == [10_000] * 6 + [20_000] * 6
    for ends in (range(len(horizons_of(bronze))), (3, 4, 11), (0,)):
        assert run(STEPS, bronze, Evaluation(), ends=ends) == whole
