"""What Spark is asked, as far as it can be seen without one."""

from __future__ import annotations

import polars as pl

from pipelines.reports.gathering import _edges

TOTALS = pl.Struct(dict.fromkeys(("dead_lettered", "redriven", "discarded", "expired"), pl.Int64))
SCHEMA = dict.fromkeys(("emitter", "cluster", "group"), pl.String) | {
    f"edge_{number}": TOTALS for number in range(3)
}


def totals(dead_lettered: int) -> dict[str, int]:
    return {"dead_lettered": dead_lettered, "redriven": 1, "discarded": 0, "expired": 0}


def test_totals_of_all_topics_of_a_group_are_summed_up_at_each_edge() -> None:
    place = {"emitter": "e", "cluster": "c", "group": "orders"}
    told = pl.DataFrame(
        [
            place | {"edge_0": None, "edge_1": totals(2), "edge_2": totals(5)},
            place | {"edge_0": None, "edge_1": None, "edge_2": totals(4)},
        ],
        schema=SCHEMA,
    )
    rows = _edges(told).rows(named=True)
    assert [(row["edge"], row["dead_lettered"], row["redriven"]) for row in rows] == [
        (1, 2, 1),
        (2, 9, 2),
    ]
    assert _edges(told.clear()).height == 0
