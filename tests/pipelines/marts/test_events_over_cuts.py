"""The marts that follow events: the same rows however cycles are cut."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipelines.marts import (
    dead_letters,
    duplicate_risk_windows,
    emitter_health,
    offset_violations,
    ownership,
    rebalances,
)
from pipelines.marts.declared import in_order
from tests.amounts import examples
from tests.pipelines import partition
from tests.pipelines.gold_lake import SHORT
from tests.pipelines.marts.event_stories import Operation, bronze_of, played, stories
from tests.pipelines.marts.literal_facts import EXPOSURES

STEPS = in_order(
    [
        EXPOSURES,
        dead_letters.MART,
        duplicate_risk_windows.MART,
        emitter_health.MART,
        offset_violations.MART,
        ownership.MART,
        rebalances.MART,
    ]
)
BROKERS = (("west", "broker-a"), ("west", "broker-b"))


def by_text(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own, all columns."""
    return sorted(str(sorted(row.items())) for row in rows)


@examples(12, in_full=60)
@given(stories(), st.data())
def test_any_cut_of_the_shipments_gives_the_same_rows(
    story: list[Operation], data: st.DataObject
) -> None:
    bronze = bronze_of(*played(story, BROKERS))
    count = len(partition.horizons_of(bronze))
    ends = data.draw(st.one_of(st.just(range(count)), st.sets(st.integers(0, count - 1))))
    whole = partition.run(STEPS, bronze, SHORT)
    parts = partition.run(STEPS, bronze, SHORT, ends=ends)
    for table, rows in whole.items():
        assert by_text(parts[table]) == by_text(rows), table


@examples(10, in_full=60)
@given(stories())
def test_brokers_and_clusters_of_equal_names_never_mix(story: list[Operation]) -> None:
    """Each cluster has a broker-a whose groups, topics and clients bear the same names."""
    writers = played(story, (("west", "broker-a"), ("east", "broker-a")))
    together = partition.run(STEPS, bronze_of(*writers), SHORT)
    alone = [partition.run(STEPS, bronze_of(writer), SHORT) for writer in writers]
    for table, rows in together.items():
        apart = [row for gold in alone for row in gold[table]]
        assert by_text(rows) == by_text(apart), table
