"""What is true of an interval that is open stays readable, however long ago it was reported."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.tail import Place, read_tail
from pipelines.reading.catalogue import BY_NAME, GOLD_TABLES
from pipelines.reading.moment import Moment, Reached
from pipelines.reading.reading import OpenTables, Reading
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import Upkeep
from tests.lake_story import BROKER, CLUSTER, EMITTER, append_rows

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
KEPT_DAYS = 30
INTERVALS = [table.name for table in GOLD_TABLES if table.revised]


def day(back: int) -> datetime:
    """A moment so many days ago."""
    return NOW - timedelta(days=back)


def revision(name: str, window: str, number: int, begin: int, **values: Any) -> dict[str, Any]:
    """A row of a table of intervals, reported so many days ago; `opened` and `closed` likewise."""
    opened, closed = values["opened"], values.get("closed")
    common = {
        "window_id": window,
        "revision": number,
        "state": "OPEN" if closed is None else "CLOSED",
        "observed_at": day(begin),
        "observed_date": day(begin).date(),
        "valid_from": day(begin),
        "opened_at": day(opened),
        "closed_at": None if closed is None else day(closed),
        "cluster": CLUSTER,
        "broker": BROKER,
        "group": "billing",
        "topic": "orders",
        "emitter": EMITTER,
    }
    needed = {
        column.name: _something(column.type)
        for column in arrow_schema(BY_NAME[name].columns)
        if not column.nullable and column.name not in common
    }
    return {**needed, **common}


def _something(kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return "said"
    if pa.types.is_boolean(kind):
        return False
    return [] if pa.types.is_list(kind) else 1


def write(lake: Lake, name: str, *rows: dict[str, Any]) -> None:
    for row in rows:  # A commit a row, as cycles make them.
        append_rows(lake.gold(name), BY_NAME[name].columns, [row], "observed_date")


def tend(lake: Lake, name: str, now: datetime = NOW) -> list[str]:
    said: list[str] = []
    upkeep = Upkeep(table_days={f"gold/{name}": KEPT_DAYS})
    Maintainer(lake, upkeep, said.append).round(now)
    return said


def windows(lake: Lake, name: str, at: datetime = NOW) -> pl.DataFrame:
    moment = Moment("run", 1, (Reached(EMITTER, at, 2**62),))
    return Reading(OpenTables(lake), moment).windows(name).drop("observed_date")


def days_of(lake: Lake, name: str) -> list[date]:
    parts = DeltaTable(lake.gold(name)).partitions()
    return sorted(date.fromisoformat(str(one["observed_date"])) for one in parts)


@pytest.fixture(params=INTERVALS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path, name: str) -> Lake:
    """Four intervals of forty days ago: one that stands as it was reported, one that was reported
    anew the day after, one that ended before what is kept, and one that ended in it."""
    lake = Lake.at(str(tmp_path))
    write(
        lake,
        name,
        revision(name, "stands", 1, 40, opened=40),
        revision(name, "reported anew", 1, 40, opened=40),
        revision(name, "reported anew", 2, 39, opened=40),
        revision(name, "ended", 1, 40, opened=40),
        revision(name, "ended", 2, 38, opened=40, closed=38),
        revision(name, "ended lately", 1, 40, opened=40),
        revision(name, "ended lately", 2, 5, opened=40, closed=5),
        revision(name, "of today", 1, 0, opened=0),
    )
    return lake


def test_what_is_open_is_shown_as_before_and_what_ended_is_gone(lake: Lake, name: str) -> None:
    before = windows(lake, name)

    tend(lake, name)

    after = windows(lake, name)
    assert after.equals(before.filter(pl.col("window_id") != "ended"))
    assert min(days_of(lake, name)) >= day(KEPT_DAYS + 1).date()
    assert DeltaTable(lake.gold(name)).count() == 5, "one row each, and two of what ended lately"


def test_what_was_open_then_is_shown_as_open_then(lake: Lake, name: str) -> None:
    """As of a day that is kept, on which it had not ended yet."""
    before = windows(lake, name, day(20))

    tend(lake, name)

    assert windows(lake, name, day(20)).equals(before.filter(pl.col("window_id") != "ended"))


def test_what_ends_at_last_goes_with_its_end(lake: Lake, name: str) -> None:
    tend(lake, name)
    write(lake, name, revision(name, "stands", 2, 0, opened=40, closed=0))
    assert "CLOSED" in windows(lake, name).filter(pl.col("window_id") == "stands")["state"]

    for later in range(1, 2 * KEPT_DAYS, 7):
        now = NOW + timedelta(days=later)
        tend(lake, name, now)
        left = windows(lake, name, now)
        state = left.filter(pl.col("window_id") == "stands")["state"]
        assert "OPEN" not in state, "it never opens again"

    assert set(left["window_id"]) == {"reported anew", "of today"}


def test_a_round_behind_has_nothing_to_do(lake: Lake, name: str) -> None:
    assert any("dropped" in line for line in tend(lake, name))
    assert [line for line in tend(lake, name) if "dropped" in line] == []


def test_who_follows_the_table_gets_nothing_again(lake: Lake, name: str) -> None:
    place = read_tail(lake, lake.gold(name), Place.start()).end

    tend(lake, name)

    assert read_tail(lake, lake.gold(name), place).files == ()
