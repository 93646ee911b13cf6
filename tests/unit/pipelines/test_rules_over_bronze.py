"""From bronze rows to observations and to what Burrow would have said, with nothing made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from engine.telemetry.tables import BY_NAME
from pipelines.lake.schemas import arrow_schema
from pipelines.rules.burrow.over_time import BurrowRules
from pipelines.rules.from_bronze import UNCHANGED_MAX, observations_of
from pipelines.rules.observations import Kind, Observation, Queue, Ticks, Verdict

S = 1_000_000
T0 = 1_700_000_000 * S
QUEUE = Queue("shop", "orders", "sales", "broker-a", 0)
KEY = {"cluster": "shop", "topic": "sales", "broker": "broker-a", "queue_id": 0}


def commit(second: float, seq: int, offset: int, **more: Any) -> dict[str, Any]:
    """A row of consume_offsets."""
    row = {"event_time": T0 + round(second * S), "seq": seq, "offset": offset, "group": "orders"}
    return KEY | row | {"previous_offset": None, "path": "COMMIT_RPC", "accepted": True} | more


def end(second: float, seq: int, max_offset: int, **more: Any) -> dict[str, Any]:
    """A row of queue_watermarks."""
    row = {"event_time": T0 + round(second * S), "seq": seq, "max_offset": max_offset}
    return KEY | row | more


def watermark(
    second: float, seq: int, *, reports: int, last_s: float | None, committed: int | None = 50
) -> dict[str, Any]:
    """A row of group_watermarks."""
    last = None if last_s is None else T0 + round(last_s * S)
    row = {"group": "orders", "reports": reports, "last_commit_time": last, "committed": committed}
    return end(second, seq, 90) | row


def commits(ones: list[Observation]) -> list[tuple[float, int | None]]:
    """(second, offset) of each commit."""
    return [((one.at_us - T0) / S, one.offset) for one in ones if one.kind is Kind.COMMIT]


def burrow_statuses(
    observations: Mapping[Queue, Sequence[Observation]], ticks: Ticks, *, rules: BurrowRules
) -> list[dict[str, Any]]:
    """What Burrow says over time: a row for each interval of a queue, and of a group, whose topic,
    broker and queue_id are null.
    """
    groups: dict[tuple[str, str], dict[Queue, Sequence[Observation]]] = {}
    for queue, ones in observations.items():
        groups.setdefault((queue.cluster, queue.group), {})[queue] = ones
    rows = []
    for (cluster, group), queues in sorted(groups.items()):
        said = rules.judge_group(queues, ticks)
        key = {"cluster": cluster, "group": group, "topic": None, "broker": None, "queue_id": None}
        rows += [key | _columns(verdict) for verdict in said.group]
        for queue, verdicts in sorted(said.queues.items()):
            place = {"topic": queue.topic, "broker": queue.broker, "queue_id": queue.queue_id}
            rows += [key | place | _columns(verdict) for verdict in verdicts]
    return rows


def _columns(verdict: Verdict) -> dict[str, Any]:
    return {
        "begin_us": verdict.begin_us,
        "end_us": verdict.end_us,
        "state": verdict.state,
        "is_bad": verdict.is_bad,
    }


def test_commits_and_ends_are_put_in_the_order_in_which_they_happened() -> None:
    found = observations_of(
        [commit(2, 4, 20), commit(1, 2, 10)], [end(1, 1, 90), end(2, 3, 95), end(2, 5, 96)]
    )
    assert found == {
        QUEUE: [
            Observation(T0 + 1 * S, 1, Kind.END, 90),
            Observation(T0 + 1 * S, 2, Kind.COMMIT, 10),
            Observation(T0 + 2 * S, 3, Kind.END, 95),
            Observation(T0 + 2 * S, 5, Kind.END, 96),
            Observation(T0 + 2 * S, 4, Kind.COMMIT, 20),
        ]
    }


def test_what_no_client_reported_is_no_commit() -> None:
    rows = [
        commit(1, 1, 10),
        commit(2, 2, 20, accepted=False),
        commit(3, 3, 30, path="RESTORE"),
        commit(4, 4, 40, path="LOCAL"),
        commit(5, 5, 50, path="RESET"),
        commit(6, 6, 60, path="PULL_PIGGYBACK"),
    ]
    assert commits(observations_of(rows, [])[QUEUE]) == [(1, 10), (5, 50), (6, 60)]


def test_clusters_groups_and_brokers_with_equal_names_do_not_mix() -> None:
    found = observations_of(
        [
            commit(1, 1, 10),
            commit(1, 1, 11, cluster="mall"),
            commit(1, 1, 12, broker="broker-b"),
            commit(1, 2, 13, group="bills"),
        ],
        [end(2, 3, 90), end(2, 2, 91, cluster="mall")],
    )
    assert [
        (queue.cluster, queue.group, queue.broker, len(ones)) for queue, ones in found.items()
    ] == [
        ("mall", "orders", "broker-a", 2),
        ("shop", "bills", "broker-a", 2),
        ("shop", "orders", "broker-a", 2),
        ("shop", "orders", "broker-b", 1),
    ]


def test_times_come_as_numbers_or_as_moments_of_any_zone() -> None:
    moment = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
    us = 1_772_366_400_250_000
    elsewhere = moment.astimezone(timezone(timedelta(hours=8)))
    for given in (us, moment, elsewhere, moment.replace(tzinfo=None)):
        (one,) = observations_of([commit(0, 1, 5, event_time=given)], [])[QUEUE]
        assert one.at_us == us


def test_reports_that_changed_nothing_are_put_back_the_last_at_its_time() -> None:
    """Six reports between the rows at 0 s and 30 s: one changed the offset, at 12 s."""
    found = observations_of(
        [commit(12, 2, 50, previous_offset=40)],
        [],
        [watermark(0, 1, reports=0, last_s=None), watermark(30, 3, reports=6, last_s=25)],
    )
    assert commits(found[QUEUE]) == [(5, 40), (10, 40), (12, 50), (15, 50), (20, 50), (25, 50)]


def test_a_last_report_that_has_a_row_of_its_own_is_not_put_back_again() -> None:
    found = observations_of(
        [commit(24, 2, 50, previous_offset=40)],
        [],
        [watermark(0, 1, reports=0, last_s=None), watermark(30, 3, reports=3, last_s=24)],
    )
    assert commits(found[QUEUE]) == [(8, 40), (16, 40), (24, 50)]


def test_without_a_row_before_only_the_last_report_is_known() -> None:
    assert commits(observations_of([], [], [watermark(30, 3, reports=6, last_s=25)])[QUEUE]) == [
        (25, 50)
    ]


def test_a_row_that_counts_no_report_puts_nothing_back() -> None:
    rows = [watermark(0, 1, reports=0, last_s=None), watermark(30, 2, reports=0, last_s=-5)]
    assert commits(observations_of([], [], rows)[QUEUE]) == []


def test_a_group_that_has_no_offset_has_no_commit() -> None:
    rows = [
        watermark(0, 1, reports=0, last_s=None),
        watermark(30, 2, reports=2, last_s=9, committed=None),
    ]
    assert commits(observations_of([], [], rows)[QUEUE]) == []


def test_of_a_million_reports_the_newest_are_put_back() -> None:
    rows = [watermark(0, 1, reports=0, last_s=None), watermark(30, 2, reports=1_000_000, last_s=20)]
    found = commits(observations_of([], [], rows)[QUEUE])
    assert len(found) == UNCHANGED_MAX
    assert found[-1] == (20, 50)
    assert found[-2] == (19.99998, 50)


@pytest.mark.parametrize("every_s", [1, 5])
def test_a_consumer_that_stands_still_is_stalled_because_of_the_reports_put_back(
    every_s: int,
) -> None:
    """It reports 50 each `every_s`, 40 behind; only the first report has a row of its own."""
    reports = [commit(5, 2, 50)]
    rows = [
        watermark(second, 10 + second, reports=30 // every_s, last_s=second)
        for second in (30, 60, 90)
    ]
    found = observations_of(reports, [end(0, 1, 90)], rows)
    said = burrow_statuses(found, Ticks(T0, T0 + 90 * S, 30 * S), rules=BurrowRules())
    queue_rows = [row for row in said if row["topic"] == "sales"]
    assert [(row["begin_us"] - T0, row["state"], row["is_bad"]) for row in queue_rows] == [
        (0, "NOTFOUND", None),
        (30 * S, "STALL", True),
    ]
    alone = burrow_statuses(
        observations_of(reports, [end(0, 1, 90)]),
        Ticks(T0, T0 + 90 * S, 30 * S),
        rules=BurrowRules(),
    )
    assert alone[-1]["state"] == "STOP", "its one commit is a window of no length"


def test_each_group_has_rows_of_its_own_and_of_its_queues() -> None:
    found = observations_of(
        [commit(11, 3, 90), commit(11, 4, 10, queue_id=1), commit(11, 5, 90, group="bills")],
        [end(1, 1, 90), end(1, 2, 90, queue_id=1)],
    )
    said = burrow_statuses(found, Ticks(T0 + 11 * S, T0 + 11 * S, S), rules=BurrowRules())
    assert [(row["group"], row["topic"], row["queue_id"], row["state"]) for row in said] == [
        ("bills", None, None, "OK"),
        ("bills", "sales", 0, "OK"),
        ("orders", None, None, "ERR"),
        ("orders", "sales", 0, "OK"),
        ("orders", "sales", 1, "STALL"),
    ]
    assert said[0] == {
        "cluster": "shop",
        "group": "bills",
        "topic": None,
        "broker": None,
        "queue_id": None,
        "begin_us": T0 + 11 * S,
        "end_us": None,
        "state": "OK",
        "is_bad": False,
    }


def as_bronze(name: str, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows as Arrow gives them back from a bronze table: its columns, moments for times."""
    schema = arrow_schema(BY_NAME[name].columns)
    for row in rows:
        assert row.keys() <= set(schema.names), "a column that the table does not have"
    full = [dict.fromkeys(schema.names) | row for row in rows]
    return list(pa.Table.from_pylist(full, schema=schema).to_pylist())


def test_rows_are_taken_as_bronze_tables_have_them() -> None:
    offsets = as_bronze("consume_offsets", commit(12, 2, 50, previous_offset=40))
    ends = as_bronze("queue_watermarks", end(11, 1, 90))
    groups = as_bronze(
        "group_watermarks",
        watermark(0, 1, reports=0, last_s=None, committed=40) | {"min_offset": 0},
        watermark(30, 3, reports=2, last_s=25) | {"min_offset": 0},
    )
    found = observations_of(offsets, ends, groups)
    assert commits(found[QUEUE]) == [(12, 50), (25, 50)]
    assert [one.at_us - T0 for one in found[QUEUE] if one.kind is Kind.END] == [0, 11 * S, 30 * S]
