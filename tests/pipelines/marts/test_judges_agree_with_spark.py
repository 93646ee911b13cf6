"""The columnar judges against the Spark judges, which they replace, on one story."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.gold_lake import SHORT, gold
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.partition import Bronze, bronze_of, run

pytestmark = pytest.mark.timeout(600)


def by_text(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as sorted texts: equal texts are equal rows in all columns."""
    return sorted(str(tuple(row.items())) for row in rows)


def after_their_horizon(bronze: Bronze) -> set[tuple[str, Any]]:
    """Groups and moments of rows that the story tells after it has shipped a horizon of the same
    moment. Spark lays them before the tick of that moment when one cycle has both, behind it when
    two have; the columnar judges always behind it.
    """
    shipments = bronze["shipments"].to_pylist()
    return {
        (row["group"], row["event_time"])
        for row in bronze["group_watermarks"].to_pylist()
        for one in shipments
        if one["seq_to"] < row["seq"] and one["event_time_to"] == row["event_time"]
    }


def test_lag_stalls_and_group_states_are_those_of_spark(told: Path) -> None:
    bronze = bronze_of(told)
    made = run(JUDGES, bronze, SHORT)
    assert by_text(made["consumer_lag"]) == by_text(gold(told, "consumer_lag"))
    assert by_text(made["stalled_windows"]) == by_text(gold(told, "stalled_windows"))
    late = after_their_horizon(bronze)
    key = ("group", "observed_at")
    spark = {tuple(row[name] for name in key): row for row in gold(told, "group_state")}
    ours = {tuple(row[name] for name in key): row for row in made["group_state"]}
    assert set(ours) <= set(spark)
    compared = set(ours) - late
    assert len(compared) >= len(spark) // 2
    assert by_text([ours[one] for one in compared]) == by_text([spark[one] for one in compared])
