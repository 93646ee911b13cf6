"""Merging files of a table: its rows stay as they are, and a commit of another wins over it."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, TableFeatures, write_deltalake
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import SmallFiles
from pipelines.lake.tail import Place, read_tail
from pipelines.upkeep.merging import MergeRefused, SourceFile, merge_partition, slices, statistics
from pipelines.upkeep.settings import MIB

DAY = date(2026, 3, 1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("group", pa.string()),
        pa.field("observed_at", pa.timestamp("us", tz="UTC")),
        pa.field("lag", pa.int64()),
        pa.field("ranges", pa.list_(pa.struct([("from_offset", pa.int64())]))),
        pa.field("observed_date", pa.date32()),
    ]
)


def cycle(number: int, day: date = DAY) -> pa.Table:
    """What one cycle writes: a row of each of three groups."""
    moment = NOON + timedelta(seconds=5 * number)
    return pa.Table.from_pylist(
        [
            {
                "group": group,
                "observed_at": moment,
                "lag": None if group == "b" else number,
                "ranges": [{"from_offset": number}],
                "observed_date": day,
            }
            for group in ("c", "a", "b")
        ],
        SCHEMA,
    )


def append(address: str, rows: pa.Table) -> None:
    write_deltalake(address, rows, mode="append", partition_by=["observed_date"])


def as_written(address: str) -> list[str]:
    return sorted(str(row) for row in DeltaTable(address).to_pyarrow_table().to_pylist())


@pytest.fixture
def address(tmp_path: Path) -> str:
    address = str(tmp_path / "gold" / "consumer_lag")
    for number in range(6):
        append(address, cycle(number))
    append(address, cycle(0, DAY + timedelta(days=1)))
    return address


def merged(address: str, handle: DeltaTable | None = None) -> tuple[int, int]:
    lake = Lake.at(str(Path(address).parents[1]))
    handle = handle or DeltaTable(address)
    return merge_partition(SmallFiles(lake), address, handle, day=DAY, target_bytes=32 * MIB)


def test_the_files_of_a_day_become_one_in_order_with_the_same_rows(address: str) -> None:
    before = as_written(address)
    assert merged(address) == (6, 1)
    assert as_written(address) == before
    files = DeltaTable(address).file_uris()
    assert len(files) == 2, "the other day is left alone"
    [file] = [one for one in files if f"observed_date={DAY}" in one]
    with pq.ParquetFile(file) as data:
        rows = data.read(columns=["group", "observed_at"]).to_pylist()
    order = [(row["group"], row["observed_at"]) for row in rows]
    assert order == sorted(order)


def test_who_follows_the_log_sees_nothing_of_it(address: str) -> None:
    lake = Lake.at(str(Path(address).parents[1]))
    place = read_tail(lake, address, Place.start()).end
    merged(address)
    tail = read_tail(lake, address, place)
    assert [commit.operation for commit in tail.commits] == ["OPTIMIZE"]
    assert tail.files == ()
    assert not tail.commits[0].removes_rows


def test_appends_of_others_pass_and_their_rows_stay(address: str) -> None:
    handle = DeltaTable(address)
    append(address, cycle(6))
    before = as_written(address)
    assert merged(address, handle) == (6, 1)
    assert as_written(address) == before


def test_of_two_merges_of_the_same_files_the_second_gives_up(address: str) -> None:
    before, late = as_written(address), DeltaTable(address)
    merged(address)
    files = sorted(Path(address).rglob("*.parquet"))
    with pytest.raises(MergeRefused, match="a commit of another"):
        merged(address, late)
    assert as_written(address) == before
    assert sorted(Path(address).rglob("*.parquet")) == files, "it leaves no file behind"


def test_rows_dropped_meanwhile_do_not_come_back(address: str) -> None:
    late = DeltaTable(address)
    DeltaTable(address).delete(f"observed_date = '{DAY}'")
    with pytest.raises(MergeRefused):
        merged(address, late)
    assert DeltaTable(address).count() == 3


def test_a_merge_gives_up_when_the_table_became_another_one_meanwhile(address: str) -> None:
    late = DeltaTable(address)
    DeltaTable(address).alter.add_columns([Field("trend", PrimitiveType("string"))])
    with pytest.raises(MergeRefused, match="a commit of another"):
        merged(address, late)
    assert len(DeltaTable(address).file_uris()) == 7


def test_a_table_whose_files_hold_rows_that_are_deleted_is_not_merged(address: str) -> None:
    """With deletion vectors a file has rows that the table has no more: they would come back."""
    handle = DeltaTable(address)
    handle.alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    before = sorted(DeltaTable(address).file_uris())
    with pytest.raises(MergeRefused, match="features that are not merged"):
        merged(address)
    assert sorted(DeltaTable(address).file_uris()) == before


def test_a_file_that_has_lost_rows_is_reported_and_not_merged_as_if_it_were_whole(
    address: str,
) -> None:
    file = next(one for one in DeltaTable(address).file_uris() if f"observed_date={DAY}" in one)
    with pq.ParquetFile(file) as data:
        rows = data.read()
    pq.write_table(rows.slice(1), file)
    with pytest.raises(LakeError, match="has not the rows that the log names"):
        merged(address)
    assert len(DeltaTable(address).file_uris()) == 7


def test_a_column_that_came_later_is_null_in_older_rows(address: str) -> None:
    write_deltalake(
        address,
        cycle(6).append_column("trend", pa.array(["GROWING"] * 3)),
        mode="append",
        schema_mode="merge",
    )
    before = as_written(address)
    assert merged(address) == (7, 1)
    assert as_written(address) == before
    trends = DeltaTable(address).to_pyarrow_table()["trend"].to_pylist()
    assert sorted(trends, key=str) == ["GROWING"] * 3 + [None] * 21


def test_what_is_known_of_a_file_is_what_delta_rs_says(tmp_path: Path) -> None:
    address = str(tmp_path / "table")
    append(address, cycle(1))
    entry = (tmp_path / "table" / "_delta_log" / f"{0:020d}.json").read_text()
    [add] = [json.loads(line)["add"] for line in entry.splitlines() if '"add"' in line]
    theirs = json.loads(add["stats"])
    ours = statistics(cycle(1).drop_columns("observed_date"))
    assert ours["numRecords"] == theirs["numRecords"]
    for part in ("minValues", "maxValues"):
        for name in ("group", "lag"):
            assert ours[part][name] == theirs[part][name]
        assert moment(ours[part]["observed_at"]) == moment(theirs[part]["observed_at"])
    assert ours["nullCount"]["lag"] == theirs["nullCount"]["lag"] == 1


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_files_are_skipped_by_their_statistics(address: str) -> None:
    merged(address)
    bounds = pa.table(DeltaTable(address).get_add_actions(flatten=True)).to_pylist()
    [of_day] = [row for row in bounds if row["num_records"] == 18]
    assert (of_day["min.group"], of_day["max.group"]) == ("a", "c")
    assert of_day["min.observed_at"].astimezone(UTC) == NOON
    lake = Lake.at(str(Path(address).parents[1]))
    assert lake.table(address).count() == 21


FILES = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 50), st.integers(0, 99)), max_size=40)


@given(files=FILES)
def test_slices_fit_hold_no_file_twice_and_follow_time(files: list[tuple[int, int, int]]) -> None:
    sources = [
        SourceFile(f"file-{number:03d}", size, rows, begins)
        for number, (size, rows, begins) in enumerate(files)
    ]
    found = slices(sources, 10, rows_max=100)
    paths = [file.path for one in found for file in one]
    assert len(paths) == len(set(paths))
    for one in found:
        assert len(one) > 1
        assert sum(file.size_bytes for file in one) <= 10
        assert sum(file.rows for file in one) <= 100
    order = [file.begins for one in found for file in one]
    assert order == sorted(order)
    assert all(file.size_bytes < 5 for one in found for file in one)
