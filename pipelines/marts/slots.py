"""Counts by slots of data time: a slot is told once, when nothing can be added to it.

Place in the walk: marts that count. Facts become contributions (a key, a slot, counts); those of a
slot are summed up and wait until their emitter's shipments say that it has reported everything up
to the end of the slot.

Invariant: a slot is told with the same counts however cycles are cut. Absent on purpose: the wall
clock, and slots in which nothing was counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.keys import newest_of_each, numbered
from pipelines.marts.mart import KEY_TEXT, Positions

HORIZONS = pa.schema([("emitter", KEY_TEXT), ("event_us_to", pa.int64())])
"""Up to when each emitter has reported everything."""


def slots_of(facts: pa.Table, length_us: int) -> pa.Array:
    """The end of the slot of each fact; a slot reaches from behind its beginning to its end."""
    moments_us = np.asarray(facts["event_us"])
    return pa.array(-(-moments_us // length_us) * length_us)


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


def is_over(rows: pa.Table, known: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Is the slot of each row over? `known` are the horizons."""
    emitters = pc.cast(known["emitter"], pa.string())
    place = pc.index_in(pc.cast(rows["emitter"], pa.string()), value_set=emitters)
    return pc.fill_null(pc.less_equal(rows["slot_us"], known["event_us_to"].take(place)), False)


def ones(condition: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray | pa.Array:
    """1 where it holds, 0 where it does not or nobody knows."""
    return pc.cast(pc.fill_null(condition, False), pa.int64())


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
