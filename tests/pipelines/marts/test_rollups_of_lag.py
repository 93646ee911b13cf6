"""Roll-ups of consumer_lag are the aggregates of its rows, whatever was cut where."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.marts.consumer_lag import MART as CONSUMER_LAG
from pipelines.marts.consumer_lag_rollups import MART as ROLLUPS
from pipelines.marts.consumer_lag_rollups import SPANS_S
from pipelines.marts.declared import in_order
from pipelines.marts.judging.queue_numbers import STEP as QUEUE_NUMBERS
from pipelines.marts.polled import STEP as POLLED
from pipelines.marts.timeless import STEP as TIMELESS
from tests.pipelines.gold_lake import SHORT
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze
from tests.pipelines.marts.test_judges_over_any_cut import QUEUES, STATE, Broker
from tests.pipelines.partition import Bronze, horizons_of, run

STEPS = in_order([QUEUE_NUMBERS, TIMELESS, POLLED, CONSUMER_LAG, ROLLUPS])
KEY = ("emitter", "cluster", "broker", "group", "topic", "queue_id")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)


def aggregated(facts: Bronze, raw: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The roll-ups, row by row from rows of consumer_lag and shipments."""
    shipped: dict[str, list[tuple[int, datetime]]] = {}
    for row in facts["shipments"].to_pylist():
        emitter = row["emitter"].removesuffix("/shipper")
        shipped.setdefault(emitter, []).append((row["seq_to"], row["event_time_to"]))
    slots: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in raw:
        moments = [moment for seq_to, moment in shipped[row["emitter"]] if seq_to < row["seq"]]
        came = max([row["observed_at"], *(moment + MICRO for moment in moments)])
        for span_s in SPANS_S:
            span = timedelta(seconds=span_s)
            end = EPOCH + -(-(came - EPOCH) // span) * span
            if end <= max(moment for _, moment in shipped[row["emitter"]]):
                slots.setdefault((*(row[name] for name in KEY), span_s, end), []).append(row)
    made = []
    for key, rows in slots.items():
        rows.sort(key=lambda row: row["seq"])
        last = rows[-1]
        made.append(
            dict(zip((*KEY, "span_s", "observed_at"), key, strict=True))
            | of(rows, "lag_messages", "lag_{}")
            | of(rows, "time_lag_ms", "time_lag_ms_{}")
            | {"seq": last["seq"], "last_at": last["observed_at"], "reports": len(rows)}
            | {"unknown_reason": last["unknown_reason"], "observed_date": key[-1].date()}
        )
    for one in made:
        of_group = ("emitter", "group", "span_s", "observed_at")
        peers = [other for other in made if all(one[name] == other[name] for name in of_group)]
        one["is_worst"] = one is min(peers, key=by_badness) and min(by_badness(one)[:2]) < 0
    return made


def of(rows: list[dict[str, Any]], name: str, named: str) -> dict[str, Any]:
    """Least, greatest and last of a column."""
    known = [row[name] for row in rows if row[name] is not None]
    values = (min(known, default=None), max(known, default=None), rows[-1][name])
    return dict(zip((named.format(end) for end in ("min", "max", "last")), values, strict=True))


def by_badness(row: dict[str, Any]) -> tuple[int, int, str, int]:
    """Worst first: a lag that is not known counts least."""
    lag = -(10**15) if row["lag_max"] is None else row["lag_max"]
    time_lag = -(10**15) if row["time_lag_ms_max"] is None else row["time_lag_ms_max"]
    return (-time_lag, -lag, row["topic"], row["queue_id"])


def as_text(rows: list[dict[str, Any]]) -> list[str]:
    """In an order of their own, all columns."""
    texts = [{name: str(value) for name, value in row.items()} for row in rows]
    return sorted(str(sorted(text.items())) for text in texts)


MOVES = st.one_of(
    *(st.tuples(st.just("pass"), st.sampled_from([1, 7, 30, 30, 60, 200])),) * 3,
    *(STATE,) * 3,
    *(st.tuples(st.just("ship")),) * 2,
    st.tuples(st.just("odd"), QUEUES, st.sampled_from(["NONE", "PURGED", "AT_END", "RADIO"])),
    st.tuples(st.just("set back"), st.integers(1, 400)),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.booleans(), MOVES), min_size=10, max_size=60), st.data())
def test_they_equal_the_aggregates_of_the_rows_however_cycles_are_cut(
    story: list[tuple[bool, tuple[Any, ...]]], data: st.DataObject
) -> None:
    rows: Rows = {}
    brokers = [Broker(rows, "broker-a"), Broker(rows, "broker-b")]
    for is_second, move in story:
        brokers[is_second].report(move)
    for broker in brokers:
        broker.emitter.ship()
    facts = bronze(rows)
    whole = run(STEPS, facts, SHORT)
    expected = aggregated(facts, whole["consumer_lag"])
    assert as_text(whole["consumer_lag_rollups"]) == as_text(expected)
    count = len(horizons_of(facts))
    ends = data.draw(st.sets(st.integers(0, count - 1), max_size=6))
    parts = run(STEPS, facts, SHORT, ends=ends)
    assert as_text(parts["consumer_lag_rollups"]) == as_text(expected)


@pytest.fixture
def emitted() -> tuple[Emitter, Rows]:
    rows: Rows = {}
    return Emitter(rows), rows


def rollups(rows: Rows) -> list[dict[str, Any]]:
    """Of a story."""
    return run(STEPS, bronze(rows), SHORT)["consumer_lag_rollups"]


def test_a_minute_has_the_least_greatest_and_last_lag_of_each_queue_and_names_the_worst(
    emitted: tuple[Emitter, Rows],
) -> None:
    emitter, rows = emitted
    for at, behind in ((10, 5), (20, 90), (50, 7)):
        emitter.at(at)
        emitter.watermark(0, committed=100 - behind, max_offset=100)
        emitter.watermark(1, committed=99, max_offset=100)
    emitter.at(60)
    emitter.ship()
    first, second = rollups(rows)
    lags = ("lag_min", "lag_max", "lag_last", "reports", "is_worst", "span_s")
    assert [first[name] for name in lags] == [5, 90, 7, 3, True, 60]
    assert [second[name] for name in lags] == [1, 1, 1, 3, False, 60]
    assert first["observed_at"] - first["last_at"] == timedelta(seconds=10)


def test_nothing_is_worst_when_nothing_is_behind(emitted: tuple[Emitter, Rows]) -> None:
    emitter, rows = emitted
    emitter.at(10)
    emitter.watermark(0, committed=100, committed_state="AT_END")
    emitter.at(60)
    emitter.ship()
    (row,) = rollups(rows)
    assert (row["lag_max"], row["is_worst"]) == (0, False)


def test_an_unknown_lag_is_null_with_its_reason_and_hides_no_known_one(
    emitted: tuple[Emitter, Rows],
) -> None:
    emitter, rows = emitted
    emitter.at(10)
    emitter.watermark(0, committed=60, max_offset=100)
    emitter.at(20)
    emitter.watermark(0, committed=None, committed_state="NONE")
    emitter.at(60)
    emitter.ship()
    (row,) = rollups(rows)
    assert (row["lag_min"], row["lag_max"], row["lag_last"]) == (40, 40, None)
    assert row["unknown_reason"] == "NO_OFFSET"


def test_a_queue_whose_lag_is_unknown_is_not_worse_than_one_that_is_behind(
    emitted: tuple[Emitter, Rows],
) -> None:
    emitter, rows = emitted
    emitter.at(10)
    emitter.watermark(0, committed=None, committed_state="NONE")
    emitter.watermark(1, committed=3, committed_state="PURGED")
    emitter.at(60)
    emitter.ship()
    assert [row["is_worst"] for row in rollups(rows)] == [False, True]


def test_a_slot_is_reported_when_its_emitter_has_reported_it_whole_and_not_before(
    emitted: tuple[Emitter, Rows],
) -> None:
    emitter, rows = emitted
    emitter.at(10)
    emitter.watermark(0)
    emitter.at(59)
    emitter.ship()
    assert rollups(rows) == []
    emitter.at(3600)
    emitter.ship()
    assert sorted(row["span_s"] for row in rollups(rows)) == [60, 300, 3600]


def test_what_comes_behind_a_slot_that_is_over_counts_into_the_next(
    emitted: tuple[Emitter, Rows],
) -> None:
    """A clock that was set back, behind a minute that was reported."""
    emitter, rows = emitted
    emitter.at(30)
    emitter.watermark(0, committed=90)
    emitter.at(60)
    emitter.ship()
    emitter.at(40)
    emitter.watermark(0, committed=20)
    emitter.at(120)
    emitter.ship()
    assert [
        (row["observed_at"].minute, row["lag_max"], row["reports"])
        for row in rollups(rows)
        if row["span_s"] == 60
    ] == [(1, 10, 1), (2, 80, 1)]
