"""Intervals are followed from cycle to cycle: all there ever were are looked through once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.foundation.errors import LakeError
from engine.telemetry.tables import ColumnType
from pipelines.lake.lake import Lake
from pipelines.reading.catalogue import STALLED_WINDOWS
from pipelines.reading.incremental import Followed
from pipelines.reading.moment import last_complete
from pipelines.reading.reading import OpenTables, Reading
from tests.lake_story import START, append_rows, begin_run, complete_cycle

ONE, TWO, LATE = "c/one/0", "c/two/0", "c/late/0"
FILLED: dict[ColumnType, Any] = {
    ColumnType.STRING: "x",
    ColumnType.INT: 1,
    ColumnType.LONG: 1,
    ColumnType.BOOLEAN: False,
    ColumnType.TIMESTAMP: START,
    ColumnType.DATE: START.date(),
}


def moment(second: int) -> datetime:
    return START + timedelta(seconds=second)


def revision(
    emitter: str, seq: int, window: str, *, at: int, opened: int, closed: bool = False, nth: int = 1
) -> dict[str, Any]:
    """A row of an interval as it is known at a second."""
    row = {one.name: FILLED[one.type] for one in STALLED_WINDOWS.columns if not one.nullable}
    return row | {
        "emitter": emitter,
        "seq": seq,
        "window_id": window,
        "revision": nth,
        "state": "CLOSED" if closed else "OPEN",
        "opened_at": moment(opened),
        "closed_at": moment(at) if closed else None,
        "valid_from": moment(at),
        "observed_at": moment(at),
        "observed_date": moment(at).date(),
    }


class Told:
    """A lake whose intervals are written cycle by cycle."""

    def __init__(self, folder: Path) -> None:
        self.lake = Lake.at(str(folder))
        self.tables = OpenTables(self.lake)
        begin_run(self.lake)

    def cycle(self, reached: dict[str, int], rows: Sequence[dict[str, Any]]) -> Reading:
        """One cycle up to these seconds of its emitters; a second is a seq."""
        columns = STALLED_WINDOWS.columns
        append_rows(self.lake.gold("stalled_windows"), columns, rows, "observed_date")
        complete_cycle(self.lake, {name: (moment(at), at) for name, at in reached.items()})
        found = last_complete(self.lake)
        assert found is not None
        self.tables.follow(found.run_id)
        return Reading(self.tables, found)

    def files(self) -> list[Path]:
        return sorted(Path(self.lake.gold("stalled_windows")).rglob("*.parquet"))


@pytest.fixture
def written(tmp_path: Path) -> Told:
    return Told(tmp_path / "lake")


@pytest.mark.parametrize("seed", range(3))
def test_what_is_followed_is_what_would_be_read_anew(written: Told, seed: int) -> None:
    """Windows of two emitters open, are revised, close and open again; one emitter is behind for a
    while, one falls silent and comes back, a third comes late with what is old, rows come before
    the cycle that takes them, and a rule looks further back than before.
    """
    chance, followed = random.Random(seed), Followed()
    reached, windows = {ONE: 0, TWO: 0}, dict[str, dict[str, Any]]()
    for number in range(14):
        rows = []
        if number == 8:
            reached[LATE] = 1
            rows.append(revision(LATE, 1, "late", at=1, opened=1))
        for emitter in [one for one in reached if chance.random() < 0.8]:
            before, at = reached[emitter], reached[emitter] + chance.choice((10, 60, 1000))
            reached[emitter] = at
            for _ in range(chance.randrange(3)):
                ahead = at + chance.choice((0, 0, 5))  # Of some the cycle has not come so far.
                name = f"{emitter} {chance.randrange(4)}"
                last = windows.get(name, {"opened": before, "nth": 0})
                last |= {"nth": last["nth"] + 1, "closed": chance.random() < 0.4}
                windows[name] = last
                rows.append(revision(emitter, ahead, name, at=ahead, **last))
        reading = written.cycle(reached, rows)
        present = reading.moment.present
        assert present is not None
        begin = present - timedelta(seconds=3600 if number == 10 else 300)
        anew = reading.windows("stalled_windows", since=begin, until=present)
        found = followed.windows("stalled_windows", begin, reading)
        assert (
            found.select("window_id", "revision", "state", "closed_at").rows()
            == anew.select("window_id", "revision", "state", "closed_at").rows()
        ), number
        assert found.columns == anew.columns


def test_what_there_ever_was_is_not_read_again(written: Told) -> None:
    followed = Followed()
    first = written.cycle(
        {ONE: 10},
        [
            revision(ONE, 3, "open", at=3, opened=3),
            revision(ONE, 4, "over", at=4, opened=3, closed=True),
        ],
    )
    assert followed.windows("stalled_windows", moment(10), first)["window_id"].to_list() == ["open"]
    (old,) = written.files()
    old.unlink()
    second = written.cycle({ONE: 20}, [revision(ONE, 12, "new", at=12, opened=12)])
    found = followed.windows("stalled_windows", moment(20), second)
    assert found["window_id"].to_list() == ["open", "new"]
    with pytest.raises(LakeError):
        second.windows("stalled_windows", since=moment(20))
