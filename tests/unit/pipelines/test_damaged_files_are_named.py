"""A file of a lake that is damaged is named by its address, whoever reads it, with what to do."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.foundation.errors import LakeError
from pipelines.base.settings import Evaluation
from pipelines.cycles import job, task_failures
from pipelines.cycles.driver import Driver
from pipelines.cycles.work import BucketDone, WorkOrder
from pipelines.lake.lake import first_line
from tests.pipelines.bronze_lake import BronzeWriter
from tests.pipelines.in_process import driver_of

Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "empty": lambda _: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "of noughts": lambda data: bytes(len(data)),
    "with other bytes in its middle": lambda data: (
        data[:8] + b"\xff" * (len(data) - 16) + data[-8:]
    ),
}


def test_of_what_went_wrong_in_a_worker_the_last_sentence_is_shown() -> None:
    try:
        try:
            raise ValueError("no magic bytes")
        except ValueError as error:
            raise LakeError("part-7.parquet is damaged (no magic bytes)") from error
    except LakeError:
        trace = traceback.format_exc()
    worker = RuntimeError(f"An exception was thrown from the worker:\n{trace}\n\tat org.Spark.run")
    assert first_line(worker) == "part-7.parquet is damaged (no magic bytes)"


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """A lake with a cycle that is done, and one more shipment."""
    writer = BronzeWriter(tmp_path)
    driver = driver_of(tmp_path, evaluation=Evaluation())
    for second in range(2):
        writer.at(second)
        writer.report("lifecycle", kind="BOOT", clean=False)
        writer.ship()
        if second == 0:
            assert driver.next_cycle() is not None
    return driver


@pytest.mark.parametrize("files", ["bronze/lifecycle", "bronze/shipments", "state/keyed"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_cycle_names_the_file(driver: Driver, tmp_path: Path, files: str, damage: Damage) -> None:
    newest = max(
        (one for one in (tmp_path / files).rglob("*.*") if one.suffix in (".parquet", ".state")),
        key=lambda one: one.stat().st_mtime_ns,
    )
    newest.write_bytes(damage(newest.read_bytes()))
    with pytest.raises(LakeError, match=f"{re.escape(str(newest))} .*restore it from a copy"):
        driver.next_cycle()


def as_executors_do(order: WorkOrder) -> list[BucketDone]:
    """The two stages of a large cut, without Spark between them."""
    parts = [*job._read(order, range(max(1, len(order.readings))))]
    lines: list[str] = []
    for bucket in range(order.buckets):
        lines += job._judge(order, [part for part in parts if part[0] == bucket])
    return [BucketDone.from_json(text) for text in task_failures.done(lines)]


@pytest.mark.parametrize("files", ["bronze/lifecycle", "state/keyed"])
def test_executors_return_what_they_cannot_do_as_a_value(tmp_path: Path, files: str) -> None:
    """No error leaves a stage: Spark would make a report of it, and print that."""
    writer = BronzeWriter(tmp_path)
    driver = driver_of(tmp_path, evaluation=Evaluation(), job=as_executors_do)
    for second in range(2):
        writer.at(second)
        writer.report("lifecycle", kind="BOOT", clean=False)
        writer.ship()
        if second == 0:
            assert driver.next_cycle() is not None
    for file in (tmp_path / files).rglob("*.*"):
        if file.suffix in (".parquet", ".state"):
            file.write_bytes(b"")

    with pytest.raises(LakeError, match=f"^{re.escape(str(tmp_path / files))}/.* is damaged"):
        driver.next_cycle()


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_bit_that_has_flipped_in_the_state_is_no_truth(
    driver: Driver, tmp_path: Path, share: float
) -> None:
    """Also where Arrow would read any number, and a verdict would rest on it."""
    for file in (tmp_path / "state/keyed").rglob("*.state"):
        data = bytearray(file.read_bytes())
        data[int(share * len(data))] ^= 1
        file.write_bytes(data)
    with pytest.raises(LakeError, match=r"\.state is damaged \(its sum .*restore it from a copy"):
        driver.next_cycle()
