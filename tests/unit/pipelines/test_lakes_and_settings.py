"""What of a lake is refused, in one sentence each; no Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from engine.foundation.errors import ConfigError, LakeError
from engine.telemetry.tables import Column, ColumnType, must
from pipelines.base.settings import Evaluation
from pipelines.cycles.live import await_first_shipment
from pipelines.lake.lake import Lake, declared_rows, first_line

TIDEMARK = str(Path(sys.executable).parent / "tidemark")


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
        ("state/plans", "`tidemark pipeline run` compute them again from bronze"),
    ],
)
def test_a_torn_table_is_got_back_the_way_it_was_made(
    tmp_path: Path, table: str, remedy: str
) -> None:
    log = tmp_path / table / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000003.json").write_text('{"commitInfo":{}}')
    lake = Lake.at(str(tmp_path))
    with pytest.raises(LakeError, match="its log is incomplete; restore the folder, or") as raised:
        lake.table(f"{lake.root}/{table}")
    assert remedy in str(raised.value)


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
        "from pipelines.lake.session import open_session\n"
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
    assert "set JAVA_HOME to it, then run make again" in done.stderr
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


def test_of_a_report_the_line_is_shown_that_says_what_is_wrong() -> None:
    report = """
      An exception was thrown from the Python worker:
    Traceback (most recent call last):
      File "work.py", line 121, in judge
        done = compute(facts)
    engine.foundation.errors.LakeError: a.parquet cannot be read
     SQLSTATE: 38000
    JVM stacktrace: ..."""
    line = first_line(RuntimeError(textwrap.dedent(report)))
    assert line == "a.parquet cannot be read"
    assert first_line(OSError("disk full\nat /x")) == "disk full"
    assert first_line(ValueError()) == "ValueError"
