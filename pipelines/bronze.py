"""The rows of bronze that one cycle works on, read by delta-rs and handed to Spark as one frame per
table.

Place in the walk: after the plan, before the marts. Reading a few thousand new rows this way costs
milliseconds; nine streaming sources cost seconds (docs/adr/gold-by-a-driver-loop.md).

Invariant: what is read depends on the plan alone, so a cycle that is run again reads the same rows.
Absent on purpose: meaning. Rows get one column more: `is_new`, whether they belong to the cut or to
the look-back before it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads

from engine.telemetry.tables import BY_NAME, TABLES
from pipelines.lake import Lake, arrow_schema
from pipelines.marks import SHIPPER_SUFFIX, Cut
from pipelines.settings import RETRY_SPAN_US

LOOK_BACK_TABLES: Final = (
    "group_watermarks",
    "client_windows",
    "rebalance_events",
    "redeliveries",
    "lifecycle",
)
"""Read from the look-back on; of the others only new rows are needed."""

_UTC_US: Final = pa.timestamp("us", tz="UTC")


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
    schema = arrow_schema(BY_NAME[name].columns)
    address = lake.bronze(name)
    if not cuts or not lake.exists(address):
        return _flagged(schema.empty_table(), cuts)
    found = lake.rows(address, _any(_reach(cut, back_us) for cut in cuts), schema.names)
    return _flagged(found.cast(schema), cuts)


def _first_failures(lake: Lake, steps: pa.Table, cuts: Sequence[Cut]) -> pa.Table:
    """Earlier SENT_BACK rows, hours old perhaps, of the messages dead-lettered in the cut."""
    letters = steps.filter(pc.field("step") == "DEAD_LETTERED")
    if not letters.num_rows:
        return steps.slice(0, 0)
    oldest_us = pc.min(pc.cast(letters["event_time"], pa.int64())).as_py() - RETRY_SPAN_US
    begin = pa.scalar(oldest_us, pa.int64()).cast(_UTC_US)
    before = _any(
        (pads.field("emitter") == cut.emitter) & (pads.field("seq") <= cut.seq_from) for cut in cuts
    )
    same = pads.field("message_id").isin(letters["message_id"].combine_chunks())
    wanted = before & same & (pads.field("step") == "SENT_BACK")
    schema = arrow_schema(BY_NAME["retry_dlq_flow"].columns)
    found = lake.rows(
        lake.bronze("retry_dlq_flow"), wanted & (pads.field("event_time") >= begin), schema.names
    )
    return _flagged(found.cast(schema), cuts)


def _reach(cut: Cut, back_us: int) -> pads.Expression:
    """Rows of one emitter: those of the cut, and those not older than `back_us` before it."""
    seq = pads.field("seq")
    wanted = seq > cut.seq_from
    if back_us and cut.time_from_us:
        begin = pa.scalar(cut.time_from_us - back_us, pa.int64()).cast(_UTC_US)
        wanted = wanted | (pads.field("event_time") >= begin)
    return (pads.field("emitter") == cut.emitter) & (seq <= cut.seq_to) & wanted


def _shipments(lake: Lake, cuts: Sequence[Cut]) -> pa.Table:
    schema = arrow_schema(BY_NAME["shipments"].columns)
    if not cuts:
        return _flagged(schema.empty_table(), cuts)
    wanted = _any(
        (pads.field("emitter") == cut.emitter + SHIPPER_SUFFIX)
        & (pads.field("seq_to") > cut.seq_from)
        & (pads.field("seq_to") <= cut.seq_to)
        for cut in cuts
    )
    found = lake.rows(lake.bronze("shipments"), wanted, schema.names).cast(schema)
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


def _any(conditions: object) -> pads.Expression:
    return functools.reduce(operator.or_, conditions)  # type: ignore[call-overload]
