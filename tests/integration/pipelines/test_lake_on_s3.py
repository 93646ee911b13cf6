"""A lake on an S3 server: shipped to, followed, asked, merged and vacuumed, by real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.telemetry.tables import BY_NAME, CONSUME_OFFSETS
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import SmallFiles
from pipelines.lake.tail import AddedFile, Place, newest_place, read_tail, snapshot
from tests.integration.pipelines.s3_server import BUCKET, ROOT, s3_server
from tests.racing_drivers import opened, recorded_at_once

TIDEMARK = str(Path(sys.executable).parent / "tidemark")
SHIPMENTS = 2
TABLE = CONSUME_OFFSETS.name


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, str]]:
    with s3_server() as options:
        yield options


@pytest.fixture
def lake(s3: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Lake:
    for name, text in s3.items():
        monkeypatch.setenv(name, text)
    return Lake.at(f"s3://{BUCKET}/lake")


def write_facts(store: Path, life: int) -> None:
    """One life of a writer of a spool, ended as a broker is."""
    command = [sys.executable, "-m", "tests.integration.telemetry.spool_writer"]
    with subprocess.Popen(
        [*command, str(store), str(life), "100000"], cwd=ROOT, stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        for _ in range(20):
            assert writer.stdout.readline()
        writer.send_signal(signal.SIGTERM)
        writer.stdout.read()
    assert writer.returncode == 0


def tidemark(*arguments: str) -> str:
    answer = subprocess.run(
        [TIDEMARK, *arguments], capture_output=True, text=True, timeout=100, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def rows_in(lake: Lake, files: tuple[AddedFile, ...]) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for file in files:
        held = SmallFiles(lake).read(f"{lake.bronze(TABLE)}/{file.path}")
        assert held is not None
        with pq.ParquetFile(pa.BufferReader(held.data)) as data:
            rows = data.read(columns=["emitter", "seq"]).to_pylist()
        found.update((row["emitter"], row["seq"]) for row in rows)
    return found


def test_a_lake_on_s3_is_shipped_to_followed_asked_and_tended(lake: Lake, tmp_path: Path) -> None:
    address, place = lake.bronze(TABLE), Place.start()
    followed: Counter[tuple[str, int]] = Counter()
    for life in range(1, SHIPMENTS + 1):
        write_facts(tmp_path / "store", life)
        for _ in range(2):  # A second run finds nothing to ship.
            tidemark("shipper", "--store", str(tmp_path / "store"), "--lake", lake.root, "--once")
        tail = read_tail(lake, address, place)
        followed += rows_in(lake, tail.files)
        place = tail.end

    asked = lake.rows(address, "emitter IS NOT NULL", BY_NAME[TABLE].columns)
    numbers = Counter((row["emitter"], row["seq"]) for row in asked.to_pylist())
    assert followed == numbers
    assert set(numbers.values()) == {1}
    assert len(numbers) > 100
    assert {emitter for emitter, _seq in numbers} == {"cluster-1/broker-a/0"}
    at_least = len(lake.table(address).file_uris())
    assert at_least >= SHIPMENTS, "in an object store the shipper leaves merging to the maintainer"

    tend_until_merged(lake)
    assert place.version < newest_place(lake, address).version
    assert read_tail(lake, address, place).files == ()
    files, _end = snapshot(lake, address, {})
    assert rows_in(lake, files) == numbers
    assert f"maintaining {lake.root}" in tidemark("lake", "maintain", "--lake", lake.root)
    assert f"bronze/{TABLE}" in tidemark("lake", "status", "--lake", lake.root)


def tend_until_merged(lake: Lake) -> None:
    """By a process for which this day is over: merges wait for many files otherwise."""
    script = (
        "import sys; from datetime import UTC, datetime, timedelta;"
        "from pipelines.lake.lake import Lake; from pipelines.upkeep.maintainer import Maintainer;"
        "from pipelines.upkeep.settings import Upkeep;"
        "Maintainer(Lake.at(sys.argv[1]), Upkeep(), print)"
        ".round(datetime.now(UTC) + timedelta(days=2))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, lake.root], capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    assert f"bronze/{TABLE}: merged" in said.stdout
    assert len(lake.table(lake.bronze(TABLE)).file_uris()) == 1


def test_of_several_drivers_that_plan_at_the_same_time_one_does(lake: Lake) -> None:
    """Each was answered that it holds the lease, and stood still since."""
    beside = Lake(f"{lake.root}-of-drivers", lake.storage_options)
    opened(beside)
    assert recorded_at_once(beside, count=4) == 1


def test_a_store_that_is_not_reached_is_one_sentence(tmp_path: Path) -> None:
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("AWS_")},
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_MAX_RETRIES": "0",
    }
    began_s = time.monotonic()
    answer = subprocess.run(
        [TIDEMARK, "lake", "status", "--lake", "s3://bucket/lake"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert answer.returncode == 1
    [line] = answer.stderr.strip().splitlines()
    assert line.startswith("tidemark lake: s3://bucket/lake")
    assert time.monotonic() - began_s < 60
