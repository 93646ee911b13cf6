"""kafka-lag-exporter's time lag: when was this offset the end of the log, by linear interpolation?

Place in the walk: beside `time_lag`, which is ours, for comparison (docs/time-lag.md). A table of
polled (end offset, time) points per partition; a group's offset is looked up in it.

Invariant: its faults are kept. A table of one flat line predicts plus or minus infinity, too few
points are NaN and poison a maximum, a queue made again is refused until its end has passed the old
one. Rules as of kafka-lag-exporter at 3fcb3c79. Absent on purpose: clocks, Redis itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final

POINTS: Final = 60
"""Points that a table in memory keeps."""


@dataclass(frozen=True, slots=True)
class Point:
    """A poll: the end of the log, and when."""

    offset: int
    time_ms: int


class Added(Enum):
    """What became of a point."""

    INSERTED = "Inserted"
    UPDATED = "Updated"
    """The third equal end in a row: the right edge of the flat line moves."""
    OUT_OF_ORDER = "OutOfOrder"
    """Not later than the newest point: refused."""
    NON_MONOTONIC = "NonMonotonic"
    """Below the newest point: refused."""


class NoPrediction(Enum):
    """Why a look-up has no time."""

    LAG_IS_ZERO = "LagIsZero"
    TOO_FEW_POINTS = "TooFewPoints"


@dataclass(frozen=True, slots=True)
class Prediction:
    """When the offset was the end of the log, by their line; may be infinite, or NaN."""

    time_ms: float
    extrapolated: bool


class LookUpTable:
    """Points of one partition: the last `limit` of them, or those of the last `retention_ms`."""

    def __init__(self, *, limit: int | None = POINTS, retention_ms: int | None = None) -> None:
        self._limit = limit
        self._retention_ms = retention_ms
        self.points: list[Point] = []

    def __len__(self) -> int:
        return len(self.points)

    @property
    def newest(self) -> Point | None:
        """The last point that was accepted."""
        return self.points[-1] if self.points else None

    def add(self, point: Point, *, clock_ms: int = 0) -> Added:
        """Take a point, unless it does not follow the newest one."""
        points = self.points
        if points and point.time_ms <= points[-1].time_ms:
            return Added.OUT_OF_ORDER
        if points and point.offset < points[-1].offset:
            return Added.NON_MONOTONIC
        added = Added.INSERTED
        if [one.offset for one in points[-2:]] == [point.offset, point.offset]:
            points[-1] = point
            added = Added.UPDATED
        else:
            if self._limit is not None and len(points) == self._limit:
                del points[0]
            points.append(point)
        if self._retention_ms is not None:
            oldest_ms = clock_ms - self._retention_ms
            self.points = [one for one in points if one.time_ms >= oldest_ms]
        return added

    def look_up(self, offset: int) -> Prediction | NoPrediction:
        """When was this offset the end? Between neighbours, or on the line of the whole table."""
        points = self.points
        if points and offset == points[-1].offset:
            return NoPrediction.LAG_IS_ZERO
        if len(points) < 2:
            return NoPrediction.TOO_FEW_POINTS
        for left, right in reversed(list(pairwise(points))):
            if left.offset <= offset <= right.offset:
                return Prediction(_on_line(left, right, offset), extrapolated=False)
        return Prediction(_on_line(points[0], points[-1], offset), extrapolated=True)


def _on_line(left: Point, right: Point, offset: int) -> float:
    rise = right.offset - left.offset
    run = (right.offset - offset) * float(right.time_ms - left.time_ms)
    if rise == 0:  # As a division of floating-point numbers has it.
        return math.nan if run == 0 else -math.copysign(math.inf, run)
    return right.time_ms - run / rise


def time_lag_s(found: Prediction | NoPrediction, *, sampled_ms: int) -> float:
    """Seconds behind; NaN when there are too few points."""
    match found:
        case NoPrediction.LAG_IS_ZERO:
            return 0.0
        case NoPrediction.TOO_FEW_POINTS:
            return math.nan
    assert isinstance(found, Prediction)
    return (sampled_ms - found.time_ms) / 1000


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """What one poll of the cluster says of one partition and one group."""

    topic: str
    partition: int
    earliest_offset: int
    latest: Point
    group: Point | None
    """The group's committed offset, and when it was read; null when it has none."""
    consumer_id: str = ""


MetricKey = tuple[str, ...]
"""Name of the metric, then its labels."""


@dataclass(slots=True)
class Collector:
    """Metrics of one group, poll after poll."""

    group: str
    tables: dict[tuple[str, int], LookUpTable] = field(default_factory=dict)
    metrics: dict[MetricKey, float] = field(default_factory=dict)

    def collect(self, samples: Iterable[PartitionSample]) -> set[MetricKey]:
        """Take a poll, make `metrics` anew; the keys that are no more."""
        listed = list(samples)
        before = set(self.metrics)
        found: dict[MetricKey, float] = {}
        offset_lags: list[float] = []
        time_lags: list[float] = []
        by_topic: dict[str, list[float]] = {}
        for sample in listed:
            offset_lag, time_lag = self._lags(sample)
            found |= self._of_partition(sample, offset_lag, time_lag)
            offset_lags.append(offset_lag)
            time_lags.append(time_lag)
            by_topic.setdefault(sample.topic, []).append(offset_lag)
        if listed:
            found["group_max_offset_lag", self.group] = _worst(offset_lags)
            found["group_max_time_lag_s", self.group] = _worst(time_lags)
            found["group_sum_offset_lag", self.group] = _sum(offset_lags)
        for topic, lags in by_topic.items():
            found["group_topic_sum_offset_lag", self.group, topic] = _sum(lags)
        polled = {(sample.topic, sample.partition) for sample in listed}
        self.tables = {key: table for key, table in self.tables.items() if key in polled}
        self.metrics = found
        return before - set(found)

    def _lags(self, sample: PartitionSample) -> tuple[float, float]:
        table = self.tables.setdefault((sample.topic, sample.partition), LookUpTable())
        table.add(sample.latest)  # The newest end counts before anything is looked up.
        if sample.group is None:
            return math.nan, math.nan
        found = table.look_up(sample.group.offset)
        offset_lag = float(max(0, sample.latest.offset - sample.group.offset))
        return offset_lag, time_lag_s(found, sampled_ms=sample.group.time_ms)

    def _of_partition(
        self, sample: PartitionSample, offset_lag: float, time_lag: float
    ) -> dict[MetricKey, float]:
        place = (sample.topic, str(sample.partition))
        member = (self.group, *place, sample.consumer_id)
        return {
            ("earliest_offset", *place): float(sample.earliest_offset),
            ("latest_offset", *place): float(sample.latest.offset),
            ("group_offset", *member): float(sample.group.offset) if sample.group else math.nan,
            ("offset_lag", *member): offset_lag,
            ("time_lag_s", *member): time_lag,
        }


def _worst(values: list[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else max(values)


def _sum(values: list[float]) -> float:
    return math.fsum(value for value in values if not math.isnan(value))
