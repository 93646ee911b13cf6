"""The writer of a spool and its shipper are killed again and again; every row is in Delta exactly
once.

The independent record is what the writer said after each turn was written: the same moment at which
a broker's answers leave. Kill times are drawn from a seed; what they hit is up to the machine.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine.foundation.observing import LifecycleEvent
from engine.telemetry.events import row_of
from engine.telemetry.tables import TABLES
from tests.amounts import kills
from tests.integration.telemetry.bronze_rows import Row, assert_exactly_once, read_all
from tests.integration.telemetry.spool_writer import IDENTITY, LIFE_SPAN, TURN_FACTS_MAX, fact_of

ROOT = Path(__file__).parents[3]
SEED = 20_260_301
SEGMENT_BYTES = 100_000
"""Small, so that many segments are rolled, shipped and dropped."""


@dataclass
class Record:
    """What the writer's lives said: per life the number of the newest safe fact."""

    newest_safe: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    def safe_count(self) -> int:
        return sum(newest - life * LIFE_SPAN + 1 for life, newest in self.newest_safe.items())


def start_writer(store: Path, life: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.integration.telemetry.spool_writer",
            str(store),
            str(life),
            str(SEGMENT_BYTES),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )


def start_shipper(store: Path, lake: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "engine.telemetry.shipper",
            "--store",
            str(store),
            "--lake",
            str(lake),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )


def run_writers(store: Path, record: Record, kills: int) -> None:
    """So many lives that end by SIGKILL, then one that ends by SIGTERM."""
    choice = random.Random(SEED)
    for life in range(1, kills + 2):
        process = start_writer(store, life)
        assert process.stdout is not None
        first = process.stdout.readline()
        began = time.monotonic()
        last = life == kills + 1
        timer = threading.Timer(
            choice.uniform(0.1, 1.5),
            process.send_signal,
            [signal.SIGTERM if last else signal.SIGKILL],
        )
        timer.start()
        said = (first + process.stdout.read()).split(b"\n")
        record.seconds += time.monotonic() - began
        record.newest_safe[life] = int(said[-2])  # What follows the last newline was cut off.
        process.stdout.close()
        assert process.wait(10) == (0 if last else -signal.SIGKILL)


def kill_shippers(store: Path, lake: Path, least: int, *, more: threading.Event) -> int:
    """Shippers, at least so many, that end by SIGKILL, at any moment from start-up on, until `more`
    is unset; how many that were.
    """
    choice = random.Random(SEED + 1)
    kills = 0
    while kills < least or more.is_set():
        process = start_shipper(store, lake)
        assert process.stdout is not None
        if choice.random() < 0.9:  # Some die while they still open the tables.
            assert process.stdout.readline().startswith(b"shipping ")
        time.sleep(choice.uniform(0.02, 1.6))
        assert process.poll() is None, "a shipper ends by itself only when something is wrong"
        process.kill()
        process.wait(10)
        process.stdout.close()
        kills += 1
    return kills


def expected_row(number: int) -> tuple[str, Row]:
    table_number, values = row_of(fact_of(number))
    table = TABLES[table_number]
    return table.name, dict(zip(table.own_names, values, strict=True))


@pytest.mark.timeout(240)
@kills(4, in_full=20)
def test_every_fact_is_shipped_exactly_once_whatever_is_killed(tmp_path: Path, kills: int) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    record = Record()
    running = threading.Event()
    running.set()

    def write() -> None:
        try:
            run_writers(store, record, kills)
        finally:
            running.clear()

    writers = threading.Thread(target=write)
    writers.start()
    shipper_kills = kill_shippers(store, lake, kills, more=running)
    writers.join()
    assert len(record.newest_safe) == kills + 1, "every life of the writer said something"

    last = start_shipper(store, lake)
    assert last.stdout is not None
    assert last.stdout.readline().startswith(b"shipping ")
    last.terminate()
    assert last.wait(60) == 0, "SIGTERM ships what is there, then ends with 0"
    last.stdout.close()

    rows = read_all(lake)
    assert_exactly_once(rows, IDENTITY.emitter)
    compare(rows, record)
    rate = record.safe_count() / record.seconds
    assert shipper_kills >= kills
    assert rate >= 1000, f"{rate:.0f} facts/s: the kills must hit a busy writer"
    assert len(list((store / "spool").glob("*.seg"))) <= 3, "shipped segments are dropped"


def compare(rows: dict[str, list[Row]], record: Record) -> None:
    """Every safe fact once, in order, as it was emitted; beyond them at most the last turn of a
    killed life."""
    reports = {row["offset"]: row for row in rows["consume_offsets"]}
    events = {
        int(row["detail"].removeprefix("fact ")): row
        for row in rows["lifecycle"]
        if row["kind"] == "ROLE_CHANGE"
    }
    assert len(reports) == len(rows["consume_offsets"])
    found = sorted([*reports, *events])
    for life, newest in record.newest_safe.items():
        first = life * LIFE_SPAN
        numbers = [number for number in found if first <= number < first + LIFE_SPAN]
        assert numbers == list(range(first, first + len(numbers))), f"life {life} without a hole"
        assert newest <= numbers[-1] <= newest + TURN_FACTS_MAX, f"life {life}"
    lives = {number // LIFE_SPAN for number in found}
    assert lives == set(record.newest_safe), "nothing that nobody emitted"
    for number in found:
        table, expected = expected_row(number)
        row = events[number] if isinstance(fact_of(number), LifecycleEvent) else reports[number]
        assert {name: row[name] for name in expected} == expected, f"{table} {number}"
    in_order = sorted(found, key=lambda number: (events.get(number) or reports[number])["seq"])
    assert in_order == found, "seq follows the order of telling"
