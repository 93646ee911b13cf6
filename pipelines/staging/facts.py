"""Converts bronze rows into the columnar facts that marts read.

Place in the walk: bronze files → facts of a hash bucket → marts. One to one: moments become whole
microseconds, repeating texts dictionaries, and the plain consequences of a row are added to it.

Invariant: facts lie in the order of (emitter, seq), whatever the order in files; every moment is a
column `*_us`, µs since 1970 UTC. A table's reach says whom its rows concern: the groups of one
bucket, all kept by emitter, or everybody. Absent on purpose: meaning that needs a second row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import BY_NAME, TABLES, Column, ColumnType
from pipelines.base.settings import CLOCK_STEP_ALLOWED_US
from pipelines.lake.schemas import KEY_TEXT, arrow_schema
from pipelines.staging.soundness import COMMITTED_STATES

SHIPPER_SUFFIX: Final = "/shipper"


class Reach(Enum):
    """Which partitions of a cycle are given the rows of a bronze table."""

    GROUP = "the partition of the row's cluster and group"
    EMITTER = "the partition of the row's emitter"
    ALL = "every partition"


_REACHES: Final[Mapping[str, Reach]] = {
    "queue_watermarks": Reach.EMITTER,
    "flush_checkpoints": Reach.EMITTER,
    "lifecycle": Reach.ALL,
    "shipments": Reach.ALL,
}
"""All others have a group."""

_OWN_TEXTS: Final = frozenset(
    {
        *("message_id", "message_id_before", "head_message_id"),
        *("detail", "reason", "stack", "before", "after"),
    }
)
"""Texts that hardly repeat."""


def reach_of(table: str) -> Reach:
    """How far the rows of a bronze table reach: whom they concern."""
    return _REACHES.get(table, Reach.GROUP)


@cache
def fact_schema(table: str) -> pa.Schema:
    """The columns of a bronze table's facts, without its derived ones."""
    return pa.schema(
        [
            _fact_field(column, arrow_schema([column]).field(0))
            for column in BY_NAME[table].columns
            if column.name != "event_date"
        ]
    )


def is_one_of(column: pa.ChunkedArray, *texts: str) -> pa.ChunkedArray:
    """Per row: is the text one of these? False where it is unknown."""
    wanted = pa.array(texts, pa.string())
    if not pa.types.is_dictionary(column.type):
        return pc.is_in(column, value_set=wanted)
    whole = column.unify_dictionaries().combine_chunks()  # Each text is looked at once, not a row.
    found = pc.is_in(pc.cast(whole.dictionary, pa.string()), value_set=wanted)
    if not found.true_count:
        return pa.chunked_array([pa.repeat(False, len(whole))])
    return pa.chunked_array([pc.fill_null(found.take(whole.indices), False)], pa.bool_())


def _fact_field(column: Column, field: pa.Field) -> pa.Field:
    if column.type is ColumnType.TIMESTAMP:
        return pa.field(moment_name(column.name), pa.int64(), column.nullable)
    if column.type is ColumnType.STRING and column.name not in _OWN_TEXTS:
        return pa.field(column.name, KEY_TEXT, column.nullable)
    return field


def moment_name(name: str) -> str:
    """Name of a moment's column among facts: event_time → event_us, head_since → head_since_us."""
    return name.replace("_time", "_us") if "_time" in name else f"{name}_us"


@cache
def bronze_names(table: str) -> Mapping[str, str]:
    """Per bronze column of a table, its name among facts."""
    return {
        column.name: moment_name(column.name)
        if column.type is ColumnType.TIMESTAMP
        else column.name
        for column in BY_NAME[table].columns
        if column.name != "event_date"
    }


def as_facts(table: str, rows: pa.Table) -> pa.Table:
    """Rows of a bronze table, in any order, as facts in the order of (emitter, seq), with what
    follows from each.

    A nullable column that the rows lack, since their file is older, is null.
    """
    schema = fact_schema(table)
    names = bronze_names(table)
    columns = []
    for name, field in zip(names, schema, strict=True):
        if name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows[name]
        if column.type != field.type and pa.types.is_timestamp(column.type):
            column = pc.cast(pc.cast(column, pa.timestamp("us", tz="UTC")), pa.int64())
        columns.append(pc.cast(column, field.type))
    facts = pa.table(columns, schema=schema)
    derive = _DERIVED.get(table)
    return in_order(facts if derive is None else derive(facts))


@cache
def no_facts(table: str) -> pa.Table:
    """None of a bronze table's facts."""
    return as_facts(table, arrow_schema(BY_NAME[table].columns).empty_table())


def in_order(facts: pa.Table) -> pa.Table:
    """The facts by emitter and seq, in one chunk a column."""
    whole = facts.unify_dictionaries().combine_chunks()
    if whole.num_rows < 2:
        return whole
    emitters = np.asarray(_ranks(whole["emitter"].chunk(0)))
    seqs = np.asarray(whole["seq"])
    same = emitters[1:] == emitters[:-1]
    if ((emitters[1:] > emitters[:-1]) | (same & (seqs[1:] >= seqs[:-1]))).all():
        return whole
    return whole.take(pa.array(np.lexsort((seqs, emitters))))


def _ranks(texts: pa.DictionaryArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Numbers that lie in the order of the texts."""
    by_text = np.argsort(np.asarray(texts.dictionary.to_pylist(), dtype=object), kind="stable")
    rank = np.empty(len(by_text), np.int64)
    rank[by_text] = np.arange(len(by_text))
    return np.asarray(rank[np.asarray(texts.indices)])


def _with_lag(facts: pa.Table) -> pa.Table:
    """Is the group a broadcasting one, and how far behind is it, in messages and in time? Null
    where one is unknown: a consume offset beyond the end says nothing of either, and a message
    that was stored after now, by more than clocks may differ, nothing of time. Without a consume
    offset a group is behind from where it began; in an empty queue nothing waits for it.
    """
    state = facts["committed_state"]
    is_broadcast = is_one_of(facts["message_model"], "BROADCASTING")
    unknown = pa.scalar(None, pa.int64())
    since_us = pc.subtract(facts["event_us"], facts["store_us_at_committed"])
    waited_us = pc.if_else(
        pc.less(since_us, -CLOCK_STEP_ALLOWED_US),
        unknown,
        pc.max_element_wise(since_us, 0, skip_nulls=False),
    )
    is_beyond = pc.fill_null(pc.greater(facts["committed"], facts["max_offset"]), False)
    has_lag = is_one_of(state, *(word for word in COMMITTED_STATES if word != "NONE"))
    is_none = is_one_of(state, "NONE")
    unread = _unread(facts)
    is_unknown = pc.or_(is_broadcast, is_beyond)
    lag = pc.case_when(
        pc.make_struct(is_unknown, has_lag, is_none),
        unknown,
        pc.subtract(facts["max_offset"], facts["committed"]),
        unread,
        unknown,
    )
    waits = pc.or_(is_one_of(state, "EXACT", "UNREADABLE"), is_none)
    is_at_end = pc.and_(is_none, pc.fill_null(pc.equal(unread, 0), False))
    is_at_end = pc.or_(is_one_of(state, "AT_END"), is_at_end)
    time_lag_us = pc.case_when(
        pc.make_struct(is_unknown, is_at_end, waits),
        unknown,
        pa.scalar(0, pa.int64()),
        waited_us,
        unknown,
    )
    return (
        facts.append_column("is_broadcast", is_broadcast)
        .append_column("lag_messages", lag)
        .append_column("time_lag_us", time_lag_us)
    )


def _unread(facts: pa.Table) -> pa.ChunkedArray:
    """Messages that a group without a consume offset has not read since it began; null where nobody
    knows where that was and the queue holds any.
    """
    first, end = facts["min_offset"], facts["max_offset"]
    nothing = pc.if_else(pc.equal(first, end), end, pa.scalar(None, pa.int64()))
    began = pc.max_element_wise(facts["began"], first, skip_nulls=False)
    return pc.max_element_wise(pc.subtract(end, pc.coalesce(began, nothing)), 0, skip_nulls=False)


def _with_sizes(facts: pa.Table) -> pa.Table:
    """How many members, or subscriptions, before and after; null when not reported."""
    return facts.append_column(
        "members_before", pc.list_value_length(facts["before"])
    ).append_column("members_after", pc.list_value_length(facts["after"]))


def _with_span(facts: pa.Table) -> pa.Table:
    """Messages delivered again: as reported, else the span of offsets."""
    span = pc.subtract(facts["to_offset"], facts["from_offset"])
    return facts.append_column("messages", pc.coalesce(facts["delivered_count"], span))


def _of_emitter(facts: pa.Table) -> pa.Table:
    """Shipments under the name of the emitter whose rows they are."""
    name = facts.schema.get_field_index("emitter")
    spoken_of = pc.replace_substring_regex(
        pc.cast(facts["emitter"], pa.string()), f"{SHIPPER_SUFFIX}$", ""
    )
    return facts.set_column(name, "emitter", pc.cast(spoken_of, KEY_TEXT))


_DERIVED: Final[Mapping[str, Callable[[pa.Table], pa.Table]]] = {
    "group_watermarks": _with_lag,
    "rebalance_events": _with_sizes,
    "redeliveries": _with_span,
    "shipments": _of_emitter,
}


def row_numbers(bronze: Mapping[str, pa.Table]) -> pa.Table:
    """emitter and seq of all rows of bronze tables but shipments, in order."""
    parts = [
        rows.select(["emitter", "seq"]).cast(NUMBERS)
        for name, rows in bronze.items()
        if name != "shipments"
    ]
    return in_order(pa.concat_tables(parts) if parts else NUMBERS.empty_table())


NUMBERS: Final = pa.schema([("emitter", KEY_TEXT), ("seq", pa.int64())])
FACT_TABLES: Final = tuple(table.name for table in TABLES)
