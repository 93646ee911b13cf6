"""The text of metrics: whatever names hold, Prometheus' own parser reads it back."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from engine.broker.metrics.exposition import (
    TURN_SERIES,
    Family,
    LeftOut,
    Series,
    histogram,
    written,
)
from engine.broker.stats.broker_stats import SIZE_BOUNDS, BrokerStats

# The parser under test's control splits lines as Python does, at more ends than the format has.
names = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20)


def text(*families: Family, series_max: int = 100) -> str:
    return "".join(written(families, series_max=series_max, left_out=LeftOut()))


@given(names, names, st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 2**62))
def test_labels_and_values_come_back(topic: str, group: str, value: float) -> None:
    awkward = {"topic": f'{topic}\n"\\', "consumer_group": group}
    (family,) = text_string_to_metric_families(
        text(Family("lag", "gauge", 'a\\b\n"c"', [Series(awkward, value)]))
    )
    (sample,) = family.samples
    assert sample.labels == awkward
    assert sample.value == value
    assert family.documentation == 'a\\b\n"c"'


def test_what_finds_no_room_is_counted_and_what_is_long_comes_in_pieces() -> None:
    many = [Series({"topic": str(number)}, number) for number in range(1000)]
    left_out = LeftOut()
    pieces = list(written([Family("a", "gauge", "A", many)], series_max=700, left_out=left_out))
    assert left_out.by_family == {"a": 300}
    assert max(piece.count("\n") for piece in pieces) <= TURN_SERIES
    (family,) = text_string_to_metric_families("".join(pieces))
    assert len(family.samples) == 700


def test_sizes_fall_into_rocketmqs_buckets() -> None:
    traffic = BrokerStats(lambda: 0)
    for size_bytes in (1, 1024, 1025, 4096, 4097, 5 << 20):
        traffic.put("t", 0, 1, size_bytes)
    traffic.put("t", 0, 3, 300)
    assert traffic.size_counts() == [5, 2, 1, 0, 0, 0, 1]
    series = histogram({}, SIZE_BOUNDS, traffic.size_counts(), traffic.put_total.size_bytes)
    (family,) = text_string_to_metric_families(text(Family("size", "histogram", "S", series)))
    samples = [(sample.labels.get("le"), sample.value) for sample in family.samples]
    assert samples[:2] == [("1024.0", 5), ("4096.0", 7)] or samples[:2] == [
        ("1024", 5),
        ("4096", 7),
    ]
    assert samples[-3:] == [("+Inf", 9), (None, traffic.put_total.size_bytes), (None, 9)]


def test_no_piece_is_waited_for_longer_than_for_so_many_looks() -> None:
    """What finds no room, and what has no series, is looked at all the same."""
    looks = 0

    def looked_at(has_series: bool) -> Iterator[Series | None]:
        nonlocal looks
        for number in range(10 * TURN_SERIES):
            looks += 1
            yield Series({"topic": str(number)}, number) if has_series else None

    for family in (
        Family("beyond_the_limit", "gauge", "A", looked_at(has_series=True)),
        Family("without_series", "gauge", "B", looked_at(has_series=False)),
    ):
        before = looks
        for _ in written([family], series_max=5, left_out=LeftOut()):
            assert looks - before <= TURN_SERIES
            before = looks
