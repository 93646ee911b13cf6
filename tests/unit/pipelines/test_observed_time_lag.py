"""Time lags of an observed cluster, from its polled rows."""

from __future__ import annotations

from typing import Any

from pipelines.rules.observed_lag import observed_time_lags

S = 1_000_000
T0 = 1_700_000_000 * S


def poll(second: float, seq: int, max_offset: int, **more: Any) -> dict[str, Any]:
    """A row of queue_watermarks."""
    row = {"cluster": "shop", "topic": "sales", "broker": "broker-a", "queue_id": 0}
    moment = T0 + round(second * S)
    return row | {"event_time": moment, "seq": seq, "max_offset": max_offset} | more


def group(
    second: float, seq: int, max_offset: int, committed: int | None, **more: Any
) -> dict[str, Any]:
    """A row of group_watermarks, of a cluster that tells no store times."""
    row = {
        "group": "orders",
        "committed": committed,
        "min_offset": 0,
        "store_time_at_committed": None,
        "message_model": "CLUSTERING",
    }
    return poll(second, seq, max_offset) | row | more


def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Time lag, error, provenance and reason of each row."""
    names = ("time_lag_ms", "time_lag_error_ms", "provenance", "unknown_reason")
    return [tuple(row[name] for name in names) for row in rows]


def test_a_message_is_as_old_as_the_polls_around_it_say() -> None:
    rows = observed_time_lags(
        [poll(0, 1, 100), poll(10, 2, 200)], [group(20, 3, 200, 149), group(30, 4, 200, 200)]
    )
    assert told(rows) == [(15_000, 5_000, "INTERPOLATED", None), (0, 0, "INTERPOLATED", None)]
    assert rows[0] == {
        "cluster": "shop",
        "group": "orders",
        "topic": "sales",
        "broker": "broker-a",
        "queue_id": 0,
        "seq": 3,
        "observed_us": T0 + 20 * S,
        "time_lag_ms": 15_000,
        "time_lag_error_ms": 5_000,
        "time_lag_least_ms": 10_000,
        "provenance": "INTERPOLATED",
        "unknown_reason": None,
    }


def test_the_row_of_a_group_is_a_poll_itself() -> None:
    rows = observed_time_lags([], [group(0, 1, 100, 100), group(10, 2, 200, 150)])
    assert told(rows)[1] == (4_900, 5_100, "INTERPOLATED", None)


def test_what_is_unknown_has_its_reason() -> None:
    rows = observed_time_lags(
        [poll(0, 1, 100)],
        [
            group(5, 2, 100, None),
            group(6, 3, 100, 40),
            group(7, 4, 100, 40, min_offset=41),
            group(8, 5, 100, 101),
        ],
    )
    assert told(rows) == [
        (None, None, "UNKNOWN", "NO_OFFSET"),
        (None, None, "UNKNOWN", "BEFORE_FIRST_POLL"),
        (None, None, "PURGED", "PURGED"),
        (None, None, "UNKNOWN", "AHEAD_OF_END"),
    ]
    assert rows[1]["time_lag_least_ms"] == 6_000


def test_a_row_is_judged_by_what_came_before_it_whatever_the_order_of_rows() -> None:
    polls = [poll(30, 9, 300), poll(10, 2, 200), poll(0, 1, 100), poll(20, 5, 200)]
    questions = [group(20, 6, 200, 150), group(12, 4, 200, 150)]
    rows = observed_time_lags(polls, questions)
    assert [(row["observed_us"] - T0) // S for row in rows] == [12, 20]
    assert told(rows) == [
        (6_900, 5_100, "INTERPOLATED", None),
        (14_900, 5_100, "INTERPOLATED", None),
    ]
    assert told(observed_time_lags(polls[1:3], questions[1:])) == told(rows)[:1]


def test_queues_of_other_brokers_and_clusters_are_others() -> None:
    elsewhere = [poll(0, 1, 100, broker="broker-b"), poll(0, 1, 100, cluster="mall")]
    rows = observed_time_lags(elsewhere, [group(10, 2, 200, 150)])
    assert told(rows) == [(None, None, "UNKNOWN", "BEFORE_FIRST_POLL")]


def test_rows_that_tell_the_store_time_and_broadcast_groups_are_not_asked() -> None:
    rows = [
        group(10, 2, 200, 150, store_time_at_committed=T0),
        group(10, 3, 200, 150, message_model="BROADCASTING"),
        group(10, 4, 200, 150, message_model=None),
    ]
    assert [row["seq"] for row in observed_time_lags([], rows)] == [4]
