"""Lag over long ranges is read from roll-ups, and shows what the single rows would show."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from dashboards.reads.lag_series import held_cells, held_line
from engine.foundation.errors import ConfigError
from pipelines import tm
from pipelines.lake.lake import Lake
from pipelines.reading.long_ranges import LONG, SLOTS_MAX, lag_points, span_for
from pipelines.reading.moment import last_complete
from pipelines.reading.reading import OpenTables, Reading
from pipelines.tm.arguments import Asked, slots_asked
from tests.pipelines.cluster_story import ClusterStory, moment
from tests.pipelines.gold_lake import compute

END = 1000
POINTS = ["observed_at", "group", "queue_id", "lag_messages", "time_lag_ms"]


def at(second: float) -> datetime:
    """A moment of the story."""
    return datetime.fromtimestamp(moment(0) / 1_000_000 + second, UTC)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quarter of an hour in which a listener hangs for a while."""
    root = tmp_path_factory.mktemp("long") / "lake"
    story = ClusterStory(root)
    story.group("orders", ["orders-1", "orders-2"])
    story.group("idle", ["idle-1"], queues=1, rate=0)
    story.run(400, ship_every=50)
    story.freeze(story.queue("orders", 0))
    story.run(130, ship_every=50)
    story.queue("orders", 0).frozen_at = None
    story.run(END - 530, ship_every=50)
    story.writer.ship()
    compute(root)
    return root


@pytest.fixture(scope="module")
def reading(lake: Path) -> Reading:
    """Gold at the last complete cycle."""
    home = Lake.at(str(lake))
    last = last_complete(home)
    assert last is not None
    return Reading(OpenTables(home), last)


def test_a_roll_up_is_the_aggregate_of_consumer_lag_by_sql(lake: Path) -> None:
    handle = tm.connect(lake)
    for span_s in (60, 300):
        by_sql = handle.sql(
            f"""
            SELECT "group", queue_id, min(lag_messages) AS lag_min, max(lag_messages) AS lag_max,
                   max(time_lag_ms) AS time_lag_ms_max, count(*) AS reports
            FROM (SELECT *, (CAST(date_part('epoch', observed_at) AS BIGINT) + {span_s - 1})
                         / {span_s} AS slot
                  FROM consumer_lag)
            WHERE slot * {span_s} <= {moment(END) // 1_000_000}
            GROUP BY "group", queue_id, slot
            """
        ).rows
        rolled_up = handle.sql(
            f"""
            SELECT "group", queue_id, lag_min, lag_max, time_lag_ms_max, reports
            FROM consumer_lag_rollups WHERE span_s = {span_s}
            """
        ).rows
        assert rolled_up.height > 3
        assert sorted(rolled_up.rows(), key=str) == sorted(by_sql.rows(), key=str)


def test_of_each_slot_of_a_group_the_worst_queue_is_named(lake: Path) -> None:
    worst = tm.connect(lake).sql(
        "SELECT observed_at, queue_id FROM consumer_lag_rollups WHERE span_s = 60 AND is_worst"
        " AND \"group\" = 'orders' ORDER BY observed_at"
    )
    frozen = worst.rows.filter(pl.col("observed_at").is_between(at(480), at(540)))
    assert frozen["queue_id"].to_list() == [0, 0]
    assert worst.rows["observed_at"].n_unique() == worst.rows.height


def test_points_of_slots_have_the_peaks_and_the_end_of_the_rows(reading: Reading) -> None:
    rows = reading.rows("consumer_lag", since=at(0)).select(POINTS)
    points = lag_points(reading, 60, since=at(0), until=at(END)).select(POINTS)
    assert points.height * 3 < rows.height
    by_queue = ("group", "queue_id")
    for figure in (
        pl.col("lag_messages").max(),
        pl.col("time_lag_ms").max(),
        pl.col("lag_messages").last(),
    ):
        ours, theirs = (
            frame.group_by(by_queue).agg(figure).sort(by_queue) for frame in (points, rows)
        )
        assert ours.equals(theirs)


def test_cells_of_five_minutes_are_the_same_from_slots_of_a_minute(reading: Reading) -> None:
    step = timedelta(minutes=5)
    cells = [
        held_cells(frame.lazy(), until=at(END), step=step).collect()
        for frame in (
            reading.rows("consumer_lag", since=at(0)),
            lag_points(reading, 60, since=at(0), until=at(END)),
        )
    ]
    one, other = (frame.filter(pl.col("group") == "orders") for frame in cells)
    assert one.height == 4
    assert other["lag_messages"].to_list() == one["lag_messages"].to_list()
    assert other["time_lag_ms"].to_list() == one["time_lag_ms"].to_list()


def test_no_point_between_slots_shows_a_lag_that_grew_on_beyond_what_rows_say(
    reading: Reading,
) -> None:
    """A slot says when its last row came and not its first: before it nothing may be drawn on."""
    rows = reading.rows("consumer_lag", since=at(0))
    points = lag_points(reading, 60, since=at(0), until=at(END))
    calm = (pl.col("group") == "orders") & (pl.col("queue_id") == 1)
    most = []
    for frame in (rows, points):
        of_queue = frame.filter(calm)
        cells = held_cells(of_queue.lazy(), until=at(END), step=timedelta(seconds=5)).collect()
        line = held_line(of_queue, until=at(END))
        most.append((cells["time_lag_ms"].max(), line["time_lag_ms"].max()))
    assert most[0] == most[1]


def test_what_lies_behind_the_last_whole_slot_is_read_row_by_row(reading: Reading) -> None:
    points = lag_points(reading, 300, since=at(0), until=at(END)).select(POINTS)
    rows = reading.rows("consumer_lag", since=at(0)).select(POINTS)
    is_rest = pl.col("observed_at") > at(900)
    assert points.filter(is_rest).rows() == rows.filter(is_rest).rows()
    earlier = lag_points(reading, 300, since=at(0), until=at(700)).select(POINTS)
    is_rest = pl.col("observed_at").is_between(at(600), at(700), closed="right")
    assert earlier.filter(is_rest).rows() == rows.filter(is_rest).rows()
    assert earlier["observed_at"].max() == at(700)


def test_a_lake_without_roll_ups_is_read_row_by_row(lake: Path, tmp_path: Path) -> None:
    for name in ("gold/consumer_lag", "state/plans", "bronze/shipments"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(lake / name, target_is_directory=True)
    home = Lake.at(str(tmp_path))
    last = last_complete(home)
    assert last is not None
    reading = Reading(OpenTables(home), replace(last, gold={}))  # Its plans name none.
    points = lag_points(reading, 60, since=at(0), until=at(END)).select(POINTS)
    rows = reading.rows("consumer_lag", since=at(0)).select(POINTS)
    assert slots_asked(None, Asked("orders", since=at(-7 * 3600)), reading) is None
    assert sorted(points.rows(), key=str) == sorted(rows.rows(), key=str)


@pytest.mark.parametrize(
    ("hours", "span_s"), [(6, None), (7, 60), (33, 60), (34, 300), (168, 300), (169, 3600)]
)
def test_the_longer_the_range_the_longer_its_slots(hours: int, span_s: int | None) -> None:
    assert span_for(timedelta(hours=hours)) == span_s
    assert span_s is None or hours * 3600 / span_s <= SLOTS_MAX
    assert timedelta(hours=hours) > LONG or span_s is None


def test_tm_lists_lag_by_slots_where_it_is_asked_for_and_where_the_range_is_long(
    lake: Path,
) -> None:
    handle = tm.connect(lake)
    by_slot = handle.lag("orders", by="5m")
    assert by_slot.table == "consumer_lag_rollups"
    assert by_slot.df["span_s"].unique().tolist() == [300]
    assert by_slot.verdict == handle.lag("orders").verdict
    assert handle.lag("orders", since="15m").table == "consumer_lag"
    assert handle.lag("orders", since="7h").df["span_s"].unique().tolist() == [60]
    assert handle.lag("orders", since="7h", by="row").table == "consumer_lag"
    assert handle.lag("orders", since="8d").rows.equals(handle.lag("orders").rows), (
        "no hour is over"
    )
    assert by_slot.plot() is not None
    assert handle.lag("orders", since="7h").plot() is not None
    with pytest.raises(ConfigError, match="one of row, 1m, 5m, 1h"):
        handle.lag("orders", by="2m")
