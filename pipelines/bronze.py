"""The rows of bronze that one cycle works on, read by delta-rs and handed to Spark as one frame per
table.

Place in the walk: after the plan, before the marts. Reading a few thousand new rows this way costs
milliseconds; nine streaming sources cost seconds (docs/adr/0003-gold-by-a-driver-loop.md).

Invariant: what is read depends on the plan alone, so a cycle that is run again reads the same rows.
Absent on purpose: meaning. Rows get one column more: `is_new`, whether they belong to the cut or to
the look-back before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import BY_NAME, TABLES
from pipelines.lake import Lake, sql_moment, sql_text
from pipelines.marks import SHIPPER_SUFFIX, Cut
from pipelines.schemas import arrow_schema
from pipelines.settings import RETRY_SPAN_US

LOOK_BACK_TABLES: Final = (
    "group_watermarks",
    "client_windows",
    "rebalance_events",
    "redeliveries",
    "lifecycle",
)
"""Read from the look-back on; of the others only new rows are needed."""


@dataclass(frozen=True, slots=True)
class BronzeRows:
    """What one cycle has read."""

    tables: dict[str, pa.Table]
    """Per bronze table: its columns and `is_new`."""
    row_numbers: pa.Table
    """emitter and seq of every new row of every table but shipments."""
    activity: pa.Table
    """emitter and second_us of every second in which the emitter reported anything, look-back
    included.
    """

    def has_new(self, table: str, condition: pc.Expression | None = None) -> bool:
        """Does a row of `table` in the cut satisfy `condition`, or is there one at all?"""
        wanted = pc.field("is_new") if condition is None else pc.field("is_new") & condition
        return bool(self.tables[table].filter(wanted).num_rows)


def read_bronze(lake: Lake, cuts: Sequence[Cut], *, look_back_us: int) -> BronzeRows:
    """The rows in the cuts, and those of the look-back before them."""
    tables = {}
    numbers = []
    seconds = []
    for table in TABLES:
        if table.name == "shipments":
            tables[table.name] = _shipments(lake, cuts)
            continue
        back_us = look_back_us if table.name in LOOK_BACK_TABLES else 0
        rows = _rows(lake, table.name, cuts, back_us)
        if table.name == "retry_dlq_flow":
            rows = pa.concat_tables([_first_failures(lake, rows, cuts), rows])
        tables[table.name] = rows
        numbers.append(rows.filter(rows["is_new"]).select(["emitter", "seq"]))
        seconds.append(_seconds(rows))
    return BronzeRows(
        tables,
        pa.concat_tables(numbers),
        pa.concat_tables(seconds).group_by(["emitter", "second_us"]).aggregate([]),
    )


def _rows(lake: Lake, name: str, cuts: Sequence[Cut], back_us: int) -> pa.Table:
    columns = BY_NAME[name].columns
    address = lake.bronze(name)
    if not cuts or not lake.exists(address):
        return _flagged(arrow_schema(columns).empty_table(), cuts)
    wanted = " OR ".join(_reach(cut, back_us) for cut in cuts)
    return _flagged(lake.rows(address, wanted, columns), cuts)


def _reach(cut: Cut, back_us: int) -> str:
    """Rows of one emitter: those of the cut, and those not older than `back_us` before it."""
    wanted = f"seq > {cut.seq_from}"
    if back_us and cut.time_from_us:
        begin = sql_moment(cut.time_from_us - back_us)
        wanted = f"({wanted} OR event_time >= {begin})"
    return f"(emitter = {sql_text(cut.emitter)} AND seq <= {cut.seq_to} AND {wanted})"


def _first_failures(lake: Lake, steps: pa.Table, cuts: Sequence[Cut]) -> pa.Table:
    """Earlier SENT_BACK rows, hours old perhaps, of the messages dead-lettered in the cut."""
    letters = steps.filter((pc.field("step") == "DEAD_LETTERED") & pc.field("is_new"))
    ids = letters["message_id"].drop_null().unique().to_pylist()
    if not ids:
        return steps.slice(0, 0)
    oldest_us = pc.min(pc.cast(letters["event_time"], pa.int64())).as_py() - RETRY_SPAN_US
    before = " OR ".join(
        f"(emitter = {sql_text(cut.emitter)} AND seq <= {cut.seq_from})" for cut in cuts
    )
    same = ", ".join(sql_text(message_id) for message_id in ids)
    wanted = (
        f"({before}) AND step = 'SENT_BACK' AND event_time >= {sql_moment(oldest_us)} "
        f"AND message_id IN ({same})"
    )
    table = BY_NAME["retry_dlq_flow"]
    return _flagged(lake.rows(lake.bronze(table.name), wanted, table.columns), cuts)


def _shipments(lake: Lake, cuts: Sequence[Cut]) -> pa.Table:
    columns = BY_NAME["shipments"].columns
    if not cuts:
        return _flagged(arrow_schema(columns).empty_table(), cuts)
    wanted = " OR ".join(
        f"(emitter = {sql_text(cut.emitter + SHIPPER_SUFFIX)}"
        f" AND seq_to > {cut.seq_from} AND seq_to <= {cut.seq_to})"
        for cut in cuts
    )
    found = lake.rows(lake.bronze("shipments"), wanted, columns)
    return found.append_column("is_new", pa.repeat(pa.scalar(True), found.num_rows))


def _flagged(rows: pa.Table, cuts: Sequence[Cut]) -> pa.Table:
    """Append `is_new`: the row's seq lies beyond its emitter's mark."""
    marks = pa.table(
        {
            "emitter": pa.array([cut.emitter for cut in cuts], pa.string()),
            "mark": pa.array([cut.seq_from for cut in cuts], pa.int64()),
        }
    )
    place = pc.index_in(rows["emitter"], marks["emitter"])
    flags = pc.greater(rows["seq"], marks["mark"].take(place))
    return rows.append_column("is_new", flags)


def _seconds(rows: pa.Table) -> pa.Table:
    second = pc.floor_temporal(rows["event_time"], unit="second")
    return pa.table({"emitter": rows["emitter"], "second_us": pc.cast(second, pa.int64())})
