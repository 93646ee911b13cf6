"""What a cycle takes, what is remembered of it, and what is refused; no Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pipelines.marks import Cut, Marks, plan_cuts
from pipelines.replay import judged_part, range_of
from pipelines.stream import await_first_shipment

from engine.foundation.errors import ConfigError, LakeError
from engine.telemetry.tables import Column, ColumnType, must
from pipelines.lake import Lake, declared_rows
from pipelines.settings import Evaluation

TIDEMARK = str(Path(sys.executable).parent / "tidemark")


def shipment(number: int, seq_from: int, seq_to: int, time_us: int) -> dict[str, Any]:
    return {
        "emitter": "c/b/0/shipper",
        "seq": number,
        "seq_from": seq_from,
        "seq_to": seq_to,
        "event_time_to_us": time_us,
    }


SHIPPED = [shipment(1, 1, 10, 100), shipment(2, 11, 30, 200), shipment(3, 31, 30, 300)]


def test_a_cut_goes_from_the_mark_to_the_shipped_horizon() -> None:
    assert plan_cuts([], SHIPPED, rows_max=1000) == (Cut("c/b/0", 0, 30, 0, 300),)


def test_a_backlog_is_cut_at_shipments() -> None:
    first = plan_cuts([], SHIPPED, rows_max=5)
    assert first == (Cut("c/b/0", 0, 10, 0, 100),)
    second = plan_cuts([cut.rest() for cut in first], SHIPPED, rows_max=5)
    assert second == (Cut("c/b/0", 10, 30, 100, 200),)


def test_time_alone_is_news_and_silence_is_none() -> None:
    mark = Cut("c/b/0", 30, 30, 200, 200)
    [cut] = plan_cuts([mark], SHIPPED, rows_max=5)
    assert cut == Cut("c/b/0", 30, 30, 200, 300)
    assert not cut.is_empty
    [still] = plan_cuts([cut.rest()], [], rows_max=5)
    assert still.is_empty


def test_a_replayed_range_begins_and_ends_at_shipments() -> None:
    assert range_of(SHIPPED, 150, 180).cuts == (Cut("c/b/0", 10, 30, 100, 200),)
    with pytest.raises(LakeError, match="nothing was shipped in that range"):
        range_of(SHIPPED, 900, 950)


def test_only_what_the_live_run_has_judged_is_compared(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    span = range_of(SHIPPED, 0, 1000)
    with pytest.raises(LakeError, match="has no gold that was computed live"):
        judged_part(span, lake)
    marks = Marks.open(lake, Evaluation().as_text())
    with pytest.raises(LakeError, match="has no gold that was computed live"):
        judged_part(span, lake)
    marks.record((Cut("c/b/0", 0, 10, 0, 100),))
    assert judged_part(span, lake).cuts == (Cut("c/b/0", 0, 10, 0, 100),)
    with pytest.raises(LakeError, match=r"ends before --from"):
        judged_part(range_of(SHIPPED, 100, 1000), lake)
    marks.record((Cut("c/b/0", 10, 30, 100, 300),))
    assert judged_part(span, lake) == span


def test_a_replay_of_a_lake_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    """Refused before Spark is started: nothing but the sentence is said, and no Java is needed."""
    done = subprocess.run(
        [
            *(TIDEMARK, "pipeline", "replay", "--lake", str(tmp_path / "nowhere")),
            *("--from", "2026-03-01", "--to", "2026-03-02", "--into", str(tmp_path / "side")),
        ],
        env={**os.environ, "JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    [line] = done.stderr.strip().splitlines()
    assert f"no Delta table at {tmp_path / 'nowhere'}/bronze/shipments" in line


@pytest.mark.parametrize(
    ("table", "remedy"),
    [
        ("bronze/lifecycle", "let it be shipped again"),
        ("gold/consumer_lag", "`tidemark pipeline run` compute them again from bronze"),
        ("gold/dq_results", "the next `tidemark check` begins it anew"),
        ("state/cycles", "`tidemark pipeline run` compute them again from bronze"),
    ],
)
def test_a_torn_table_is_got_back_the_way_it_was_made(
    tmp_path: Path, table: str, remedy: str
) -> None:
    log = tmp_path / table / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000003.json").write_text('{"commitInfo":{}}')
    lake = Lake.at(str(tmp_path))
    with pytest.raises(LakeError, match="its log is incomplete; restore the folder, or") as told:
        lake.table(f"{lake.root}/{table}")
    assert remedy in str(told.value)


def test_marks_are_found_again_after_a_restart(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    settings = Evaluation().as_text()
    marks = Marks.open(lake, settings)
    assert marks.positions() == ()
    again = Marks.open(lake, settings)
    assert (again.run_id, again.last) == (marks.run_id, None)
    plan = again.record((Cut("c/b/0", 0, 10, 0, 100),))
    assert plan.cycle == 1
    with pytest.raises(LakeError, match="marks say cycle 1, but gold lacks consumer_lag"):
        Marks.open(lake, settings)


def test_a_lake_nobody_ships_to_is_one_sentence(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path / "nowhere"))
    with pytest.raises(LakeError, match="start an engine"):
        await_first_shipment(lake, patience_ms=0, wanted=lambda: True)
    assert not await_first_shipment(lake, patience_ms=10_000, wanted=lambda: False)


def test_a_half_written_table_is_one_sentence(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    log = tmp_path / "bronze" / "shipments" / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000001.json").write_text("{", encoding="utf-8")
    with pytest.raises(LakeError, match=r"restore the folder|no Delta table"):
        lake.table(lake.bronze("shipments"))


def test_a_column_declared_after_a_table_was_made_is_null_in_its_rows(tmp_path: Path) -> None:
    """Else a lake could not be read until the shipper of the new version has written to it."""
    lake = Lake.at(str(tmp_path))
    write_deltalake(lake.bronze("cups"), pa.table({"size": pa.array([3, 4], pa.int64())}))
    size, colour = must("size", ColumnType.LONG, "cl"), Column("colour", ColumnType.STRING, "RGB")
    rows = lake.rows(lake.bronze("cups"), "size > 3", [size, colour])
    assert rows.to_pylist() == [{"size": 4, "colour": None}]
    scanned = declared_rows(lake.table(lake.bronze("cups")), [size, colour]).to_table()
    assert scanned.to_pylist() == [{"size": 3, "colour": None}, {"size": 4, "colour": None}]
    with pytest.raises(LakeError, match="has no owner: it is not one of ours, or of another"):
        lake.rows(lake.bronze("cups"), "true", [size, must("owner", ColumnType.STRING, "who")])


@pytest.mark.parametrize("address", ["", "ftp://somewhere/lake"])
def test_an_address_that_is_no_lake_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="lake"):
        Lake.at(address)


@pytest.mark.parametrize(
    ("window_ms", "slide_ms"), [(10_000, 500), (10_000, 3_000), (2_000, 2_000)]
)
def test_a_window_is_a_multiple_of_its_slide(window_ms: int, slide_ms: int) -> None:
    with pytest.raises(ConfigError, match="_ms"):
        Evaluation(window_ms=window_ms, slide_ms=slide_ms)


def test_without_java_the_command_says_what_to_do(tmp_path: Path) -> None:
    # `tidemark` itself prefers the Java of the environment: ask the module that it runs.
    script = (
        "import sys\n"
        "from engine.foundation.errors import TidemarkError\n"
        "from pipelines.session import open_session\n"
        "try:\n    open_session()\nexcept TidemarkError as error:\n    sys.exit(f'{error}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "run `make setup`" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_replay_that_ends_before_it_begins_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            TIDEMARK,
            *("pipeline", "replay", "--lake", str(tmp_path), "--into", str(tmp_path / "side")),
            *("--from", "2026-03-01T12:00:00Z", "--to", "2026-03-01T11:00:00Z"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "a moment after --from" in done.stderr
