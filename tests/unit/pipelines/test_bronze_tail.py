"""What is new in bronze, as the driver learns of it: each shipment once, however often listed."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from pipelines.cycles import bronze_tail
from pipelines.cycles.bronze_tail import BronzeTail
from pipelines.cycles.cuts import Cut, next_cuts
from tests.pipelines.bronze_lake import BronzeWriter


def shipped(broker: BronzeWriter, count: int) -> None:
    """So many shipments of a row each."""
    for _ in range(count):
        broker.report("lifecycle", kind="STARTED")
        broker.ship()


def seqs(tail: BronzeTail, marks: tuple[Cut, ...] = ()) -> list[int]:
    """In order: the files of a table keep none."""
    return sorted(one.seq for one in tail.shipments(marks))


def test_shipments_that_a_merged_file_repeats_are_known_once(
    tmp_path: Path,
) -> None:
    broker = BronzeWriter(tmp_path)
    shipped(broker, 4)
    tail = BronzeTail(broker.lake, {})
    assert seqs(tail) == [1, 2, 3, 4]
    shipped(broker, 2)
    table = DeltaTable(broker.lake.bronze(bronze_tail.SHIPMENTS))
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert seqs(tail) == [1, 2, 3, 4, 5, 6]


def test_shipments_that_a_cycle_took_are_forgotten(tmp_path: Path) -> None:
    broker = BronzeWriter(tmp_path)
    shipped(broker, 3)
    tail = BronzeTail(broker.lake, {})
    [cut] = next_cuts((), tail.shipments(()), rows_max=2)
    assert (cut.seq_to, cut.shipment_to) == (2, 2)
    assert seqs(tail, (cut,)) == [3]
    shipped(broker, 1)
    assert seqs(tail, (cut,)) == [3, 4]
