"""kafka-lag-exporter's table and metrics: its own cases where they are at hand, and ours."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from pipelines.rules.lag_exporter import (
    Added,
    Collector,
    LookUpTable,
    NoPrediction,
    PartitionSample,
    Point,
    Prediction,
    time_lag_s,
)
from tests.unit.pipelines.foreign_cases import at_hand

FOREIGN = at_hand("kafka_lag_exporter_cases.json")


def table(*points: tuple[int, int], limit: int = 60) -> LookUpTable:
    made = LookUpTable(limit=limit)
    for offset, time_ms in points:
        made.add(Point(offset, time_ms))
    return made


def test_a_point_that_does_not_follow_is_refused() -> None:
    polled = table((50, 1000))
    assert polled.add(Point(60, 1000)) is Added.OUT_OF_ORDER
    assert polled.add(Point(60, 900)) is Added.OUT_OF_ORDER
    assert polled.add(Point(49, 2000)) is Added.NON_MONOTONIC
    assert polled.points == [Point(50, 1000)]


def test_the_third_equal_end_moves_the_right_edge() -> None:
    polled = table((50, 1000), (50, 2000))
    assert polled.add(Point(50, 9000)) is Added.UPDATED
    assert polled.points == [Point(50, 1000), Point(50, 9000)]
    assert polled.add(Point(51, 9500)) is Added.INSERTED


def test_the_oldest_point_goes_when_the_table_is_full() -> None:
    assert table((1, 1), (2, 2), (3, 3), limit=2).points == [Point(2, 2), Point(3, 3)]


def test_between_two_points_and_beyond_them_time_lies_on_a_line() -> None:
    polled = table((100, 0), (200, 1000), (400, 2000))
    assert polled.look_up(150) == Prediction(500.0, extrapolated=False)
    assert polled.look_up(300) == Prediction(1500.0, extrapolated=False)
    assert polled.look_up(400) is NoPrediction.LAG_IS_ZERO
    assert polled.look_up(550) == Prediction(3000.0, extrapolated=True)
    assert polled.look_up(-50) == Prediction(-1000.0, extrapolated=True)


def test_its_faults_are_kept() -> None:
    flat = table((100, 0), (100, 1000))
    assert flat.look_up(99) == Prediction(-math.inf, extrapolated=True)
    assert flat.look_up(101) == Prediction(math.inf, extrapolated=True)
    assert time_lag_s(flat.look_up(99), sampled_ms=2000) == math.inf
    assert math.isnan(time_lag_s(table((1, 1)).look_up(0), sampled_ms=9))
    assert time_lag_s(table((1, 1)).look_up(1), sampled_ms=9) == 0.0


def sample(topic: str, partition: int, committed: int | None) -> PartitionSample:
    """A poll at 200 ms of a queue whose end is 200."""
    group = None if committed is None else Point(committed, 200)
    return PartitionSample(topic, partition, 0, Point(200, 200), group, "member-1")


def test_one_partition_without_an_offset_poisons_the_group_s_worst_but_not_its_sum() -> None:
    collector = Collector("orders", {("sales", n): table((100, 100)) for n in range(2)})
    collector.collect([sample("sales", 0, 150), sample("sales", 1, None)])
    assert collector.metrics["group_sum_offset_lag", "orders"] == 50.0
    assert math.isnan(collector.metrics["group_max_offset_lag", "orders"])
    assert math.isnan(collector.metrics["group_max_time_lag_s", "orders"])
    assert collector.metrics["time_lag_s", "orders", "sales", "0", "member-1"] == 0.05


def test_what_a_poll_does_not_name_any_more_is_removed() -> None:
    collector = Collector("orders")
    assert collector.collect([sample("sales", 0, 150), sample("bills", 0, 150)]) == set()
    removed = collector.collect([sample("sales", 0, 150)])
    assert {key[0] for key in removed} == {
        "earliest_offset",
        "latest_offset",
        "group_offset",
        "offset_lag",
        "time_lag_s",
        "group_topic_sum_offset_lag",
    }
    assert list(collector.tables) == [("sales", 0)]
    assert collector.collect([]) >= {("group_sum_offset_lag", "orders")}
    assert collector.metrics == {}
    assert collector.tables == {}


if FOREIGN is not None:
    KNOWN: dict[str, Any] = json.loads(FOREIGN.read_text(encoding="utf-8"))
    BY_ID = {case["id"]: case for case in KNOWN["collector_cases"]}

    @pytest.mark.parametrize("case", KNOWN["lookup_table_cases"], ids=lambda case: case["id"])
    def test_its_own_table_cases(case: dict[str, Any]) -> None:
        polled = LookUpTable(limit=case.get("size"), retention_ms=case.get("retention_ms"))
        for step in case["steps"]:
            play(polled, step)

    def play(polled: LookUpTable, step: dict[str, Any]) -> None:
        match step["op"]:
            case "add":
                added = polled.add(
                    Point(step["offset"], step["time_ms"]), clock_ms=step.get("clock_ms", 0)
                )
                assert added.value == step.get("expected", added.value)
            case "length":
                assert len(polled) == step["expected"]
            case "most_recent":
                newest = polled.newest
                if step.get("expected") == "none":
                    assert newest is None
                    return
                assert newest is not None
                assert newest.offset == step.get("expected_offset", newest.offset)
                assert newest.time_ms == step.get("expected_time_ms", newest.time_ms)
            case "lookup":
                found = polled.look_up(step["offset"])
                if step["expected"] == "Prediction":
                    assert isinstance(found, Prediction)
                    assert found.time_ms == pytest.approx(
                        float(step["expected_time_ms"]), rel=1e-12
                    )
                else:
                    assert isinstance(found, NoPrediction)
                    assert found.value == step["expected"]
            case other:
                raise AssertionError(other)

    def collected(case: dict[str, Any]) -> Collector:
        tables, samples = {}, []
        for one in case["partitions"]:
            key = (one["topic"], one["partition"])
            tables[key] = table(*((p["offset"], p["time_ms"]) for p in one["table_before"]))
            group = one["group"] and Point(one["group"]["offset"], one["group"]["time_ms"])
            latest = Point(one["latest"]["offset"], one["latest"]["time_ms"])
            samples.append(PartitionSample(*key, one["earliest_offset"], latest, group, "m"))
        collector = Collector("g", tables)
        collector.collect(samples)
        return collector

    @pytest.mark.parametrize(
        "name",
        [
            "one_partition",
            "max_over_partitions",
            "sum_over_partitions_and_topics",
            "no_group_offset",
        ],
    )
    def test_its_own_metrics(name: str) -> None:
        case = BY_ID[name]
        metrics = collected(case).metrics
        expected = dict(case["expected"])
        if "metric_count" in expected:
            assert len(metrics) == expected.pop("metric_count")
        for one in expected.pop("partition", []):
            place = (one["topic"], str(one["partition"]))
            for field in ("earliest_offset", "latest_offset"):
                assert metrics[field, *place] == one[field]
            for field in ("group_offset", "offset_lag", "time_lag_s"):
                assert_number(metrics[field, "g", *place, "m"], one[field])
        for topic, total in expected.pop("group_topic_sum_offset_lag", {}).items():
            assert metrics["group_topic_sum_offset_lag", "g", topic] == total
        for topic, is_nan in expected.pop("group_topic_sum_offset_lag_is_nan", {}).items():
            assert math.isnan(metrics["group_topic_sum_offset_lag", "g", topic]) is is_nan
        for field, value in expected.items():
            assert_number(metrics[field, "g"], value)

    def assert_number(found: float, expected: float | str) -> None:
        assert found == pytest.approx(float(expected), nan_ok=True)

    def removed_by(case: dict[str, Any]) -> tuple[set[str], Collector]:
        before = PartitionSample("t", 0, 0, Point(200, 100), Point(180, 100), "old")
        collector = Collector("g")
        collector.collect([before])
        match case["id"]:
            case "eviction_new_consumer_id":
                removed = collector.collect(
                    [PartitionSample("t", 0, 0, Point(200, 200), Point(180, 200), "new")]
                )
            case "eviction_partition_gone":
                removed = collector.collect([])
            case "eviction_group_gone":
                other = Collector("another", collector.tables)
                other.collect([before])
                removed = set(collector.metrics) - set(other.metrics)
        return {key[0] for key in removed}, collector

    @pytest.mark.parametrize(
        "name", ["eviction_new_consumer_id", "eviction_group_gone", "eviction_partition_gone"]
    )
    def test_its_own_evictions(name: str) -> None:
        case = BY_ID[name]
        removed, collector = removed_by(case)
        ours = {
            ("per_partition_of_old_member", "time_lag"): "time_lag_s",
            ("group", "max_time_lag"): "group_max_time_lag_s",
            ("group", "max_offset_lag"): "group_max_offset_lag",
            ("group", "sum_offset_lag"): "group_sum_offset_lag",
            ("group_topic", "sum_offset_lag"): "group_topic_sum_offset_lag",
        }
        for labels, fields in case["expected_removed"].items():
            for field in fields:
                assert ours.get((labels, field), field) in removed
        if "expected_lookup_tables" in case:
            assert len(collector.tables) == case["expected_lookup_tables"]

    def test_no_case_of_the_file_is_left_out() -> None:
        assert len(KNOWN["lookup_table_cases"]) == 18
        assert len(BY_ID) == 7
