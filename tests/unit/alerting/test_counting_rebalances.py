"""Changes of members are counted once each, whatever is read again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pipelines.alerting.metrics.page import Rebalances
from pipelines.reading.incremental import Followed
from pipelines.reading.moment import Moment, Reached
from pipelines.reading.reading import Reading

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PLACE = {"cluster": "c", "broker": "b"}
GROUPS = pl.DataFrame([{**PLACE, "group": "pay"}, {**PLACE, "group": "bill"}])


def change(emitter: str, seq: int, group: str = "pay", kind: str = "JOINED") -> dict[str, Any]:
    return {**PLACE, "emitter": emitter, "seq": seq, "group": group, "kind": kind}


class Told:
    """What gold has of late, as a look finds it."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self.moment = Moment("r", 1, (Reached("c/b/0", NOON, 1),), NOON)
        self._rows = pl.DataFrame(list(rows) or [change("e", 0)]).head(len(rows))

    def recent(self, *_: object) -> pl.DataFrame:
        """The rows that are followed."""
        return self._rows


def counts(counter: Rebalances, *rows: dict[str, Any]) -> dict[str, int]:
    rows_in_gold = Told(*rows)
    found = counter.count(cast(Followed, rows_in_gold), cast(Reading, rows_in_gold), GROUPS)
    return dict(found.select("group", "changes").iter_rows())


def test_a_counter_begins_at_0_and_goes_up_with_each_change_of_members() -> None:
    counter = Rebalances()
    before = [change("c/b/0", 5), change("c/b/0", 6)]
    assert counts(counter, *before) == {"pay": 0, "bill": 0}
    after = [*before, change("c/b/0", 8, kind="EXPIRED"), change("c/b/0", 9, "bill", "LEFT")]
    assert counts(counter, *after) == {"pay": 1, "bill": 1}
    assert counts(counter, *after) == {"pay": 1, "bill": 1}
    assert counts(counter, *after[2:]) == {"pay": 1, "bill": 1}


def test_what_is_no_change_of_members_does_not_count() -> None:
    counter = Rebalances()
    counts(counter)
    found = counts(counter, change("c/b/0", 1, kind="CLIENT_ID_SHARED"))
    assert found == {"pay": 0, "bill": 0}


def test_an_emitter_that_comes_later_is_counted_from_its_first_row() -> None:
    counter = Rebalances()
    counts(counter, change("c/b/0", 500))
    assert counts(counter, change("c/b/0", 500), change("c/b/1", 1))["pay"] == 1


@given(
    st.lists(st.integers(1, 40), unique=True).map(sorted),
    st.lists(st.integers(0, 40), max_size=6).map(sorted),
    st.integers(0, 10),
)
def test_each_change_counts_once_however_it_is_looked_at(
    seqs: list[int], looks: list[int], overlap: int
) -> None:
    """Each look sees what came up to some number, and again some that it has seen before."""
    counter = Rebalances()
    counts(counter)
    seen = 0
    for reached in [*looks, 40]:
        rows = [change("e", seq) for seq in seqs if seen - overlap < seq <= reached]
        found = counts(counter, *rows)["pay"]
        seen = max(seen, reached)
        assert found == sum(seq <= seen for seq in seqs)
