"""Reading the new files of a Delta table from its log: each row once, whatever upkeep does."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.tail import (
    AddedFile,
    Bounds,
    LogTruncated,
    Place,
    Tail,
    begins_by,
    may_hold,
    newest_place,
    parse_entry,
    read_tail,
    snapshot,
)

EMITTER = "c/broker-a/0"


def append(address: str, emitter: str, seqs: list[int], *, day: str = "2026-03-01") -> None:
    rows = pa.table({"emitter": [emitter] * len(seqs), "seq": seqs, "day": [day] * len(seqs)})
    write_deltalake(
        address,
        rows,
        mode="append",
        partition_by=["day"],
        commit_properties=CommitProperties(
            app_transactions=[Transaction(f"{emitter}/events", seqs[-1])]
        ),
    )


def rows_in(address: str, tail: Tail) -> list[tuple[str, int]]:
    """Emitter and seq of every row of the files of a tail, as an executor would read them."""
    found: list[tuple[str, int]] = []
    for file in tail.files:
        with pq.ParquetFile(f"{address}/{file.path}") as data:
            rows = data.read(columns=["emitter", "seq"]).to_pylist()
        found.extend((row["emitter"], row["seq"]) for row in rows)
    return found


def entry(*actions: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(action) for action in actions).encode()


def test_an_entry_has_files_with_bounds_and_how_far_each_application_came() -> None:
    stats = {
        "numRecords": 3,
        "minValues": {"emitter": "e", "seq": 5},
        "maxValues": {"emitter": "e", "seq": 7},
    }
    commit = parse_entry(
        12,
        entry(
            {"commitInfo": {"timestamp": 1000, "operation": "WRITE", "engineInfo": "delta-rs:1"}},
            {
                "add": {
                    "path": "day=a%2520b/part-0.parquet",
                    "partitionValues": {"day": "a b"},
                    "size": 99,
                    "dataChange": True,
                    "stats": json.dumps(stats),
                }
            },
            {"txn": {"appId": "e/events", "version": 7}},
        ),
    )
    [file] = commit.added
    assert (file.path, file.size_bytes, file.rows) == ("day=a%20b/part-0.parquet", 99, 3)
    assert (file.partition, file.version) == ({"day": "a b"}, 12)
    assert (file.emitters, file.seqs) == (Bounds("e", "e"), Bounds(5, 7))
    assert (commit.committed_at_ms, commit.operation, commit.engine) == (
        1000,
        "WRITE",
        "delta-rs:1",
    )
    assert commit.transactions == {"e/events": 7}
    assert not commit.removes_rows


def test_a_file_without_statistics_may_hold_anything() -> None:
    [file] = parse_entry(0, entry({"add": {"path": "a", "size": 1, "dataChange": True}})).added
    assert (file.rows, file.emitters, file.seqs) == (None, None, None)


def test_files_that_hold_old_rows_anew_are_no_news() -> None:
    merged = parse_entry(
        3,
        entry(
            {"remove": {"path": "a", "dataChange": False}},
            {"add": {"path": "b", "size": 1, "dataChange": False}},
        ),
    )
    assert merged.added == ()
    assert not merged.removes_rows
    assert parse_entry(4, entry({"remove": {"path": "b", "dataChange": True}})).removes_rows


@pytest.mark.parametrize(
    "torn", [b"", b"\n", b'{"add":', b'{"add":{"size":1}}', b"[1]", b'{"add":{"path":1,"size":1}}']
)
def test_a_torn_entry_is_refused_by_its_number(torn: bytes) -> None:
    with pytest.raises(LakeError, match=r"log entry 7 cannot be understood.*from a copy"):
        parse_entry(7, torn)


def test_a_file_of_which_rows_were_deleted_is_refused() -> None:
    add = {"path": "a", "size": 1, "dataChange": True, "deletionVector": {"storageType": "u"}}
    with pytest.raises(LakeError, match="a has a deletion vector"):
        parse_entry(0, entry({"add": add}))


def test_reading_goes_on_where_it_ended_and_nothing_new_is_nothing(tmp_path: Path) -> None:
    lake, address = Lake.at(str(tmp_path)), str(tmp_path / "events")
    append(address, EMITTER, [1, 2])
    append(address, EMITTER, [3])
    first = read_tail(lake, address, Place.start())
    assert rows_in(address, first) == [(EMITTER, 1), (EMITTER, 2), (EMITTER, 3)]
    assert [commit.transactions for commit in first.commits] == [
        {f"{EMITTER}/events": 2},
        {f"{EMITTER}/events": 3},
    ]
    assert first.end == newest_place(lake, address)
    assert read_tail(lake, address, first.end) == Tail((), first.end)
    append(address, EMITTER, [4])
    second = read_tail(lake, address, first.end)
    assert rows_in(address, second) == [(EMITTER, 4)]
    assert second.end.version == 2


def test_a_long_tail_is_read_in_bounded_parts(tmp_path: Path) -> None:
    lake, address = Lake.at(str(tmp_path)), str(tmp_path / "events")
    for seq in range(1, 8):
        append(address, EMITTER, [seq])
    place, seen = Place.start(), []
    for _ in range(3):
        part = read_tail(lake, address, place, entries_max=3)
        seen.append([seq for _emitter, seq in rows_in(address, part)])
        place = part.end
    assert seen == [[1, 2, 3], [4, 5, 6], [7]]


def test_entries_that_are_gone_lead_to_the_snapshot_less_what_was_read(tmp_path: Path) -> None:
    lake, address = Lake.at(str(tmp_path)), str(tmp_path / "events")
    append(address, EMITTER, [1, 2])
    place = newest_place(lake, address)
    append(address, EMITTER, [3, 4])
    append(address, "c/broker-b/0", [1, 2])
    (tmp_path / "events" / "_delta_log" / f"{0:020d}.json").rename(tmp_path / "gone.json")
    with pytest.raises(LogTruncated, match=r"entry 0 of .* is gone.*read its snapshot"):
        read_tail(lake, address, place)
    (tmp_path / "gone.json").rename(tmp_path / "events" / "_delta_log" / f"{0:020d}.json")
    files, end = snapshot(lake, address, {EMITTER: 2})
    statistics = [(file.emitters, file.seqs) for file in files]
    assert sorted(statistics, key=str) == [
        (Bounds(EMITTER, EMITTER), Bounds(3, 4)),
        (Bounds("c/broker-b/0", "c/broker-b/0"), Bounds(1, 2)),
    ]
    assert end.version == 2
    assert read_tail(lake, address, end).commits == ()


def test_a_file_of_several_emitters_stays_in_the_snapshot(tmp_path: Path) -> None:
    lake, address = Lake.at(str(tmp_path)), str(tmp_path / "events")
    append(address, "a", [1])
    append(address, "b", [1])
    append(address, "c", [1])
    DeltaTable(address).optimize.compact()
    files, _end = snapshot(lake, address, {"a": 9, "c": 9})
    assert [file.rows for file in files] == [3], "b is between them, and was never read"


def test_a_table_made_anew_is_not_read_on(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    first, second = str(tmp_path / "events"), str(tmp_path / "other")
    append(first, EMITTER, [1])
    append(second, EMITTER, [1])
    with pytest.raises(LogTruncated, match="is not the one that was read"):
        read_tail(lake, second, newest_place(lake, first))


def test_no_table_is_refused_as_such(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    with pytest.raises(LakeError, match="no Delta table at"):
        read_tail(lake, lake.bronze("events"), Place.start())


EMITTERS = st.sampled_from(["a", "b", "c"])
HELD = st.lists(st.tuples(EMITTERS, st.integers(0, 9)), min_size=1, max_size=4)
MARKS = st.dictionaries(EMITTERS, st.tuples(st.integers(-1, 9), st.integers(0, 9)))


def file_of(held: list[tuple[str, int]]) -> AddedFile:
    """A file that holds these rows, as a log names it."""
    emitters, seqs = zip(*held, strict=True)
    return AddedFile(
        path="part-0.parquet",
        size_bytes=1,
        rows=len(held),
        partition={},
        version=0,
        emitters=Bounds(min(emitters), max(emitters)),
        seqs=Bounds(min(seqs), max(seqs)),
    )


@given(held=HELD, marks=MARKS)
def test_no_file_with_rows_that_are_asked_for_is_passed_over(
    held: list[tuple[str, int]], marks: dict[str, tuple[int, int]]
) -> None:
    begins = {emitter: begin for emitter, (begin, _) in marks.items()}
    ends = {emitter: begin + count for emitter, (begin, count) in marks.items()}
    file = file_of(held)
    below_ends = [(who, seq) for who, seq in held if who in ends and seq <= ends[who]]
    asked_for = [(who, seq) for who, seq in below_ends if seq > begins[who]]
    assert begins_by(file, ends) or not below_ends
    assert may_hold(file, begins, ends) or not asked_for
    gapless = sorted(seq for _, seq in held) == list(range(min(held)[1], min(held)[1] + len(held)))
    is_asked = all(begins[who] < ends[who] for who in marks)
    if is_asked and gapless and len({who for who, _ in held}) == 1:
        assert may_hold(file, begins, ends) == bool(asked_for), "one emitter's rows are a run"


def test_a_file_without_statistics_may_hold_anything_that_is_asked_for() -> None:
    file = AddedFile("part-0.parquet", 1, 3, {}, 0, emitters=None, seqs=None)
    assert may_hold(file, {"a": 5}, {"a": 7})


STEP = st.sampled_from(
    ["append a", "append b", "compact", "z-order", "vacuum", "checkpoint", "read"]
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=st.lists(STEP, min_size=1, max_size=25))
def test_every_row_is_read_once_between_any_steps_of_upkeep(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    lake, address = Lake.at(str(folder)), str(folder / "events")
    append(address, "a", [1])
    written = Counter([("a", 1)])
    seen: Counter[tuple[str, int]] = Counter()
    place = Place.start()
    for step in [*steps, "read"]:
        if step.startswith("append"):
            emitter = step[-1]
            seq = 1 + max((seq for who, seq in written if who == emitter), default=0)
            append(address, emitter, [seq, seq + 1], day=f"2026-03-0{1 + seq % 3}")
            written.update([(emitter, seq), (emitter, seq + 1)])
        elif step == "compact":
            DeltaTable(address).optimize.compact()
        elif step == "z-order":
            DeltaTable(address).optimize.z_order(["emitter", "seq"])
        elif step == "checkpoint":
            DeltaTable(address).create_checkpoint()
        elif step == "vacuum":  # Of what is read: that no more is vacuumed is the planner's law.
            tail = read_tail(lake, address, place)
            seen.update(rows_in(address, tail))
            place = tail.end
            DeltaTable(address).vacuum(0, dry_run=False, enforce_retention_duration=False)
        else:
            tail = read_tail(lake, address, place)
            seen.update(rows_in(address, tail))
            place = tail.end
    assert seen == written
