"""Compares the gold of two lakes, row by row and column by column.

Place in the walk: `tidemark pipeline replay --compare`, and the tests that say a replay gives the
live run's rows. Invariant: equal means equal in all columns, unknown values included; a difference
names its table, key and columns. Absent on purpose: tolerance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.cycles.cuts import Cut
from pipelines.lake.lake import Lake, sql_moment, sql_text
from pipelines.marts.keys import positions_of
from pipelines.marts.mart import GoldTable

SAMPLES: Final = 3
"""Differing rows reported per table."""


@dataclass(slots=True)
class Difference:
    """How two lakes differ in one table."""

    table: str
    rows: int = 0
    """Of the first lake, in the range."""
    missing: int = 0
    """Rows of the first lake whose key the second one has not."""
    surplus: int = 0
    """Rows of the second lake whose key the first one has not."""
    changed: dict[str, int] = field(default_factory=dict)
    """Per column: rows of equal key in which it differs."""
    samples: list[str] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        """The two are equal."""
        return not (self.missing or self.surplus or self.changed)

    def __str__(self) -> str:
        if self.is_none:
            return f"{self.table}: {self.rows} rows, equal"
        columns = ", ".join(f"{name} in {count}" for name, count in sorted(self.changed.items()))
        changed = f", differing in {columns}" if columns else ""
        return (
            f"{self.table}: {self.rows} rows, {self.missing} missing, {self.surplus} surplus"
            f"{changed}"
        )


def compare(
    one: Lake, other: Lake, tables: Iterable[GoldTable], cuts: Sequence[Cut]
) -> Iterator[Difference]:
    """The tables of both lakes inside the cuts, one after the other."""
    for table in tables:
        found = Difference(table.name)
        for day in _days(one, other, table):
            wanted = f"observed_date = DATE '{day}' AND ({within(table, cuts)})"
            _compare_rows(_rows(one, table, wanted), _rows(other, table, wanted), table, found)
        yield found


def within(table: GoldTable, cuts: Sequence[Cut]) -> str:
    """The SQL condition for the rows of a table that belong to these cuts."""
    parts = ["false"]
    seq, ticks = table.seq_column, table.on_ticks
    for cut in cuts:
        by_tick = (
            f"observed_at > {sql_moment(cut.time_from_us)} "
            f"AND observed_at <= {sql_moment(cut.time_to_us)}"
        )
        by_seq = f"{seq} > {cut.seq_from} AND {seq} <= {cut.seq_to}"
        chosen = f"(({ticks}) AND {by_tick}) OR (NOT ({ticks}) AND {by_seq})"
        parts.append(f"(emitter = {sql_text(cut.emitter)} AND ({chosen}))")
    return " OR ".join(parts)


def _days(one: Lake, other: Lake, table: GoldTable) -> list[str]:
    days: set[str] = set()
    for lake in (one, other):
        address = lake.gold(table.name)
        if lake.exists(address):
            days.update(str(part["observed_date"]) for part in lake.table(address).partitions())
    return sorted(days)


def _rows(lake: Lake, table: GoldTable, wanted: str) -> pa.Table:
    return lake.rows(lake.gold(table.name), wanted, table.columns)


def _compare_rows(ours: pa.Table, theirs: pa.Table, table: GoldTable, found: Difference) -> None:
    found.rows += ours.num_rows
    ours, theirs = _sorted(ours, table), _sorted(theirs, table)
    key = [*table.key, "_number"]
    keys = [_as_text(rows, table.key) for rows in (ours, theirs)]
    positions, new = positions_of(keys[0], keys[1], key)
    is_shared = positions < ours.num_rows
    shared_ours = ours.take(pa.array(positions[is_shared]))
    shared_theirs = theirs.filter(pa.array(is_shared))
    found.surplus += len(new)
    is_missing = np.ones(ours.num_rows, bool)
    is_missing[positions[is_shared]] = False
    found.missing += int(is_missing.sum())
    _add_rows(found, "only in the first", ours.filter(pa.array(is_missing)))
    _add_rows(found, "only in the second", theirs.filter(pa.array(~is_shared)))
    for name in table.column_names:
        differs = _differs(shared_ours[name], shared_theirs[name])
        if differs.any():
            found.changed[name] = found.changed.get(name, 0) + int(differs.sum())
            at = int(np.flatnonzero(differs)[0])
            row: dict[str, Any] = shared_ours.slice(at, 1).to_pylist()[0]
            named = {part: row[part] for part in table.key}
            values = f"{row[name]!r} and {shared_theirs[name][at].as_py()!r}"
            if len(found.samples) < SAMPLES:
                found.samples.append(f"{name} is {values} at {named}")


def _sorted(rows: pa.Table, table: GoldTable) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in table.key]) if rows.num_rows else rows


def _as_text(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The keys as texts, rows of one key numbered: a key that is there twice is not lost."""
    texts = pa.table({name: pc.fill_null(pc.cast(rows[name], pa.string()), "\0") for name in key})
    if not rows.num_rows:
        return texts.append_column("_number", pa.array([], pa.int64()))
    same = np.ones(rows.num_rows, bool)
    same[0] = False
    for name in key:
        column = texts[name].combine_chunks()
        same[1:] &= np.asarray(pc.equal(column[1:], column[:-1]))
    starts = np.maximum.accumulate(np.where(same, 0, np.arange(rows.num_rows)))
    return texts.append_column("_number", pa.array(np.arange(rows.num_rows) - starts))


def _differs(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where two columns differ; unknown equals unknown."""
    if pa.types.is_nested(ours.type):
        pairs = zip(ours.to_pylist(), theirs.to_pylist(), strict=True)
        return np.fromiter((one != other for one, other in pairs), bool, len(ours))
    either = pc.xor(pc.is_null(ours), pc.is_null(theirs))
    return np.asarray(pc.or_(either, pc.fill_null(pc.not_equal(ours, theirs), False)))


def _add_rows(found: Difference, what: str, rows: pa.Table) -> None:
    for row in rows.slice(0, max(0, SAMPLES - len(found.samples))).to_pylist():
        found.samples.append(f"{what}: {row}")
