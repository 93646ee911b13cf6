"""What Spark is asked, as far as it can be seen without one."""

from __future__ import annotations

import polars as pl

from pipelines.reading.moment import Moment, Reached
from pipelines.reports.gathering import _edges, _fates, _gathered
from pipelines.reports.incidents import stall_causes
from tests.unit.reports.gathered import CUT, EMITTER, HOUR, MOMENT, at

NAMES = ("dead_lettered", "redriven", "discarded", "expired")
SCHEMA = dict.fromkeys(("emitter", "cluster", "group"), pl.String) | {
    f"{name}_{number}": pl.Int64 for number in range(3) for name in NAMES
}


def totals(edge: int, dead_lettered: int) -> dict[str, int]:
    columns = zip(NAMES, (dead_lettered, 1, 0, 0), strict=True)
    return {f"{name}_{edge}": value for name, value in columns}


def test_totals_of_all_topics_of_a_group_are_summed_up_at_each_edge() -> None:
    place = {"emitter": "e", "cluster": "c", "group": "orders"}
    frame = pl.DataFrame([place | totals(1, 2) | totals(2, 5), place | totals(2, 4)], schema=SCHEMA)
    rows = _edges(frame).rows(named=True)
    assert [(row["edge"], row["dead_lettered"], row["redriven"]) for row in rows] == [
        (1, 2, 1),
        (2, 9, 2),
    ]
    assert _edges(frame.clear()).height == 0


def test_what_was_not_reported_yet_is_asked_for_in_columns_that_may_be_null() -> None:
    asked = _fates((at(0), at(30), at(60)))
    assert "max_by(struct" not in asked, (
        "of a struct whose parts are never null Arrow takes no null"
    )
    assert all(f"AS {name}_{edge}" in asked for name in NAMES for edge in range(3))


def test_a_stall_of_a_broker_that_was_taken_out_lasted_until_its_last_report() -> None:
    place = {"cluster": "c", "group": "orders", "topic": "T", "queue_id": 0, "kind": "FROZEN_HEAD"}
    standing = {
        **place,
        "rule": "R1",
        "window_id": "w",
        "opened_at": at(10),
        "closed_at": None,
        "observed_at": at(10),
        "evidence": "it stands",
        "unknown_reason": None,
        "state": "OPEN",
    }
    brokers = {"there": EMITTER, "sold": "Prod/sold/0"}
    stalls = pl.DataFrame(
        [{**standing, "emitter": one} for one in brokers.values()],
        schema_overrides={"closed_at": MOMENT},
    )
    others = pl.DataFrame(schema=SCHEMA | {"run_id": pl.String})

    def ask(sql: str) -> pl.DataFrame:
        if "FROM duplicate_risk_windows" in sql:
            return stalls.clear()
        return stalls if "FROM stalled_windows" in sql else others

    reached = (
        Reached(brokers["there"], at(60), 9, report_each_ms=10_000),
        Reached(brokers["sold"], at(25), 9, ended_at=at(40)),
    )
    found = _gathered(ask, Moment("run", 7, reached), HOUR, CUT, known_from=None)
    assert found.reached["polled_each_ms"].to_list() == [10_000, None]
    (frozen,) = stall_causes(found, before_is_known=False)
    assert (frozen.windows, frozen.open_at_end) == (2, 1)
    assert frozen.stood_s == (50 + 15) * 60
