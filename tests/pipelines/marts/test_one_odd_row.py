"""One row that nothing can judge, in any column of any bronze table, stops no group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from engine.telemetry.tables import BY_NAME, TABLES, Column, ColumnType
from pipelines.base.settings import Evaluation
from pipelines.lake.lake import Lake, whole_table
from pipelines.marts.declared import steps
from pipelines.staging.soundness import BELOW, NULL, UNKNOWN_WORD, WORDS, Odd, sound
from tests.pipelines.bronze_lake import SECOND, START_US, BronzeWriter, bronze_table
from tests.pipelines.in_process import SHORT, driver_of
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze
from tests.pipelines.partition import run

STEPS = steps()
QUEUE: Final = {"group": "odd", "topic": "t", "queue_id": 0}
MARKS: Final = {"min_offset": 0, "max_offset": 100}
WHOLE: Final[dict[str, dict[str, Any]]] = {
    "consume_offsets": {
        **QUEUE,
        **MARKS,
        "offset": 50,
        "previous_offset": 40,
        "path": "COMMIT_RPC",
        "trigger": "TIMER",
        "accepted": True,
    },
    "queue_watermarks": {"topic": "t", "queue_id": 0, **MARKS, "readable": True},
    "group_watermarks": {
        **QUEUE,
        **MARKS,
        "pulled": 90,
        "committed": 80,
        "persisted": 70,
        "committed_state": "EXACT",
        "store_time_at_committed": START_US,
        "reports": 1,
        "message_model": "CLUSTERING",
        "members": 1,
    },
    "rebalance_events": {
        "group": "odd",
        "client_id": "c",
        "kind": "ASSIGNED",
        "inferred": True,
        "generation": 1,
        "before": ["a"],
        "after": ["a", "c"],
        "queues": [{"topic": "t", "queue_id": 0, "committed": 1, "pulled": 2}],
    },
    "client_windows": {
        **QUEUE,
        "client_id": "c",
        "first_held": 81,
        "last_held": 85,
        "held_count": 3,
        "held_bytes": 10,
        "held_ranges": [{"from_offset": 81, "to_offset": 84}],
        "head_message_id": "m",
        "head_since": START_US,
        "client_committed": 80,
        "locked": False,
        "dropped": False,
    },
    "retry_dlq_flow": {
        "group": "odd",
        "message_id": "m",
        "reconsume_times": 1,
        "step": "SENT_BACK",
    },
    "redeliveries": {
        **QUEUE,
        "from_offset": 80,
        "to_offset": 90,
        "client_id": "c",
        "previous_client_id": "d",
        "broker_epoch_before": START_US,
    },
    "flush_checkpoints": {
        "component": "COMMIT_LOG",
        "action": "FLUSH",
        "cause": "TIMER",
        "written": 10,
        "flushed": 9,
        "count": 1,
        "duration_us_sum": 5,
        "duration_us_max": 5,
    },
    "lifecycle": {"kind": "CLOCK_STEPPED", "step_ms": 5_000},
    "shipments": {},
    "offset_answers": {**QUEUE, "client_id": "c", "told_offset": 3, "committed": 5, "pulled": 9},
    "consume_stats": {"group": "odd", "client_id": "c", "topic": "t", "queues_held": 1},
    "reused_offsets": {**QUEUE, "offset": 50, "queue_end": 45, "message_id_before": "m"},
    "unread_deletions": {**QUEUE, "from_offset": 40, "to_offset": 45, "unread": 5},
    "pop_watermarks": {
        **QUEUE,
        "popped": 40,
        "max_offset": 50,
        "acknowledged": 3,
        "expired": 0,
    },
    "delay_levels": {
        "group": "*",
        "level": 3,
        "delay_ms": 10_000,
        "next_offset": 4,
        "end_offset": 6,
        "overdue": 1,
    },
    "cold_reads": {
        "group": "odd",
        "topic": "t",
        **dict.fromkeys(("pulls", "messages", "size_bytes", "behind_bytes_max"), 1),
        **dict.fromkeys(("resident_bytes", "messages_a_pull_max"), 1),
    },
}
"""A row per table in which everything that must be known is."""

HOSTILE: Final[dict[ColumnType, tuple[Any, ...]]] = {
    ColumnType.STRING: (None, "", "\x00", "a'b\"%_", "NOPE"),
    ColumnType.INT: (None, -1, -(2**31), 2**31 - 1),
    ColumnType.LONG: (None, -1, -(2**63), 2**63 - 1, 2**60),
    ColumnType.TIMESTAMP: (None, 0, -62_135_596_800 * SECOND, 253_402_300_799 * SECOND, 2**62),
    ColumnType.BOOLEAN: (None,),
    ColumnType.STRINGS: (None, [], [None]),
    ColumnType.LONGS: (None, [], [None], [-(2**63), 2**63 - 1]),
    ColumnType.RANGES: (None, [], [None], [{"from_offset": None, "to_offset": -(2**63)}]),
    ColumnType.OWNED_QUEUES: (
        *(None, [], [None]),
        [{"topic": None, "queue_id": None, "committed": None, "pulled": None}],
        [{"topic": "t", "queue_id": 0, "committed": -(2**63), "pulled": 2**63 - 1}],
    ),
}
ALL_BUT_NAMES: Final = ("event_time", "broker_epoch", "broker")
"""Common columns without which a row can still be found again."""


def columns_of(table: str) -> list[Column]:
    declared = BY_NAME[table]
    own = [column for column in declared.columns if column.name in declared.own_names]
    common = [column for column in declared.columns if column.name in ALL_BUT_NAMES]
    return [column for column in (*own, *common) if column.type in HOSTILE]


class ForeignWriter(BronzeWriter):
    """Writes tables whose columns may all be null."""

    def spoil(self, table: str, **values: Any) -> None:
        """Report a row with these values, common columns among them."""
        self.report(table, **WHOLE[table])
        self._waiting[table][-1].update(values)

    def _append(self, table: str, rows: list[dict[str, Any]]) -> None:
        declared = bronze_table(table, rows)
        write_deltalake(
            self.lake.bronze(table),
            pa.table(declared.columns, names=declared.column_names),
            mode="append",
            partition_by=["event_date"],
        )


class Story(Emitter):
    """A group that nobody reads any more, beside which odd rows come."""

    def spoil(self, table: str, column: str, value: Any) -> None:
        """Report a whole row of another group, but for one value."""
        self.report(table, **WHOLE[table])
        self._waiting[table][-1][column] = value


@pytest.mark.parametrize("table", [table.name for table in TABLES if table.name != "shipments"])
def test_no_value_of_any_column_stops_the_gold_of_another_group(table: str) -> None:
    columns = columns_of(table)
    try:
        _assert_good_is_judged(table, columns)
    except Exception:
        for column in columns:  # Which of them it is; or it takes several.
            with named(column):
                _assert_good_is_judged(table, [column])
        raise


@contextmanager
def named(column: Column) -> Iterator[None]:
    """What goes wrong says with which column."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with odd values of {column.name}")
        raise


def _assert_good_is_judged(table: str, columns: Sequence[Column]) -> None:
    """Beside rows each of which has one odd value in one of these columns."""
    rows: Rows = {}
    broker = Story(rows)
    broker.at(0)
    broker.boot()
    broker.report("lifecycle", kind="SNAPSHOT", seq_from=1)
    values = {column.name: iter(HOSTILE[column.type]) for column in columns}
    for second in range(1, 61, 6):
        broker.at(second)
        broker.watermark(group="good", max_offset=100 + second)
        if second > 6:
            for column in columns:
                broker.spoil(table, column.name, next(values[column.name], None))
        broker.ship()

    gold = run(STEPS, bronze(rows), Evaluation(), ends=[4])

    of_good = [row for row in gold["group_state"] if row["group"] == "good"]
    last = max(of_good, key=lambda row: row["observed_at"])
    if table == "lifecycle":  # Whose clock was set, or whose topics went, is another story.
        assert last["observed_at"].timestamp() > START_US / SECOND + 30
    else:
        assert last["state"] in ("STALLED", "STOPPED")
    assert all((row["lag_messages"] or 0) >= 0 for row in gold["consumer_lag"])


@pytest.mark.parametrize("table", [table.name for table in TABLES if table.name != "shipments"])
def test_a_whole_row_is_sound_and_each_null_and_number_below_0_is_named(table: str) -> None:
    rows: Rows = {}
    broker = Story(rows)
    broker.report(table, **WHOLE[table])
    broker.ship()
    (whole,) = rows[table]
    assert sound(table, bronze_table(table, [whole]))[1] == ()
    for column in BY_NAME[table].columns:
        if column.type is ColumnType.DATE:
            continue
        if not column.nullable:
            lacking = bronze_table(table, [whole, {**whole, column.name: None}])
            left, odd = sound(table, lacking)
            assert (left.num_rows, odd) == (1, (Odd(table, column.name, NULL, 1),))
        is_number = column.type in (ColumnType.INT, ColumnType.LONG)
        if is_number and column.name not in ("step_ms", "skew_ms"):  # Clocks go either way.
            below = bronze_table(table, [{**whole, column.name: -1}, whole])
            left, odd = sound(table, below)
            assert (left.num_rows, odd) == (1, (Odd(table, column.name, BELOW, 1),))


@pytest.mark.parametrize("words", [True, False], ids=["as texts of a dictionary", "as texts"])
def test_a_word_of_a_later_version_is_reported_and_its_row_stays(words: bool) -> None:
    for (table, column), known in WORDS.items():
        rows: Rows = {}
        broker = Story(rows)
        for word in (*known, "OF_TOMORROW"):
            broker.spoil(table, column, word)
        broker.ship()
        bronze = bronze_table(table, rows[table])
        if words:
            place = bronze.schema.get_field_index(column)
            bronze = bronze.set_column(place, column, bronze[column].dictionary_encode())
        left, odd = sound(table, bronze)
        assert (left.num_rows, odd) == (len(known) + 1, (Odd(table, column, UNKNOWN_WORD, 1),))


def test_the_state_of_a_later_version_is_unknown_with_the_reason() -> None:
    rows: Rows = {}
    broker = Story(rows)
    broker.boot()
    broker.watermark(committed_state="OF_TOMORROW")
    broker.ship()
    (row,) = run(STEPS, bronze(rows), Evaluation())["consumer_lag"]
    assert (row["lag_messages"], row["time_lag_ms"]) == (None, None)
    assert (row["provenance"], row["unknown_reason"]) == ("UNKNOWN", "WORD_NOT_KNOWN")


def test_a_cycle_goes_on_and_names_table_column_and_rule(tmp_path: Path) -> None:
    broker = ForeignWriter(tmp_path)
    for second in range(0, 60, 4):
        broker.at(second)
        broker.spoil("group_watermarks", group="good")
        if second == 8:
            broker.spoil("group_watermarks", group=None)
            broker.spoil("group_watermarks", queue_id=-1)
            broker.spoil("group_watermarks", reports=-1)
            broker.spoil("group_watermarks", emitter=None)
            broker.spoil("group_watermarks", seq=None)
            broker.spoil("flush_checkpoints", count=None)
            broker.spoil("lifecycle", kind=None)
        broker.ship()

    done = driver_of(tmp_path, evaluation=SHORT, buckets=3).next_cycle()

    assert done is not None
    lines = [line.strip() for line in str(done).splitlines()[1:]]
    assert lines == [
        "1 row of bronze/flush_checkpoints set aside: count is null where none may be",
        "1 row of bronze/group_watermarks set aside: emitter is null where none may be",
        "1 row of bronze/group_watermarks set aside: group is null where none may be",
        "1 row of bronze/group_watermarks set aside: queue_id is below 0",
        "1 row of bronze/group_watermarks set aside: reports is below 0",
        "1 row of bronze/group_watermarks set aside: seq is null where none may be",
        "1 row of bronze/lifecycle set aside: kind is null where none may be",
    ]
    home = Lake.at(str(tmp_path))
    states = whole_table(home.table(home.gold("group_state")))
    assert states["group"].to_pylist().count("good") > 0


@pytest.mark.parametrize(
    ("ahead_us", "time_lag_ms", "provenance", "reason"),
    [
        (0, 0, "EXACT", None),
        (SECOND, 0, "EXACT", None),
        (SECOND + 1, None, "UNKNOWN", "STORED_AHEAD"),
        (3600 * SECOND, None, "UNKNOWN", "STORED_AHEAD"),
    ],
)
def test_a_message_of_the_future_has_not_waited_for_0_s(
    ahead_us: int, time_lag_ms: int | None, provenance: str, reason: str | None
) -> None:
    rows: Rows = {}
    broker = Story(rows)
    broker.boot()
    broker.watermark(store_time_at_committed=broker.now_us + ahead_us)
    broker.ship()
    (row,) = run(STEPS, bronze(rows), Evaluation())["consumer_lag"]
    assert (row["lag_messages"], row["time_lag_ms"]) == (20, time_lag_ms)
    assert (row["provenance"], row["unknown_reason"]) == (provenance, reason)
