"""A message is at risk once, however many windows of duplicate risk are about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pipelines import tm
from pipelines.reading.at_risk import at_risk, at_risk_by
from pipelines.reading.catalogue import DUPLICATE_RISK_WINDOWS
from tests.gold_lake import write_gold_lake
from tests.lake_story import append_rows


def windows(*ranges: tuple[str, int, int, int]) -> pl.DataFrame:
    """Of each its group, queue and range."""
    rows = [
        {
            "cluster": "c",
            "broker": "b",
            "group": group,
            "topic": "t",
            "queue_id": queue,
            "from_offset": begin,
            "to_offset": end,
        }
        for group, queue, begin, end in ranges
    ]
    return pl.DataFrame(rows, schema_overrides={"from_offset": pl.Int64, "to_offset": pl.Int64})


def test_two_windows_about_one_range_are_that_many_messages() -> None:
    """The exposure of a queue that stood, and its reader's departure."""
    assert at_risk(windows(("g", 0, 203, 642), ("g", 0, 203, 642))) == 439
    assert at_risk(windows(("g", 0, 203, 642), ("g", 1, 203, 642))) == 878
    assert at_risk(windows(("g", 0, 1, 5)).clear()) == 0


TOLD = st.lists(
    st.tuples(st.sampled_from("gh"), st.integers(0, 1), st.integers(0, 20), st.integers(0, 20)).map(
        lambda one: (one[0], one[1], one[2], one[2] + one[3])
    ),
    min_size=1,
    max_size=12,
)


@given(TOLD)
def test_it_is_the_number_of_different_messages(ranges: list[tuple[str, int, int, int]]) -> None:
    messages = {(g, queue, at) for g, queue, begin, end in ranges for at in range(begin, end)}
    assert at_risk(windows(*ranges)) == len(messages)
    by_group = dict(at_risk_by(windows(*ranges), "group").iter_rows())
    assert by_group == {g: sum(one[0] == g for one in messages) for g in {one[0] for one in ranges}}


def test_the_answer_about_duplicates_counts_them_once(tmp_path: Path) -> None:
    lake = write_gold_lake(tmp_path / "lake")
    handle = tm.connect(lake.root)
    newest = handle.duplicates("ledger").rows.filter(pl.col("cause") == "CONSUMER_CRASH")
    row: dict[str, Any] = newest.row(-1, named=True) | {
        "state": "OPEN",
        "outcome": "POSSIBLE",
        "closed_at": None,
        "revision": 1,
        "from_offset": 1_000,
        "to_offset": 1_007,
        "at_risk_messages": 7,
    }
    twice = [row | {"window_id": name} for name in ("exposed", "departed")]
    address = lake.gold(DUPLICATE_RISK_WINDOWS.name)
    append_rows(address, DUPLICATE_RISK_WINDOWS.columns, twice, "observed_date")
    said = tm.connect(lake.root).duplicates("ledger").verdict
    assert "; 7 messages are at risk in 2 windows still open." in said
