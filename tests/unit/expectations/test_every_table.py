"""Every declared table has its suite, and each of the checks that every table has can fail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema

from engine.telemetry.tables import TABLES, ColumnType, Table
from expectations.check import SAMPLE_ROWS_MAX
from expectations.suites.every_table import TOLD_AGAIN, Suite, suites
from expectations.suites.gold_against_facts import SET_LAWS
from expectations.suites.rows import ROW_LAWS
from expectations.violations import judge_repeats, judge_rows, judge_sound
from pipelines.base.settings import LOOK_BACK_US, SECOND_US
from pipelines.lake.lake import Lake
from pipelines.lake.schemas import arrow_schema
from pipelines.reading.catalogue import COMPUTED_TABLES
from pipelines.staging.soundness import WORDS

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_US = round(NOON.timestamp()) * SECOND_US
ODD_LISTS: dict[ColumnType, tuple[Any, ...]] = {
    ColumnType.RANGES: (
        [None],
        [{"from_offset": 1, "to_offset": 2}, {"from_offset": None, "to_offset": 9}],
        [{"from_offset": -1, "to_offset": 2}],
    ),
    ColumnType.OWNED_QUEUES: (
        [{"topic": None, "queue_id": 0, "committed": 1, "pulled": 2}],
        [{"topic": "t", "queue_id": 0, "committed": None, "pulled": 2**60 + 1}],
    ),
    ColumnType.TABLE_COUNTS: ([{"table": "lifecycle", "rows": None}],),
}
"""Lists with one entry that cannot be."""
every_suite = pytest.mark.parametrize("suite", suites(), ids=lambda suite: suite.table)


def rows(suite: Suite, count: int) -> pl.DataFrame:
    """Rows in which everything that must be known is."""
    columns = [column for column in suite.columns if column.type is not ColumnType.DATE]
    values: dict[ColumnType, Any] = {
        ColumnType.STRING: "x",
        ColumnType.BOOLEAN: False,
        ColumnType.TIMESTAMP: NOON,
        ColumnType.TABLE_COUNTS: [],
    }
    row = {one.name: None if one.nullable else values.get(one.type, 1) for one in columns}
    schema = pl.DataFrame(pl.from_arrow(arrow_schema(columns).empty_table())).schema
    return pl.DataFrame([row] * count, schema=schema)


def test_no_table_is_without_a_suite() -> None:
    declared = [table.name for table in TABLES] + [table.name for table in COMPUTED_TABLES]
    assert [suite.table for suite in suites()] == declared


def test_every_law_is_about_a_table_that_exists_and_no_name_is_given_twice() -> None:
    names = [law.check.name for law in (*ROW_LAWS, *SET_LAWS)]
    assert len(names) == len(set(names))
    tables = {suite.table for suite in suites()}
    assert {law.check.table for law in ROW_LAWS} <= tables
    assert {name for law in SET_LAWS for name in law.reads} <= tables


@every_suite
def test_a_row_that_lacks_what_must_be_known_is_found(suite: Suite) -> None:
    filled = suite.laws[0]
    for column in suite.columns:
        if column.nullable or column.type is ColumnType.DATE:
            continue
        lacking = rows(suite, 3).with_columns(
            pl.when(pl.int_range(pl.len()) == 1)
            .then(None)
            .otherwise(column.name)
            .alias(column.name)
        )
        (found,) = judge_rows([filled], lacking)
        assert (found.checked_rows, found.broken_rows) == (3, 1), column.name
    assert judge_rows([filled], rows(suite, 3))[0].broken_rows == 0


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_fact_with_a_number_that_nothing_can_be_is_found(table: Table) -> None:
    suite = next(one for one in suites() if one.table == table.name)
    known = {column: words[0] for (of, column), words in WORDS.items() if of == table.name}
    whole = rows(suite, 2).with_columns(pl.lit(word).alias(name) for name, word in known.items())
    assert judge_sound(suite.sound, whole).broken_rows == 0
    for column in suite.columns:
        odd: list[Any] = []
        is_number = column.type in (ColumnType.INT, ColumnType.LONG)
        if is_number and column.name not in ("step_ms", "skew_ms"):  # Clocks go either way.
            odd = [-1]
        if column.type is ColumnType.LONG:
            odd += [2**60 + 1, -(2**63)]
        if column.type is ColumnType.TIMESTAMP:
            odd = [datetime(9999, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]
        if column.name in known:
            odd = ["OF_TOMORROW"]
        odd += ODD_LISTS.get(column.type, ())
        for value in odd:
            kind = whole.schema[column.name]
            broken = whole.with_columns(pl.Series(column.name, [value] * 2, dtype=kind))
            found = judge_sound(suite.sound, broken)
            assert found.broken_rows == 2, (column.name, value)
            assert f"odd={column.name} is " in found.failures[0].detail


@every_suite
def test_a_key_that_is_there_twice_is_found(suite: Suite) -> None:
    twice = judge_repeats(suite.unique, rows(suite, 2), suite.key)
    assert (twice.broken_rows, len(twice.failures)) == (1, 1)
    assert judge_repeats(suite.unique, rows(suite, 1), suite.key).broken_rows == 0


@every_suite
def test_a_column_of_another_type_or_a_missing_one_is_found(suite: Suite, tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    assert suite.judge_schema(lake).checked_rows == 0
    address = lake.gold(suite.table) if suite.gold is not None else lake.bronze(suite.table)
    schema = arrow_schema(suite.columns)
    place = schema.get_field_index("emitter")
    other = schema.set(place, schema.field(place).with_type(pa.int64())).remove(
        schema.get_field_index(suite.moment)
    )
    DeltaTable.create(address, Schema.from_arrow(other))

    found = suite.judge_schema(lake)

    assert {one.row_key for one in found.failures} == {"emitter", suite.moment}


@every_suite
def test_a_table_that_falls_behind_or_runs_ahead_is_not_fresh(suite: Suite) -> None:
    def broken(*, newest_us: int, horizon_us: int = NOON_US) -> int:
        found = suite.judge_fresh(
            newest_us=newest_us, judged_to_us=NOON_US, horizon_us=horizon_us, rows=1
        )
        return found.broken_rows

    assert broken(newest_us=NOON_US) == 0
    late_us = NOON_US + 61 * SECOND_US
    assert broken(newest_us=NOON_US, horizon_us=late_us) == (suite.gold is not None)
    is_shipments = suite.table == "shipments"
    assert broken(newest_us=NOON_US + 2 * SECOND_US) == (not is_shipments), "shipped behind facts"
    assert broken(newest_us=NOON_US + 61 * SECOND_US) == 1
    old_us = NOON_US - LOOK_BACK_US - 61 * SECOND_US
    assert broken(newest_us=old_us) == (suite.table in TOLD_AGAIN)


def test_of_many_failing_rows_a_bounded_sample_is_kept() -> None:
    suite = next(one for one in suites() if one.table == "group_watermarks")
    law = next(one for one in suite.laws if one.check.name == "committed_at_most_max")
    many = rows(suite, 1_000).with_columns(
        pl.lit(9, pl.Int64).alias("committed"),
        pl.lit("c/b/0").alias("emitter"),
        (pl.col("event_time") + timedelta(seconds=1)).alias("event_time"),
    )

    (found,) = judge_rows([law], many)

    assert (found.broken_rows, len(found.failures)) == (1_000, SAMPLE_ROWS_MAX)
    assert found.failures[0].group == "x"


@pytest.mark.parametrize("table", ["group_watermarks", "consumer_lag"])
@pytest.mark.parametrize(("emitter", "broken"), [("c/b/0", 1), ("c/b/observer", 0)])
def test_a_foreign_broker_may_keep_an_offset_beyond_the_end_and_ours_may_not(
    table: str, emitter: str, broken: int
) -> None:
    suite = next(one for one in suites() if one.table == table)
    laws = [one for one in suite.laws if one.check.name.endswith("committed_at_most_max")]
    one = rows(suite, 1).with_columns(
        pl.lit(9, pl.Int64).alias("committed"),
        pl.lit(6, pl.Int64).alias("max_offset"),
        pl.lit(emitter).alias("emitter"),
    )
    (found,) = judge_rows(laws, one)
    assert found.broken_rows == broken
