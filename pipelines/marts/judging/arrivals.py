"""Assigns each row to the first evaluation tick that may see it.

Place in the walk: rows of a cut and the ticks of their emitters → per row the tick at which a judge
learns of it: the first at or after its moment, but none before the shipment that brought it. So a
row of a clock that was set back is seen with its shipment, and which rows a tick sees does not
depend on cuts. Rows beyond the last tick wait. Invariant: of two rows of one queue the one with the
higher seq is the truth, whatever their moments say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.marts.judging.packed import Flags, numbers
from pipelines.marts.keys import as_text
from pipelines.marts.mart import Positions

HORIZONS: Final = pa.schema([("emitter", pa.string()), ("horizon_us", pa.int64())])

_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Shipped:
    """What an emitter has shipped in this cut."""

    before_us: int
    """Horizon before the cut."""
    seqs: Positions
    """Last seq of each shipment."""
    horizons: Positions
    """Horizon before each shipment, and after the last."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The living ticks of an emitter in this cut."""

    ticks: Positions
    runs: Positions
    """Per tick the first one of its unbroken run."""
    alive_since: Positions
    stepped: Positions
    """How old messages are that were stored before is unknown."""
    polled: Positions
    """How often somebody outside looks; 0: nobody does."""


NO_GRID: Final = Grid(_NONE, _NONE, _NONE, _NONE, _NONE)


def shipped_by_emitter(horizons: pa.Table, shipments: pa.Table) -> dict[str, Shipped]:
    """Per emitter that has shipped in this cut or before."""
    known = dict(
        zip(horizons["emitter"].to_pylist(), horizons["horizon_us"].to_pylist(), strict=True)
    )
    shipped = {name: Shipped(before, _NONE, np.array([before])) for name, before in known.items()}
    seqs, moments = numbers(shipments["seq_to"]), numbers(shipments["event_us_to"])
    for name, begin, end in segments(shipments["emitter"]):
        before = known.get(name, 0)
        reached = np.maximum.accumulate(np.concatenate([[before], moments[begin:end]]))
        shipped[name] = Shipped(before, np.maximum.accumulate(seqs[begin:end]), reached)
    return shipped


def horizons_after(shipped: Mapping[str, Shipped]) -> pa.Table:
    """Where each emitter stands after the cut."""
    rows = [
        {"emitter": name, "horizon_us": int(one.horizons[-1])}
        for name, one in sorted(shipped.items())
    ]
    return pa.Table.from_pylist(rows, HORIZONS)


def seen_from(rows: pa.Table, moments: Positions, shipped: Mapping[str, Shipped]) -> Positions:
    """Per row the moment from which it can be seen; rows have emitter and seq."""
    seqs = numbers(rows["seq"])
    seen = moments.copy()
    for name, begin, end in segments(rows["emitter"]):
        of_emitter = shipped.get(name)
        if of_emitter is None:
            continue
        shipment = np.searchsorted(of_emitter.seqs, seqs[begin:end])
        floor = of_emitter.horizons[np.minimum(shipment, len(of_emitter.horizons) - 1)] + 1
        np.maximum(seen[begin:end], floor, out=seen[begin:end])
    return seen


def ticks_of(emitters: pa.ChunkedArray, seen: Positions, grids: Mapping[str, Grid]) -> Positions:
    """Per row the first tick that sees it; 0 when it waits."""
    at = np.zeros(len(seen), np.int64)
    for name, begin, end in segments(emitters):
        ticks = grids.get(name, NO_GRID).ticks
        if not len(ticks):
            continue
        place = np.searchsorted(ticks, seen[begin:end])
        found = ticks[np.minimum(place, len(ticks) - 1)]
        at[begin:end] = np.where(place < len(ticks), found, 0)
    return at


def grids_by_emitter(ticks: pa.Table) -> dict[str, Grid]:
    """The living ticks per emitter."""
    alive = ticks.filter(ticks["is_alive"])
    names = ("tick_us", "run_from_us", "alive_since_us", "stepped_us", "polled_us")
    columns = [numbers(alive[name]) for name in names]
    return {
        name: Grid(*(column[begin:end] for column in columns))
        for name, begin, end in segments(alive["emitter"])
    }


def segments(names: pa.ChunkedArray) -> list[tuple[str, int, int]]:
    """Runs of rows with the same name: the name, its first row, and one past its last."""
    if not len(names):
        return []
    whole = as_text(names).combine_chunks()
    codes = np.asarray(whole.indices)
    words = whole.dictionary
    begins = [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()]
    ends = [*begins[1:], len(codes)]
    return [
        (words[int(codes[begin])].as_py(), begin, end)
        for begin, end in zip(begins, ends, strict=True)
    ]


def batches(ticks: Positions) -> dict[int, Positions]:
    """Row numbers by the tick that sees them first, in order; rows that wait are left out."""
    due = np.flatnonzero(ticks)
    if not len(due):
        return {}
    distinct = pa.array(ticks[due]).dictionary_encode()  # Few moments: found, not sorted.
    moments = np.asarray(distinct.dictionary)
    if len(moments) == 1:
        return {int(moments[0]): due}
    in_order = np.argsort(moments)
    rank = np.empty_like(in_order)
    rank[in_order] = np.arange(len(moments))
    moments, codes = moments[in_order], rank[np.asarray(distinct.indices)]
    narrow = codes.astype(np.uint16) if len(moments) < 2**16 else codes
    order = due[np.argsort(narrow, kind="stable")]
    ends = np.cumsum(np.bincount(codes, minlength=len(moments)))
    return {
        int(moment): order[end - count : end]
        for moment, end, count in zip(moments, ends, np.diff(ends, prepend=0), strict=True)
    }


def last_of(numbers_of_keys: Positions, scratch: Positions) -> Flags:
    """Is the row the last one of its key? `scratch` has a place per key."""
    order = np.arange(len(numbers_of_keys))
    scratch[numbers_of_keys] = order  # Of several assignments to one place the last stays.
    return np.asarray(scratch[numbers_of_keys] == order)
