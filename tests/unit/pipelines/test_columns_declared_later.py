"""A lake made with fewer columns is opened, appended to, asked and tended; bronze and gold."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from engine.foundation.errors import LakeError
from engine.telemetry.shipper.arrow_schemas import Speaker, SpooledRow
from engine.telemetry.shipper.bronze_table import BronzeTable
from engine.telemetry.tables import LIFECYCLE, ColumnType, Table
from pipelines import tm
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.table_writes import add_declared_columns
from pipelines.reading.catalogue import BY_NAME, COMPUTED_TABLES, CONSUMER_LAG, DQ_FAILURES
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import Upkeep
from tests.gold_lake import write_gold_lake

LATER = "last_puller"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def gold_row(**known: Any) -> pa.Table:
    """A row of consumer_lag whose other columns hold something of their type."""
    values: dict[ColumnType, Any] = {
        ColumnType.STRING: "x",
        ColumnType.INT: 1,
        ColumnType.LONG: 1,
        ColumnType.TIMESTAMP: NOON,
        ColumnType.DATE: NOON.date(),
    }
    row = {column.name: values[column.type] for column in CONSUMER_LAG.columns} | known
    return pa.Table.from_pylist([row], arrow_schema(CONSUMER_LAG.columns))


def tended(lake: Lake) -> list[str]:
    said: list[str] = []
    Maintainer(lake, Upkeep(gold_days=9999, bronze_days=9999), said.append).round(
        datetime.now(UTC) + timedelta(days=2)
    )
    return said


def test_an_older_gold_table_is_appended_to_asked_and_merged(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    address = lake.gold(CONSUMER_LAG.name)
    for seq in (1, 2):
        older = gold_row(seq=seq).drop_columns([LATER])
        write_deltalake(address, older, mode="append", partition_by=["observed_date"])
    assert add_declared_columns(lake, address, CONSUMER_LAG.columns) == (LATER,)
    assert add_declared_columns(lake, address, CONSUMER_LAG.columns) == ()
    write_deltalake(address, gold_row(seq=3, last_puller="client-1"), mode="append")
    wanted = {1: None, 2: None, 3: "client-1"}

    def asked() -> dict[int, str | None]:
        rows = lake.rows(address, "true", CONSUMER_LAG.columns).to_pylist()
        return {row["seq"]: row[LATER] for row in rows}

    assert asked() == wanted
    assert "gold/consumer_lag: merged 3 files of 2026-03-01 into 1" in tended(lake)
    assert asked() == wanted
    write_deltalake(address, gold_row(seq=4, last_puller="client-2"), mode="append")
    assert asked() == {**wanted, 4: "client-2"}


def test_a_column_that_may_be_null_since_takes_null_beside_what_it_held(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    address = lake.gold(CONSUMER_LAG.name)
    fields = [
        field.with_nullable(False) if field.name == "lag_messages" else field
        for field in arrow_schema(CONSUMER_LAG.columns)
    ]
    older = gold_row(seq=1).cast(pa.schema(fields))
    write_deltalake(address, older, partition_by=["observed_date"])
    assert add_declared_columns(lake, address, CONSUMER_LAG.columns) == ()
    write_deltalake(address, gold_row(seq=2, lag_messages=None), mode="append")
    assert "gold/consumer_lag: merged 2 files of 2026-03-01 into 1" in tended(lake)
    rows = lake.rows(address, "true", CONSUMER_LAG.columns).to_pylist()
    assert {row["seq"]: row["lag_messages"] for row in rows} == {1: 1, 2: None}


def test_an_older_bronze_table_is_shipped_to_and_merged(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    address = lake.bronze(LIFECYCLE.name)
    older = Table(LIFECYCLE.name, LIFECYCLE.grain, LIFECYCLE.own[:-1])
    speaker = Speaker("c", "b", "c/b/0")
    moment_us = int(NOON.timestamp()) * 1_000_000
    kinds = ("BOOT", True, None, None, None)
    BronzeTable(older, address, {}).append(speaker, [SpooledRow(1, 1, moment_us, kinds)])
    newer = BronzeTable(LIFECYCLE, address, {})
    newer.append(speaker, [SpooledRow(2, 1, moment_us, (*kinds, "in words"))])
    said = tended(lake)
    assert "bronze/lifecycle: merged 2 files of 2026-03-01 into 1" in said
    rows = DeltaTable(address).to_pyarrow_table(columns=["seq", "detail"]).to_pylist()
    assert {row["seq"]: row["detail"] for row in rows} == {1: None, 2: "in words"}
    newer.append(speaker, [SpooledRow(3, 1, moment_us, (*kinds, "more"))])
    assert DeltaTable(address).count() == 3


QUESTIONS = ("groups", "lag", "stalls", "why", "duplicates", "ownership", "dead_letters")


def test_a_lake_that_nobody_has_written_since_answers_every_question(tmp_path: Path) -> None:
    lake = write_gold_lake(tmp_path / "lake")
    for table in COMPUTED_TABLES:
        later = [column.name for column in table.columns if column.nullable][-2:]
        older = DeltaTable(lake.gold(table.name)).to_pyarrow_table().drop_columns(later)
        shutil.rmtree(lake.gold(table.name))
        write_deltalake(lake.gold(table.name), older, partition_by=["observed_date"])
    asked = tm.connect(lake.root)
    for question in QUESTIONS:
        named = () if question == "groups" else ("shipping",)
        answer = getattr(asked, question)(*named)
        declared = [column for column in BY_NAME[answer.table].columns if column.nullable]
        assert {column.name for column in declared} <= set(answer.rows.columns)
    assert asked.groups().rows["retained_until"].to_list() == [None] * 3
    assert len(asked.explain(asked.stalls("shipping").rows.row(0, named=True))) > 0
    assert asked.sql('SELECT max("retained_until") FROM group_state').rows.item() is None


def test_a_table_of_another_kind_is_refused_with_what_differs(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    address = lake.gold("consumer_lag")
    write_deltalake(address, gold_row().drop_columns(["group"]))
    with pytest.raises(LakeError, match=r"group \(missing, never null\)"):
        add_declared_columns(lake, address, CONSUMER_LAG.columns)
    other = lake.gold(DQ_FAILURES.name)
    foreign = gold_row().rename_columns({"lag_messages": "run_id"})
    write_deltalake(other, foreign)
    with pytest.raises(LakeError, match=r"run_id .* instead of"):
        add_declared_columns(lake, other, DQ_FAILURES.columns)
