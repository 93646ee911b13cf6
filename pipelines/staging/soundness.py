"""Sets aside and reports bronze rows that violate their table's declaration.

Place in the walk: bronze files → rows of a cut → here → hash buckets. A row with a null where none
may be, or an impossible number, is reported with table, column and rule, and judged by nobody. The
checks of the lake count the same rows (`oddities`).

Invariant: no row that passes can end a cycle by its values alone, so one odd row never stops the
gold of all groups. A row that is set aside still counts as reported. Absent on purpose: repairs. A
word that this version does not know is reported, but its row stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from engine.telemetry.tables import BY_NAME, Column, ColumnType

NUMBER_MAX: Final = 2**60
"""No offset, count or size is larger: differences and small sums of such numbers stay whole numbers
of 64 bits.
"""
MOMENT_MAX: Final = 2**53
"""No moment in µs since 1970 is later (the year 2255), and no time in ms longer."""
NULL: Final = "null where none may be"
BELOW: Final = "below 0"
TOO_LARGE: Final = "larger than anything can be"
INCOMPLETE: Final = "a list with an entry that lacks a name or a sound number"
UNKNOWN_WORD: Final = "a word that this version does not know"

_SIGNED: Final = frozenset({("lifecycle", "step_ms"), ("lifecycle", "skew_ms")})
"""Numbers that may be below 0: a clock is set back, or behind another one."""
_MOMENTS: Final = frozenset({"broker_epoch", "broker_epoch_before"})
"""Whole numbers that are moments; times are reported by the unit in their names."""
_NUMBERS: Final = (ColumnType.INT, ColumnType.LONG, ColumnType.TIMESTAMP)
_ENTRIES: Final[Mapping[ColumnType, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    ColumnType.RANGES: (("from_offset", "to_offset"), ()),
    ColumnType.OWNED_QUEUES: (("topic", "queue_id"), ("committed", "pulled")),
    ColumnType.TABLE_COUNTS: (("table", "rows"), ()),
}
"""Per type of list, what every entry must have, and what it may have."""

COMMITTED_STATES: Final = ("EXACT", "AT_END", "PURGED", "UNREADABLE", "NONE")
WORDS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("consume_offsets", "path"): (
        *("COMMIT_RPC", "PULL_PIGGYBACK", "TRANSACTION", "RESET", "RESTORE", "LOCAL", "OBSERVED"),
        *("NEW_LIFE", "PULL"),
    ),
    ("consume_offsets", "trigger"): ("TIMER", "SHUTDOWN", "HAND_OVER", "UNKNOWN"),
    ("group_watermarks", "committed_state"): COMMITTED_STATES,
    ("group_watermarks", "message_model"): ("CLUSTERING", "BROADCASTING"),
    ("rebalance_events", "kind"): (
        *("JOINED", "LEFT", "EXPIRED", "SUBSCRIPTION_CHANGED", "SUBSCRIPTION_CONFLICT"),
        *("QUEUES_CHANGED", "CLIENT_ID_SHARED", "ASSIGNED", "REVOKED"),
    ),
    ("retry_dlq_flow", "step"): (
        *("SENT_BACK", "SCHEDULED", "DELIVERED", "LOCAL_RETRY", "DEAD_LETTERED", "REDRIVEN"),
        *("DISCARDED", "EXPIRED", "SENT_AGAIN", "INVISIBLE_TIME_EXPIRED"),
    ),
}
"""Columns that hold one of some words, and which."""


@dataclass(frozen=True, slots=True, order=True)
class Odd:
    """Rows of a bronze table that break one rule in one column."""

    table: str
    column: str
    rule: str
    rows: int

    @property
    def is_set_aside(self) -> bool:
        """Are they judged by nobody? Else only the column's word is taken as unknown."""
        return self.rule != UNKNOWN_WORD

    def __str__(self) -> str:
        count = f"{self.rows} row{'' if self.rows == 1 else 's'} of bronze/{self.table}"
        did = f"{count} set aside" if self.is_set_aside else f"{count} taken without a word"
        return f"{did}: {self.column} is {self.rule}"


def sound(table: str, rows: pa.Table) -> tuple[pa.Table, tuple[Odd, ...]]:
    """The rows of a bronze table that can be judged, and what was odd of all of them.

    A row that breaks several rules counts for the first of them. Of sound rows each column is
    looked at once, as a whole.
    """
    found: list[Odd] = []
    is_odd: pa.ChunkedArray | None = None
    for column, rule, breaks in _odd_columns(table, rows):
        if rule == UNKNOWN_WORD:
            found.append(Odd(table, column.name, rule, pc.sum(breaks).as_py()))
            continue
        fresh = breaks if is_odd is None else pc.and_not(breaks, is_odd)
        count = pc.sum(fresh).as_py()
        if count:
            found.append(Odd(table, column.name, rule, count))
        is_odd = breaks if is_odd is None else pc.or_(is_odd, breaks)
    return (rows if is_odd is None else rows.filter(pc.invert(is_odd))), tuple(found)


def summed(odd: Iterable[Odd]) -> tuple[Odd, ...]:
    """One entry for each table, column and rule."""
    counts: dict[tuple[str, str, str], int] = {}
    for one in odd:
        key = (one.table, one.column, one.rule)
        counts[key] = counts.get(key, 0) + one.rows
    return tuple(Odd(*key, rows) for key, rows in sorted(counts.items()))


def oddities(table: str, rows: pa.Table) -> pa.ChunkedArray:
    """Per row of a bronze table, the first thing that is odd of it, in words; null where nothing
    is. Nulls where none may be are left to a law of their own.
    """
    found = pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
    for column, rule, breaks in _odd_columns(table, rows):
        if rule != NULL:
            words = pc.if_else(breaks, f"{column.name} is {rule}", pa.scalar(None, pa.string()))
            found = pc.coalesce(found, words)
    return found


def _odd_columns(table: str, rows: pa.Table) -> Iterator[tuple[Column, str, pa.ChunkedArray]]:
    """Rules that some rows break, column by column. Columns that `rows` lacks are not looked at."""
    for column in BY_NAME[table].columns:
        if column.name in rows.column_names and column.type is not ColumnType.DATE:
            for rule, breaks in _breaches(table, column, rows[column.name]):
                yield column, rule, breaks


def _breaches(
    table: str, column: Column, values: pa.ChunkedArray
) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Rules that some values break, with which."""
    if not column.nullable and values.null_count:
        yield NULL, pc.is_null(values)
    if column.type in _NUMBERS:
        least, most = _ends(table, column)
        yield from _numbers_beyond(_as_numbers(values), least, most)
    elif column.type in _ENTRIES:
        yield from _entries(column.type, values)
    elif (table, column.name) in WORDS:
        words = pa.array(WORDS[table, column.name])
        is_known = _is_word(values, words)
        if is_known is not None:
            yield UNKNOWN_WORD, pc.and_not(pc.is_valid(values), is_known)


def _as_numbers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments as whole µs."""
    if not pa.types.is_timestamp(values.type):
        return values
    return values.cast(pa.timestamp("us", tz="UTC"), safe=False).cast(pa.int64())


def _ends(table: str, column: Column) -> tuple[int, int]:
    """The least and the greatest number that a column may hold."""
    is_time = column.type is ColumnType.TIMESTAMP or column.name in _MOMENTS
    is_time |= bool({"ms", "us"} & {*column.name.split("_")})
    most = MOMENT_MAX if is_time else NUMBER_MAX
    return (-most if (table, column.name) in _SIGNED else 0), most


def _numbers_beyond(
    values: pa.ChunkedArray, least: int, most: int
) -> Iterator[tuple[str, pa.ChunkedArray]]:
    ends = pc.min_max(values).as_py()
    if ends["min"] is None:
        return
    if ends["min"] < least:
        rule = TOO_LARGE if least else BELOW
        yield rule, pc.fill_null(pc.less(values, pa.scalar(least, values.type)), False)
    if ends["max"] > most:
        yield TOO_LARGE, pc.fill_null(pc.greater(values, pa.scalar(most, values.type)), False)


def _entries(kind: ColumnType, values: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Rows whose list has an entry that lacks what it must have, or has a number beyond all."""
    must, may = _ENTRIES[kind]
    whole = values.combine_chunks()
    entries = pc.list_flatten(whole)
    if not len(entries):
        return
    is_bad = pc.is_null(entries)
    for name in (*must, *may):
        of_entry = pc.struct_field(entries, name)
        if name in must:
            is_bad = pc.or_(is_bad, pc.is_null(of_entry))
        if pa.types.is_integer(of_entry.type):
            beyond = pc.or_(
                pc.less(of_entry, pa.scalar(0, of_entry.type)),
                pc.greater(pc.cast(of_entry, pa.int64()), NUMBER_MAX),
            )
            is_bad = pc.or_(is_bad, pc.fill_null(beyond, False))
    if pc.any(is_bad).as_py():
        owners = pc.list_parent_indices(whole).filter(is_bad)
        places = pa.array(range(len(whole)), owners.type)
        yield INCOMPLETE, pa.chunked_array([pc.is_in(places, value_set=owners)])


def _is_word(values: pa.ChunkedArray, words: pa.Array) -> pa.ChunkedArray | None:
    """Per row: is it one of the words? None when all are; of a dictionary each text is looked at
    once.
    """
    if not pa.types.is_dictionary(values.type):
        found = pc.or_(pc.is_null(values), pc.is_in(values, value_set=words))
        return None if pc.all(found).as_py() in (True, None) else found
    of_text = [
        pc.is_in(pc.cast(chunk.dictionary, pa.string()), value_set=words) for chunk in values.chunks
    ]
    if all(one.false_count == 0 for one in of_text):
        return None
    parts = [
        pc.fill_null(one.take(chunk.indices), True)
        for one, chunk in zip(of_text, values.chunks, strict=True)
    ]
    known = pa.chunked_array(parts, pa.bool_())
    return None if pc.all(known).as_py() in (True, None) else known
