"""`tidemark lake maintain` and `status`, and the maintainer beside a pipeline, as processes."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.lake.lake import Lake
from pipelines.lake.lease import Holder, acquire, holder_of
from pipelines.lake.read_places import note_places
from pipelines.upkeep.maintainer import ROLE

ROOT = Path(__file__).parents[3]
TIDEMARK = str(Path(sys.executable).parent / "tidemark")
TODAY = dt.datetime.now(dt.UTC).date()
TABLE = "bronze/lifecycle"


def tidemark(*arguments: str) -> subprocess.CompletedProcess[str]:
    settled = ("--settle", "0") if arguments[0] == "maintain" else ()
    command = [TIDEMARK, "lake", *arguments, *settled]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def append(address: str, day: dt.date, seq: int) -> None:
    moment = dt.datetime(day.year, day.month, day.day, 12, tzinfo=dt.UTC)
    rows = pa.table(
        {"emitter": ["e"], "seq": [seq], "kind": ["BOOT"]}
        | {"event_time": [moment], "event_date": [day]},
    )
    write_deltalake(address, rows, mode="append", partition_by=["event_date"])


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Facts of today, of a week ago, and of a day that is over its time."""
    lake = Lake.at(str(tmp_path / "lake"))
    address = f"{lake.root}/{TABLE}"
    for back in (0, 7, 40):
        for seq in range(5):
            append(address, TODAY - dt.timedelta(days=back), back * 100 + seq)
    return lake


def files_by_day(lake: Lake) -> dict[str, int]:
    files = DeltaTable(f"{lake.root}/{TABLE}").file_uris()
    days = [file.partition("event_date=")[2][:10] for file in files]
    return {day: days.count(day) for day in sorted(set(days))}


def ago(days: int) -> str:
    return str(TODAY - dt.timedelta(days=days))


def until(condition: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_lake_that_is_missing_is_one_sentence_and_nothing_is_made(tmp_path: Path) -> None:
    for verb in ("maintain", "status"):
        answer = tidemark(verb, "--lake", str(tmp_path / "none"))
        assert answer.returncode == 1
        assert answer.stderr.startswith(f"tidemark lake: there is no lake at {tmp_path}/none: ")
        assert len(answer.stderr.splitlines()) == 1
    assert not (tmp_path / "none").exists()


def test_a_dry_run_says_what_would_be_done_and_does_nothing(lake: Lake) -> None:
    before = DeltaTable(f"{lake.root}/{TABLE}").version()
    answer = tidemark("maintain", "--dry-run", "--lake", lake.root)
    assert answer.stdout == (
        f"{TABLE}: drop 1 days to {ago(40)}, merge 5 files of {ago(7)}, set the log's days\n"
    )
    assert DeltaTable(f"{lake.root}/{TABLE}").version() == before
    assert not (Path(lake.root) / "state").exists()


def test_a_run_leaves_few_files_and_the_next_has_nothing_to_do(lake: Lake) -> None:
    answer = tidemark("maintain", "--once", "--lake", lake.root)
    assert answer.returncode == 0, answer.stderr
    assert f"{TABLE}: dropped {ago(40)}" in answer.stdout
    assert f"{TABLE}: merged 5 files of {ago(7)} into 1" in answer.stdout
    assert files_by_day(lake) == {ago(7): 1, ago(0): 5}
    there = DeltaTable(f"{lake.root}/{TABLE}")
    assert there.count() == 10
    assert there.metadata().configuration["delta.logRetentionDuration"] == "interval 2 days"
    version = there.version()
    assert tidemark("maintain", "--lake", lake.root).returncode == 0
    assert DeltaTable(f"{lake.root}/{TABLE}").version() == version


def test_days_may_be_chosen_and_a_wrong_choice_is_refused(lake: Lake) -> None:
    tidemark("maintain", "--lake", lake.root, "--days", f"{TABLE}=5")
    assert files_by_day(lake) == {ago(0): 5}
    for wrong in ("lifecycle=5", f"{TABLE}=0", f"{TABLE}=many"):
        answer = tidemark("maintain", "--lake", lake.root, "--days", wrong)
        assert answer.returncode == 1
        assert wrong in answer.stderr.replace("'", "")


def test_a_second_maintainer_is_refused_with_who_is_at_work(lake: Lake) -> None:
    with acquire(lake, ROLE):
        answer = tidemark("maintain", "--lake", lake.root)
        assert answer.returncode == 1
        assert f"one maintainer a lake: process {os.getpid()} on " in answer.stderr


def test_the_status_shows_every_table(lake: Lake) -> None:
    before = tidemark("status", "--lake", lake.root).stdout
    assert f"{ago(40)} to {ago(0)}" in before.replace("\n", "")
    assert "never" in before
    assert "maintained by nobody" in before
    tidemark("maintain", "--lake", lake.root)
    after = tidemark("status", "--lake", lake.root).stdout
    [row] = [line for line in after.splitlines() if TABLE in line]
    cells = [cell.strip() for cell in row.strip("│┃ ").split("│")]
    assert cells[:2] == [TABLE, "delta-rs"]
    assert cells[3:6] == ["6", "5", "6"], "files in use, of today, small"
    assert cells[7] == "10"
    assert cells[-1] == "nothing"


def test_a_file_that_the_pipeline_has_still_to_read_survives_the_vacuum(lake: Lake) -> None:
    """The log is made to say that all this was three days ago."""
    address = f"{lake.root}/{TABLE}"
    tidemark("maintain", "--lake", lake.root)
    three_days_ms = 3 * 86_400_000
    for entry in (Path(address) / "_delta_log").glob("*.json"):
        text = entry.read_text()
        for key in ('"timestamp":', '"deletionTimestamp":'):
            first, *parts = text.replace(f"{key} ", key).split(key)
            text = first
            for part in parts:
                digits = part[: len(part) - len(part.lstrip("0123456789"))]
                text += f"{key}{int(digits) - three_days_ms}{part[len(digits) :]}"
        entry.write_text(text)
    for checkpoint in (Path(address) / "_delta_log").glob("*checkpoint*"):
        checkpoint.unlink()
    forget_the_last_vacuum = (Path(lake.root) / "state" / "upkeep" / "bronze-lifecycle.json").unlink
    replaced = {str(path) for path in Path(address).rglob("*.parquet")} - set(
        DeltaTable(address).file_uris()
    )
    assert len(replaced) == 10
    note_places(lake, "pipeline", {TABLE: 5})
    forget_the_last_vacuum()
    tidemark("maintain", "--lake", lake.root)
    assert all(Path(path).exists() for path in replaced)
    append(address, TODAY, 99)
    note_places(lake, "pipeline", {TABLE: DeltaTable(address).version()})
    forget_the_last_vacuum()
    answer = tidemark("maintain", "--lake", lake.root)
    assert "vacuumed 10 files" in answer.stdout
    assert not any(Path(path).exists() for path in replaced)


def test_the_maintainer_beside_a_pipeline_is_started_again_and_ends_with_it(lake: Lake) -> None:
    command = [sys.executable, "-m", "tests.integration.pipelines.companion_parent", lake.root]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as parent:  # type: ignore[call-overload]
        try:
            first = awaited_holder(lake, 0)
            until(lambda: files_by_day(lake) == {ago(7): 5, ago(0): 5})
            assert os.getpriority(os.PRIO_PROCESS, first.pid) == 10
            os.kill(first.pid, signal.SIGKILL)
            second = awaited_holder(lake, first.pid)
            parent.kill()
            until(lambda: has_ended(second.pid))
        finally:
            parent.kill()
        assert "upkeep ended with code -9; started again in 0 s" in parent.stdout.read()


def test_the_maintainer_beside_a_pipeline_ends_before_it(lake: Lake) -> None:
    command = [sys.executable, "-m", "tests.integration.pipelines.companion_parent", lake.root]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as parent:  # type: ignore[call-overload]
        beside = awaited_holder(lake, 0)
        output, _ = parent.communicate(timeout=40)
        assert output.splitlines() == ["up", "down"]
        assert parent.returncode == 0
        assert has_ended(beside.pid)


def awaited_holder(lake: Lake, before: int) -> Holder:
    found: list[Holder] = []

    def another() -> bool:
        holder = holder_of(lake, ROLE)
        if holder is not None and holder.pid != before:
            found.append(holder)
        return bool(found)

    until(another)
    return found[0]


def has_ended(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True
