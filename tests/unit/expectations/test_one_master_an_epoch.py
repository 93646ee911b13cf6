"""Row C9: two nodes of a broker that lead in one epoch are found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from expectations.batch import Batch
from expectations.memory import Memory
from expectations.new_files import new_facts
from expectations.suites.masters import CHECK, KEPT, masters_of_one_epoch, newest
from expectations.work import MASTERS, Order, UnitDone, carry_out
from pipelines.cycles.cuts import Cut
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from tests.pipelines.bronze_lake import BronzeWriter

NOTHING = pl.DataFrame(pl.from_arrow(arrow_schema(KEPT).empty_table()))

Said = tuple[str, str, str | None, int | None]
"""(broker, node, role, term)"""


def roles(*rows: Said) -> pl.DataFrame:
    columns: dict[str, list[Any]] = {
        "cluster": ["c" for _ in rows],
        "broker": [broker for broker, *_ in rows],
        "emitter": [f"c/{broker}/{node}" for broker, node, *_ in rows],
        "seq": [*range(len(rows))],
        "kind": ["ROLE_CHANGE" for _ in rows],
        "role": [role for *_, role, _ in rows],
        "term": [term for *_, term in rows],
    }
    return pl.DataFrame(columns, schema_overrides={"term": pl.Int64})


def found(*rows: Said, carried: pl.DataFrame = NOTHING) -> list[tuple[str, int]]:
    """(emitter, term) of rows that break the law."""
    return masters_of_one_epoch(roles(*rows), carried).select("emitter", "term").rows()


def test_two_masters_of_one_epoch_are_found_and_no_other_change_is() -> None:
    sound = [
        *(("a", "0", "MASTER", 3), ("a", "0", "MASTER", 3), ("a", "7", "SLAVE", 3)),
        *(("a", "7", "MASTER", 4), ("b", "0", "MASTER", 3), ("a", "9", None, None)),
    ]
    assert found(*sound) == []
    never_had_one = [("a", "0", "MASTER", 0), ("a", "7", "MASTER", 0)]
    assert found(*never_had_one) == []
    assert found(*sound, ("a", "9", "MASTER", 4)) == [("c/a/7", 4), ("c/a/9", 4)]


def test_who_has_led_is_carried_once_and_is_not_reported_again() -> None:
    first = newest(roles(("a", "0", "MASTER", 3), ("a", "7", "SLAVE", 3)), NOTHING)
    assert found(("a", "0", "MASTER", 3), ("b", "7", "MASTER", 3), carried=first) == []
    second = newest(roles(("a", "0", "MASTER", 3), ("b", "7", "MASTER", 3)), first)
    assert second.height == 2
    assert found(("a", "7", "MASTER", 3), carried=second) == [("c/a/7", 3)]
    assert found(("a", "7", "MASTER", 4), carried=second) == []


def checked(lake: Lake, node: int, term: int, carried: dict[str, str]) -> UnitDone:
    """A batch in which one node alone says that it leads."""
    writer = BronzeWriter(Path(lake.root))
    writer.emitter = f"cluster-1/broker-a/{node}"
    writer.report("lifecycle", kind="ROLE_CHANGE", role="MASTER", term=term)
    writer.ship()
    cut = Cut(writer.emitter, 0, writer.seq, 0, 1, 0, 1)
    batch = Batch("run", 0, 1, (cut,), is_last=True)
    new = {CHECK.table: new_facts(lake, CHECK.table, Memory().table(CHECK.table), batch)}
    return carry_out(Order(lake, batch, new, carried, lake.state("checks")), MASTERS)


def test_a_second_master_is_found_in_a_later_batch(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    first = checked(lake, 0, 3, {})
    second = checked(lake, 77, 3, dict(first.carried))
    assert [finding.broken_rows for finding in (*first.findings, *second.findings)] == [0, 1]
    assert second.findings[0].checked_rows == 1
