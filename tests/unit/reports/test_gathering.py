"""What Spark is asked, as far as it can be seen without one."""

from __future__ import annotations

import polars as pl

from pipelines.reports.gathering import _edges, _fates
from tests.unit.reports.gathered import at

NAMES = ("dead_lettered", "redriven", "discarded", "expired")
SCHEMA = dict.fromkeys(("emitter", "cluster", "group"), pl.String) | {
    f"{name}_{number}": pl.Int64 for number in range(3) for name in NAMES
}


def totals(edge: int, dead_lettered: int) -> dict[str, int]:
    told = zip(NAMES, (dead_lettered, 1, 0, 0), strict=True)
    return {f"{name}_{edge}": value for name, value in told}


def test_totals_of_all_topics_of_a_group_are_summed_up_at_each_edge() -> None:
    place = {"emitter": "e", "cluster": "c", "group": "orders"}
    told = pl.DataFrame([place | totals(1, 2) | totals(2, 5), place | totals(2, 4)], schema=SCHEMA)
    rows = _edges(told).rows(named=True)
    assert [(row["edge"], row["dead_lettered"], row["redriven"]) for row in rows] == [
        (1, 2, 1),
        (2, 9, 2),
    ]
    assert _edges(told.clear()).height == 0


def test_what_was_not_told_yet_is_asked_for_in_columns_that_may_be_null() -> None:
    asked = _fates((at(0), at(30), at(60)))
    assert "max_by(struct" not in asked, (
        "of a struct whose parts are never null Arrow takes no null"
    )
    assert all(f"AS {name}_{edge}" in asked for name in NAMES for edge in range(3))
