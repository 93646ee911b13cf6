"""Sums counts per time slot and emits each slot once it can no longer change.

Place in the walk: marts that count. Contributions (a key, a slot, counts) are summed up and wait
until their emitter has reported everything up to the slot's end. Invariant: the same counts however
cycles are cut. Absent on purpose: the wall clock, and slots in which nothing was counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.keys import last_of_each, newest_of_each, numbered
from pipelines.marts.mart import Positions

HORIZONS = pa.schema([("emitter", KEY_TEXT), ("event_us_to", pa.int64())])
"""Up to when each emitter has reported everything."""


Values: TypeAlias = pa.ChunkedArray | pa.Array


def slots_of(moments_us: Values, length_us: int) -> pa.Array:
    """The end of the slot of each moment; a slot reaches from behind its beginning to its end."""
    return pa.array(-(-np.asarray(moments_us) // length_us) * length_us)


def contributions(
    keys: Mapping[str, Values], slots_us: pa.Array, counts: Mapping[str, Values], schema: pa.Schema
) -> pa.Table:
    """Rows of the schema: what facts add to slots of their keys; other counts are 0."""
    nothing = pa.array(np.zeros(len(slots_us), np.int64))
    columns = {**keys, "slot_us": slots_us, **counts}
    arrays = [columns.get(name, nothing) for name in schema.names]
    return pa.table(arrays, names=schema.names).cast(schema)


def counted_on(
    state: Mapping[str, pa.Table], shipments: pa.Table, new: Sequence[pa.Table], key: Sequence[str]
) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Counts of slots that are over now, one row a key, which has the slot in it; and what is
    carried on: `counted` of the other slots, and `horizons`.
    """
    known = horizons(state["horizons"], shipments)
    counted = summed(pa.concat_tables([state["counted"], *new]), key)
    is_complete = is_over(counted, known)
    waiting = counted.filter(pc.invert(is_complete))
    return counted.filter(is_complete), {"counted": waiting, "horizons": known}


def summed(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """One row of each key: `seq` is the highest, all other columns beside the key are sums."""
    numbers, first = numbered(rows, key)
    columns = {name: rows[name].take(pa.array(first)) for name in key}
    for name in rows.column_names:
        if name in columns:
            continue
        values = np.asarray(rows[name])
        made = np.zeros(len(first), np.int64)
        (np.maximum if name == "seq" else np.add).at(made, numbers, values)
        columns[name] = pa.array(made)
    return pa.table([columns[name] for name in rows.column_names], schema=rows.schema)


def horizons(known: pa.Table, shipments: pa.Table) -> pa.Table:
    """The newest horizon of each emitter."""
    return newest_of_each(known, shipments.select(HORIZONS.names).cast(HORIZONS), ("emitter",))


def is_over(rows: pa.Table, known: pa.Table) -> Values:
    """Is the slot of each row over? `known` are the horizons."""
    emitters = pc.cast(known["emitter"], pa.string())
    place = pc.index_in(pc.cast(rows["emitter"], pa.string()), value_set=emitters)
    return pc.fill_null(pc.less_equal(rows["slot_us"], known["event_us_to"].take(place)), False)


def slots_over(
    state: Mapping[str, pa.Table], new: Mapping[str, pa.Table], known: pa.Table
) -> tuple[Iterator[tuple[int, dict[str, pa.Table]]], dict[str, pa.Table]]:
    """The slots that are over now, in order, with what waited in them and is new; and what waits
    on. `known` are the horizons."""
    waiting = {name: pa.concat_tables([state[name], rows]) for name, rows in new.items()}
    over = {name: is_over(rows, known) for name, rows in waiting.items()}
    due = {name: rows.filter(over[name]) for name, rows in waiting.items()}
    slots = sorted({slot for part in due.values() for slot in part["slot_us"].to_pylist()})
    found = (
        (at, {name: part.filter(pc.equal(part["slot_us"], at)) for name, part in due.items()})
        for at in slots
    )
    return found, {name: rows.filter(pc.invert(over[name])) for name, rows in waiting.items()}


def ones(condition: Values) -> Values:
    """1 where it holds, 0 where it does not or nobody knows."""
    return pc.cast(pc.fill_null(condition, False), pa.int64())


def totalled(
    rows: pa.Table, key: Sequence[str], counts: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """The rows with the totals of their keys up to each, in place of its own counts and seq; and
    the last of them of each key.
    """
    numbers, first = numbered(rows, key)
    totals = running(rows, numbers, counts)
    totals["seq"] = _newest_so_far(np.asarray(rows["seq"]), numbers)
    for name, total in totals.items():
        rows = rows.set_column(rows.column_names.index(name), name, pa.array(total))
    return rows, rows.take(pa.array(last_of_each(numbers, len(first))))


def running(rows: pa.Table, numbers: Positions, names: Sequence[str]) -> dict[str, Positions]:
    """Per row the sum of all rows of its number up to it."""
    order = np.argsort(numbers, kind="stable")
    begins = np.flatnonzero(np.append(True, np.diff(numbers[order]) != 0)[: len(order)])
    made = {}
    for name in names:
        sums = np.cumsum(np.asarray(rows[name])[order])
        before = np.zeros(len(order), np.int64)
        before[begins[1:]] = np.diff(np.append(0, sums[begins[1:] - 1]))
        total = np.empty(len(order), np.int64)
        total[order] = sums - np.cumsum(before)
        made[name] = total
    return made


def _newest_so_far(seqs: Positions, numbers: Positions) -> Positions:
    """Per row the highest seq of all rows of its number up to it: what came due rests on a row that
    was reported before.
    """
    above = int(seqs.max()) + 1
    order = np.argsort(numbers, kind="stable")
    found = np.empty_like(seqs)
    found[order] = np.maximum.accumulate(seqs[order] + numbers[order] * above)
    return np.asarray(found - numbers * above)
