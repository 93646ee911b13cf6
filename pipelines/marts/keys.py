"""Maps keys to permanent row positions in a growing state table.

Place in the walk: what keyed state rests on. A state is a table in which a key keeps its row for
good and new keys are appended; facts find their rows here, at once for all facts of a cycle.

Invariant: positions of known keys never change; new keys are numbered in the order in which facts
show them. What is forgotten (`recent`) is too old by the clock of its own emitter. Absent on
purpose: hashes that may collide. Texts are distinguished by their dictionaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.mart import Positions

QUEUE_KEY: Final = ("emitter", "group", "topic", "queue_id")
"""One queue of one group: an emitter is one broker, so cluster and broker follow from it."""
QUEUE_FIELDS: Final = tuple(
    (name, pa.int32() if name == "queue_id" else KEY_TEXT) for name in QUEUE_KEY
)
"""The columns of QUEUE_KEY, as states declare them."""

_RADIX_MAX = 2**63
_BY_EMITTER = ("emitter",)


def positions_of(
    known: pa.Table, rows: pa.Table, key: Sequence[str]
) -> tuple[Positions, Positions]:
    """Where the key of each row lies in `known`, and the rows that show a new key first.

    The keys of `known` differ from one another. New keys have the positions behind its end, in the
    order of the second result (row numbers of `rows`). Texts, whole numbers; no nulls in a key.
    """
    if not rows.num_rows:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    known_codes, row_codes = _codes(known, rows, key)
    if not known.num_rows:
        return _by_appearance(row_codes)
    found = pc.index_in(pa.array(row_codes), value_set=pa.array(known_codes))
    is_new = np.asarray(pc.is_null(found))
    positions = np.asarray(pc.fill_null(found, 0)).astype(np.int64)
    if not is_new.any():
        return positions, np.empty(0, np.int64)
    new_rows = np.flatnonzero(is_new)
    rank, first = _by_appearance(row_codes[new_rows])
    positions[new_rows] = known.num_rows + rank
    return positions, new_rows[first]


def _by_appearance(codes: Positions) -> tuple[Positions, Positions]:
    """Per code its number, from 0 in the order of appearance, and where each appears first."""
    different = pa.array(codes).dictionary_encode()
    rank = np.asarray(different.indices).astype(np.int64)
    first = np.empty(len(different.dictionary), np.int64)
    # Of several assignments to one place the last stays.
    first[rank[::-1]] = np.arange(len(codes))[::-1]
    return rank, first


def numbered(rows: pa.Table, key: Sequence[str]) -> tuple[Positions, Positions]:
    """Per row the number of its key, and the first row of each key; numbers from 0 in order of
    appearance.
    """
    return positions_of(rows.slice(0, 0), rows, key)


def last_of_each(numbers: Positions, count: int) -> Positions:
    """The last row of each of `count` numbers; every number appears."""
    last = np.empty(count, np.int64)
    last[numbers] = np.arange(len(numbers))  # Of several assignments to one place the last stays.
    return last


def newest_of_each(known: pa.Table, new: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key, by the order of `new`: `known` with its rows replaced, and those of
    new keys behind them.
    """
    if not new.num_rows:
        return known
    positions, _ = positions_of(known, new, key)
    return overlaid(known, positions, new)


def overlaid(rows: pa.Table, positions: Positions, news: pa.Table) -> pa.Table:
    """The rows with others in the places `positions`, those behind the end appended in order; of
    several for one place the last stays.
    """
    count = max(rows.num_rows, int(positions.max()) + 1 if len(positions) else 0)
    taken = np.arange(count)
    taken[positions] = rows.num_rows + np.arange(len(positions))
    both = pa.concat_tables([rows, news]).unify_dictionaries().combine_chunks()
    return both.take(pa.array(taken))


def are_among(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Array:
    """Per row: does `others` have a row of the same key?"""
    codes, other_codes = _codes(rows, others, key)
    return pc.is_in(pa.array(codes), value_set=pa.array(other_codes))


def _codes(known: pa.Table, rows: pa.Table, key: Sequence[str]) -> tuple[Positions, Positions]:
    """One whole number a key, the same for equal keys of both tables."""
    known_codes = np.zeros(known.num_rows, np.int64)
    row_codes = np.zeros(rows.num_rows, np.int64)
    radix = 1
    for name in key:
        of_known, of_rows, size = _column_codes(known[name], rows[name])
        if radix * size >= _RADIX_MAX:  # Values far apart, as those of odd rows are.
            known_codes, row_codes, radix = _without_gaps(known_codes, row_codes)
            of_known, of_rows, size = _without_gaps(of_known, of_rows)
        radix *= size
        assert radix < _RADIX_MAX, "no table has three milliards of rows"
        known_codes = known_codes * size + of_known
        row_codes = row_codes * size + of_rows
    return known_codes, row_codes


def _column_codes(
    known: pa.ChunkedArray, rows: pa.ChunkedArray
) -> tuple[Positions, Positions, int]:
    if pa.types.is_integer(rows.type):
        values = [np.asarray(column).astype(np.int64) for column in (known, rows)]
        least = min((int(part.min()) for part in values if len(part)), default=0)
        most = max((int(part.max()) for part in values if len(part)), default=0)
        return values[0] - least, values[1] - least, most - least + 1
    both = pa.chunked_array([*as_text(known).chunks, *as_text(rows).chunks], KEY_TEXT)
    one = both.unify_dictionaries()
    codes = np.concatenate(
        [np.asarray(chunk.indices, dtype=np.int64) for chunk in one.chunks]
        or [np.empty(0, np.int64)]
    )
    size = max((len(chunk.dictionary) for chunk in one.chunks), default=0)
    return codes[: len(known)], codes[len(known) :], max(size, 1)


def _without_gaps(known: Positions, rows: Positions) -> tuple[Positions, Positions, int]:
    """The same codes numbered from 0 on, and how many differ."""
    values, numbers = np.unique(np.concatenate([known, rows]), return_inverse=True)
    return numbers[: len(known)], numbers[len(known) :], max(len(values), 1)


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as texts of a dictionary."""
    return column if column.type == KEY_TEXT else column.cast(KEY_TEXT)


def recent(rows: pa.Table, facts: pa.Table, span_us: int) -> pa.Table:
    """Returns the `rows` not older than `span_us` by the newest of `facts` of the same emitter."""
    if not rows.num_rows:
        return rows
    moments_us = np.asarray(rows["event_us"])
    of_facts, _ = positions_of(rows.slice(0, 0), facts, _BY_EMITTER)
    emitters = facts.take(pa.array(np.unique(of_facts, return_index=True)[1]))
    newest_us = np.full(emitters.num_rows + rows.num_rows, np.iinfo(np.int64).min)
    np.maximum.at(newest_us, of_facts, np.asarray(facts["event_us"]))
    of_rows, _ = positions_of(emitters, rows, _BY_EMITTER)
    return rows.filter(pa.array(newest_us[of_rows] <= moments_us + span_us))
