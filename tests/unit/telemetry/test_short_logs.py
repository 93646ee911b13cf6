"""A table's log stays short, whatever its age: and whoever opens the table, follows it, writes to
it or is killed meanwhile finds and leaves each row once.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.telemetry.shipper import short_logs
from engine.telemetry.shipper.short_logs import (
    ASIDE,
    FOLDER_ENTRIES,
    SYNCED_NAME,
    Manner,
    NoCommit,
    ShortLog,
    aside_path,
    folder_of,
    is_passed,
    tidy,
)
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import SmallFiles
from pipelines.lake.table_writes import shorten
from pipelines.lake.tail import LogTruncated, Place, read_entry, read_tail

LONG = 10**6
"""Seconds ahead: every checkpoint is old."""
CHECKPOINT_EACH = 10


def made(table: Path, *, each: int = CHECKPOINT_EACH) -> DeltaTable:
    return DeltaTable.create(
        str(table),
        pa.schema([pa.field("number", pa.int64())]),
        configuration={"delta.checkpointInterval": str(each)},
    )


def append(handle: DeltaTable, number: int) -> None:
    write_deltalake(
        handle,
        pa.table({"number": [number]}),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction("writer", number)]),
    )


def shortened(table: Path, *, at_once: int = 2_000) -> short_logs.Tidied:
    return tidy(table, now_s=time.time(), held_s=-LONG, at_once=at_once)


def entries(table: Path) -> list[int]:
    return sorted(int(one.stem) for one in (table / "_delta_log").glob("*.json"))


def numbers(table: Path) -> list[int]:
    """As somebody reads them who opens the table now."""
    return sorted(DeltaTable(str(table)).to_pyarrow_table()["number"].to_pylist())


def followed(table: Path, after: Place) -> tuple[int, Place]:
    """Files added behind a place, entry by entry."""
    lake, found = Lake.at(str(table.parent)), 0
    while True:
        tail = read_tail(lake, str(table), after, entries_max=7)
        if tail.end == after:
            return found, after
        found, after = found + len(tail.files), tail.end


def test_a_log_has_as_many_entries_after_many_commits_as_after_few(tmp_path: Path) -> None:
    handle = made(tmp_path / "table")
    log = ShortLog(str(tmp_path / "table"), manner=Manner(held_s=-LONG))
    most = {60: 0, 300: 0}
    for number in range(1, 301):
        version = handle.version()
        append(handle, number)
        log.committed(version)
        log.shorten()
        there = len(entries(tmp_path / "table"))
        most = {limit: max(was, there if number <= limit else 0) for limit, was in most.items()}
    assert most[300] == most[60] <= short_logs.TIDY_EACH + CHECKPOINT_EACH
    assert followed(tmp_path / "table", Place.start())[0] == 300


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.sampled_from(["append", "append", "append", "tidy", "open", "merge"]),
        min_size=20,
        max_size=60,
    ),
    at_once=st.sampled_from([1, 3, 2_000]),
)
def test_whoever_opens_or_follows_a_table_finds_each_row_once(
    tmp_path: Path, steps: list[str], at_once: int
) -> None:
    table = tmp_path / "any" / "table"
    shutil.rmtree(table.parent, ignore_errors=True)
    writer = made(table, each=3)
    reader, place = DeltaTable(str(table)), Place.start()
    count, read = 0, 0
    for step in steps:
        if step == "append":
            count += 1
            append(writer, count)
        elif step == "tidy":
            shortened(table, at_once=at_once)
        elif step == "merge":
            writer.optimize.compact()
        else:
            reader.update_incremental()
            assert sorted(reader.to_pyarrow_table()["number"].to_pylist()) == [*range(1, count + 1)]
            assert reader.transaction_version("writer") == (count or None)
            new, place = followed(table, place)
            read += new
            assert read == count
    assert numbers(table) == [*range(1, count + 1)]
    assert followed(table, Place.start())[0] == count


def test_a_writer_that_stood_still_learns_that_its_commit_is_none(tmp_path: Path) -> None:
    table = tmp_path / "table"
    others = made(table)
    append(others, 1)
    still = DeltaTable(str(table))
    for number in range(2, 30):
        append(others, number)
    known = still.version()
    shortened(table)
    place = table / "_delta_log" / f"{known + 1:020d}.json"
    assert not place.exists()
    place.write_bytes((table / "_delta_log" / f"{others.version():020d}.json").read_bytes())
    assert numbers(table) == [*range(1, 30)], "nobody sees what it wrote at an old number"
    stray = place.read_bytes()
    there = read_entry(SmallFiles(Lake.at(str(tmp_path))), str(table), known + 1)
    assert there is not None
    assert there.data != stray, "nor does who follows the log"
    with pytest.raises(NoCommit, match="stood still"):
        ShortLog(str(table)).committed(known)
    assert not place.exists()
    assert followed(table, Place.start())[0] == 29


def test_a_writer_that_was_killed_behind_such_a_commit_leaves_nothing(tmp_path: Path) -> None:
    table = tmp_path / "table"
    handle = made(table)
    for number in range(1, 30):
        append(handle, number)
    shortened(table)
    stray = table / "_delta_log" / f"{4:020d}.json"
    stray.write_bytes(b'{"commitInfo":{}}')
    true = Path(aside_path(table, 4)).read_bytes()
    shortened(table)
    assert not stray.exists()
    assert Path(aside_path(table, 4)).read_bytes() == true


def test_a_commit_in_its_turn_is_none_of_these(tmp_path: Path) -> None:
    table = tmp_path / "table"
    handle, log = made(table), ShortLog(str(table))
    for number in range(1, 40):
        version = handle.version()
        append(handle, number)
        log.committed(version)
        shortened(table)
    assert numbers(table) == [*range(1, 40)]


@pytest.mark.parametrize("what", ["young", "torn", "pointer", "synced", "none"])
def test_an_entry_stays_that_anybody_may_need(tmp_path: Path, what: str) -> None:
    table = tmp_path / "table"
    handle = made(table, each=1_000 if what == "none" else CHECKPOINT_EACH)
    for number in range(1, 30):
        append(handle, number)
    log = table / "_delta_log"
    held_s: float = -LONG
    if what == "young":
        held_s = short_logs.HELD_S
    for checkpoint in log.glob("*.checkpoint.parquet"):
        if what == "torn":
            checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    if what == "pointer":
        (log / "_last_checkpoint").write_text('{"version":0,"size":1}')
    if what == "synced":
        (table / SYNCED_NAME).write_text("5")
    before = entries(table)
    assert tidy(table, now_s=time.time(), held_s=held_s, at_once=2_000) == short_logs.Tidied()
    assert entries(table) == before == [*range(30)]


def test_no_further_than_shippers_have_synced(tmp_path: Path) -> None:
    table = tmp_path / "table"
    handle = made(table)
    for number in range(1, 40):
        append(handle, number)
    (table / SYNCED_NAME).write_text("25")
    shortened(table)
    first = entries(table)[0]
    assert 10 <= first <= 25
    assert numbers(table) == [*range(1, 40)]


def test_a_look_moves_a_bounded_number_and_the_next_goes_on(tmp_path: Path) -> None:
    table = tmp_path / "table"
    handle = made(table)
    for number in range(1, 40):
        append(handle, number)
    left = [shortened(table, at_once=7).left for _ in range(6)]
    assert left == sorted(left, reverse=True)
    assert left[0] > 0 == left[-1]
    assert numbers(table) == [*range(1, 40)]
    assert followed(table, Place.start())[0] == 39


def test_entries_aside_go_after_their_days_oldest_first(tmp_path: Path) -> None:
    table = tmp_path / "table"
    handle = made(table)
    for number in range(1, 30):
        append(handle, number)
    shortened(table)
    old_s = time.time() - 3 * 86_400
    folder = Path(aside_path(table, 0)).parent
    os.utime(folder, (old_s, old_s))
    young = table / ASIDE / f"{7:017d}"
    young.mkdir()
    (young / f"{7 * FOLDER_ENTRIES:020d}.json").write_bytes(b"{}")
    # Newer than the log's newest: of another log, so it is no reason to keep anything.
    for _ in range(3):
        shortened(table)
    assert not folder.exists()
    with pytest.raises(LogTruncated):
        read_tail(Lake.at(str(tmp_path)), str(table), Place(3, "x"))
    assert numbers(table) == [*range(1, 30)]


def test_what_is_aside_of_a_log_that_was_put_back_from_a_copy_is_forgotten(tmp_path: Path) -> None:
    table = tmp_path / "table"
    handle, log = made(table), ShortLog(str(table))
    for number in range(1, 16):
        append(handle, number)
    shutil.copytree(table / "_delta_log", tmp_path / "copy")
    for number in range(16, 40):
        append(handle, number)
    shortened(table)
    shutil.rmtree(table / "_delta_log")
    (tmp_path / "copy").rename(table / "_delta_log")
    assert not is_passed(table, 16)
    back = DeltaTable(str(table))
    for number in range(101, 105):
        version = back.version()
        append(back, number)
        log.committed(version)
        shortened(table)
    assert numbers(table) == [*range(1, 16), *range(101, 105)]
    assert followed(table, Place.start())[0] == 19


def test_kills_at_any_moment_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    table, chance = tmp_path / "table", random.Random(7)
    handle = made(table, each=3)
    count = 0
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", TIDIES_FOR_EVER, str(table)], stdout=subprocess.PIPE
        ) as tidier:
            assert tidier.stdout is not None
            tidier.stdout.readline()
            for _ in range(chance.randrange(3, 25)):
                count += 1
                append(handle, count)
            tidier.kill()
        assert numbers(table) == [*range(1, count + 1)]
        assert followed(table, Place.start())[0] == count
        assert handle.transaction_version("writer") == count
    shortened(table)
    assert len(entries(table)) <= 4


TIDIES_FOR_EVER = """
import sys, time
from pathlib import Path
from engine.telemetry.shipper.short_logs import tidy
print("begun", flush=True)
while True:
    tidy(Path(sys.argv[1]), now_s=time.time(), held_s=-1e6, at_once=2)
"""


def test_so_many_logs_are_shortened_as_there_is_time_for_and_one_at_least(tmp_path: Path) -> None:
    logs = []
    for name in "abc":
        handle = made(tmp_path / name)
        for number in range(1, 30):
            append(handle, number)
        logs.append(ShortLog(str(tmp_path / name), manner=Manner(held_s=-LONG)))
    lengths = []
    for _ in range(3):
        shortened = shorten(logs, for_s=0.0)
        assert shortened.moved > 0
        lengths.append(sum(len(entries(tmp_path / name)) < 29 for name in "abc"))
    assert lengths == [1, 2, 3]
    assert str(shorten(logs)) == ""


def test_a_log_that_cannot_be_shortened_is_reported_and_the_others_are(tmp_path: Path) -> None:
    for name in "ab":
        handle = made(tmp_path / name)
        for number in range(1, 30):
            append(handle, number)
    (tmp_path / "a" / ASIDE).write_bytes(b"no folder")
    logs = [ShortLog(str(tmp_path / name), manner=Manner(held_s=-LONG)) for name in "ab"]
    assert "is not shortened" in str(shorten(logs))
    assert len(entries(tmp_path / "b")) < 29
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b") == [*range(1, 30)]


def test_a_table_that_is_not_on_a_disk_is_left_alone() -> None:
    assert folder_of("s3://bucket/lake/gold/lag") is None
    log = ShortLog("s3://bucket/lake/gold/lag")
    log.committed(7)
    assert log.shorten() == short_logs.Tidied()


def test_a_handle_that_knows_moved_entries_alone_fails_and_is_opened_again(
    tmp_path: Path,
) -> None:
    """Why writers follow their tables before they ask them."""
    table = tmp_path / "table"
    still = made(table)
    append(still, 1)
    others = DeltaTable(str(table))
    for number in range(2, 30):
        append(others, number)
    shortened(table)
    with pytest.raises(DeltaError):
        still.transaction_version("writer")
    still.update_incremental()
    assert still.transaction_version("writer") == 29
