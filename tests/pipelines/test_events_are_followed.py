"""Events of the last minutes are followed from cycle to cycle, and never read again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.reading.catalogue import REBALANCES
from pipelines.reading.incremental import Followed
from pipelines.reading.moment import last_complete
from pipelines.reading.reading import OpenTables, Reading
from tests.lake_story import START, append_rows, begin_run, complete_cycle

ONE, TWO = "c/one/0", "c/two/0"


class Told:
    """A lake into which events are written cycle by cycle."""

    def __init__(self, folder: Path) -> None:
        self.lake = Lake.at(str(folder))
        self.tables = OpenTables(self.lake)
        begin_run(self.lake)

    def cycle(self, at_s: int, *events: tuple[str, int, int]) -> Reading:
        """One cycle up to a second: events of (emitter, seq, second)."""
        self.write([event(*one) for one in events])
        reached = {one: (moment(at_s), at_s) for one in (ONE, TWO)}
        complete_cycle(self.lake, reached)
        found = last_complete(self.lake)
        assert found is not None
        self.tables.follow(found.run_id)
        return Reading(self.tables, found)

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        append_rows(self.lake.gold("rebalances"), REBALANCES.columns, rows, "observed_date")

    def files(self) -> list[Path]:
        return sorted(Path(self.lake.gold("rebalances")).rglob("*.parquet"))


def moment(second: int) -> datetime:
    return START + timedelta(seconds=second)


def event(emitter: str, seq: int, second: int) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(REBALANCES.column_names)
    at = moment(second)
    fields = {"observed_at": at, "observed_date": at.date(), "emitter": emitter, "seq": seq}
    texts = {"cluster": "c", "broker": "b", "group": "g", "client_id": "x", "kind": "JOINED"}
    numbers = {"generation": 1, "members_before": 0, "members_after": 1, "inferred": False}
    known = {**fields, **texts, **numbers}
    return {name: known.get(name) for name in row}


@pytest.fixture
def written(tmp_path: Path) -> Told:
    return Told(tmp_path / "lake")


def test_what_is_followed_is_what_would_be_read_anew(written: Told) -> None:
    followed = Followed()
    cycles: list[tuple[int, list[tuple[str, int, int]]]] = [
        (10, [(ONE, 1, 3), (TWO, 1, 4)]),
        (20, [(ONE, 12, 15), (TWO, 13, 8)]),  # The second comes late: older than the last cycle.
        (30, []),
        (40, [(ONE, 31, 33), (ONE, 99, 39)]),  # Of the last one the cycle has not come so far.
        (100, [(TWO, 98, 90)]),
    ]
    for at_s, events in cycles:
        reading = written.cycle(at_s, *events)
        begin = moment(at_s - 60)
        found = followed.recent("rebalances", begin, reading)
        assert found.equals(reading.rows("rebalances", since=begin))
    assert found["seq"].to_list() == [98]


def test_a_file_with_nothing_new_is_not_opened_again(written: Told) -> None:
    followed, begin = Followed(), moment(-60)
    first = written.cycle(10, (ONE, 1, 3), (TWO, 2, 4))
    assert followed.recent("rebalances", begin, first).height == 2
    (old,) = written.files()
    old.unlink()
    second = written.cycle(20, (ONE, 12, 15))
    assert followed.recent("rebalances", begin, second)["seq"].to_list() == [1, 2, 12]
    with pytest.raises(LakeError):
        second.rows("rebalances", since=begin)


def test_a_rule_that_looks_further_back_than_before_reads_anew(written: Told) -> None:
    followed = Followed()
    written.cycle(10, (ONE, 1, 3))
    reading = written.cycle(100, (ONE, 50, 90))
    assert followed.recent("rebalances", moment(60), reading)["seq"].to_list() == [50]
    assert followed.recent("rebalances", moment(0), reading)["seq"].to_list() == [1, 50]
    assert followed.recent("rebalances", moment(60), reading)["seq"].to_list() == [50]
