"""What rests on an unknown figure is unknown as well, wherever it is read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from pipelines.lake.schemas import arrow_schema
from pipelines.marts.consumer_lag import CONSUMER_LAG
from pipelines.marts.group_state import GROUP_STATE
from pipelines.marts.mart import GoldTable
from pipelines.reading.catalogue import GOLD_TABLES
from pipelines.reading.known import (
    behind,
    held_to,
    resting_on,
    states_at,
    states_with,
    trend_of_all,
    with_bounds,
)
from pipelines.reading.moment import Moment, Reached

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SILENT = Moment("r", 1, (Reached("c/b/0", NOON, 9), Reached("c/z/0", NOON + timedelta(hours=1), 9)))
"""Nothing has come from c/b/0 for an hour."""
PLACE = {"cluster": "c", "broker": "b", "group": "g", "emitter": "c/b/0", "observed_at": NOON}


def rows(table: GoldTable, *given: dict[str, object]) -> pl.DataFrame:
    """Rows of a gold table; what is not named is null."""
    empty = pl.DataFrame(pl.from_arrow(arrow_schema(table.columns).empty_table()))
    return pl.DataFrame([{**PLACE, **one} for one in given], schema=empty.schema)


def queue(queue_id: int, lag: int | None, **values: object) -> dict[str, object]:
    why = "NO_OFFSET" if lag is None else None
    time_lag_ms = None if lag is None else 1000 * lag
    known = {"lag_messages": lag, "time_lag_ms": time_lag_ms, "unknown_reason": why}
    return {"topic": "t", "queue_id": queue_id, **known, **values}


@pytest.mark.parametrize(
    ("table", "unknown", "also"),
    [
        (
            CONSUMER_LAG,
            ("lag_messages", "time_lag_ms"),
            {"time_lag_error_ms", "error_messages", "trend", "lag_change_per_minute",
             "drain_time_ms"},
        ),
        (
            GROUP_STATE,
            ("lag_messages",),
            {"unfinished_messages", "trend", "lag_change_per_hour", "drain_time_ms"},
        ),
        (
            GROUP_STATE,
            ("lag_at_least_messages", "time_lag_at_least_ms"),
            {"lag_messages", "time_lag_ms", "unfinished_messages", "trend", "lag_change_per_hour",
             "drain_time_ms", "retained_until"},
        ),
    ],
)  # fmt: skip
def test_columns_declare_what_they_are_computed_from(
    table: GoldTable, unknown: tuple[str, ...], also: set[str]
) -> None:
    assert resting_on(table.columns, *unknown) == {*unknown, *also}


def test_a_column_is_computed_from_columns_of_its_table() -> None:
    assert [
        (table.name, column.name)
        for table in GOLD_TABLES
        for column in table.columns
        if not {*column.rests_on} <= {*table.column_names}
    ] == []


def test_of_a_silent_emitter_no_figure_stays_that_rests_on_its_lag() -> None:
    figures = {"time_lag_error_ms": 3000, "error_messages": 4, "lag_change_per_minute": 5}
    lag = rows(CONSUMER_LAG, queue(0, 7, trend="GROWING", drain_time_ms=8, committed=3, **figures))
    [row] = held_to(lag, SILENT).to_dicts()
    wanted = resting_on(CONSUMER_LAG.columns, "lag_messages", "time_lag_ms")
    assert {row[name] for name in wanted} == {None}
    assert (row["unknown_reason"], row["committed"]) == ("EMITTER_SILENT", 3)


def test_of_a_silent_emitter_no_figure_of_a_group_stays_and_no_lower_bound() -> None:
    figures = dict.fromkeys(
        ("lag_messages", "lag_at_least_messages", "time_lag_ms", "time_lag_at_least_ms"), 7
    )
    states = rows(GROUP_STATE, {**figures, "state": "SLOW", "members": 2, "trend": "GROWING"})
    [row] = states_at(states, SILENT).to_dicts()
    assert {row[name] for name in (*figures, "members", "trend")} == {None}
    assert (row["state"], row["unknown_reason"]) == ("UNKNOWN", "EMITTER_SILENT")


def test_with_one_queue_unknown_now_a_group_is_behind_by_what_the_others_are_at_the_least() -> None:
    fields = {"lag_messages": 9, "lag_at_least_messages": 9, "trend": "GROWING", "queues": 3}
    states = rows(GROUP_STATE, {**fields, "lag_change_per_hour": 60, "queues_known": 3})
    lag = rows(CONSUMER_LAG, queue(0, 4), queue(1, 2), queue(2, None))
    [row] = states_with(lag, states).to_dicts()
    assert (row["lag_messages"], row["lag_at_least_messages"]) == (None, 6)
    assert (row["time_lag_ms"], row["time_lag_at_least_ms"]) == (None, 4000)
    assert (row["queues"], row["queues_known"], row["unknown_reason"]) == (3, 2, "NO_OFFSET")
    assert (row["trend"], row["lag_change_per_hour"]) == (None, None)


def test_rows_of_an_earlier_version_which_summed_up_what_it_knew_are_read_as_bounds() -> None:
    part = {"queues": 4, "queues_known": 3, "lag_messages": 8, "time_lag_ms": 70}
    made = with_bounds(rows(GROUP_STATE, part, {**part, "queues_known": 4})).to_dicts()
    names = ("lag_messages", "lag_at_least_messages", "time_lag_ms", "time_lag_at_least_ms")
    assert [tuple(row[name] for name in names) for row in made] == [
        (None, 8, None, 70),
        (8, 8, 70, 70),
    ]


@pytest.mark.parametrize(
    ("changes", "trend"),
    [
        ((130, 130, 0), "GROWING"),
        ((130, -130, 4), "STEADY"),
        ((40, -130, 4), "SHRINKING"),
        ((130, 130, None), None),
    ],
)
def test_the_trend_of_some_queues_is_that_of_their_sum(
    changes: tuple[int | None, ...], trend: str | None
) -> None:
    lag = rows(
        CONSUMER_LAG,
        *(queue(number, 5, lag_change_per_minute=one) for number, one in enumerate(changes)),
    )
    assert lag.select(*behind(), trend_of_all())["trend"].to_list() == [trend]
