"""Keeps each group's watermarks from its broker's current and previous incarnations.

Place in the walk: group_watermarks → what a restart puts at risk. A restart asks what was known at
the end of the life before it, so its marks are kept until the new life has booted.

Invariant: marks are taken in the order of seq; `now` and `before` speak of the rows taken so far.
No Python loop goes over keys. Absent on purpose: what a mark means.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.keys import QUEUE_FIELDS, QUEUE_KEY, positions_of
from pipelines.marts.mart import Positions

MARKS: Final = pa.schema(
    [
        ("cluster", KEY_TEXT),
        ("broker", KEY_TEXT),
        *QUEUE_FIELDS,
        ("broker_epoch", pa.int64()),
        ("seq", pa.int64()),
        ("pulled", pa.int64()),
        ("committed", pa.int64()),
        ("persisted", pa.int64()),
        ("min_offset", pa.int64()),
        ("max_offset", pa.int64()),
        ("last_puller", KEY_TEXT),
        ("is_broadcast", pa.bool_()),
        ("members", pa.int32()),
    ]
)
Truths = np.ndarray[tuple[int], np.dtype[np.bool_]]
_UNKNOWN: Final = -1
"""No row of the table of all rows."""


class Marks:
    """Rows known before and new ones, as one table, and which of them is the last of each key."""

    def __init__(self, known: pa.Table, earlier: pa.Table, new: pa.Table) -> None:
        """known: the last row of each key. earlier: of some keys, the last row of the life before.
        new: facts in the order of (emitter, seq).
        """
        rows = new.select(MARKS.names).cast(MARKS)
        self._all = pa.concat_tables([known, earlier, rows]).unify_dictionaries().combine_chunks()
        self._known, self._first_new = known.num_rows, known.num_rows + earlier.num_rows
        self._positions, firsts = positions_of(known, rows, QUEUE_KEY)
        count = known.num_rows + len(firsts)
        self._now = np.full(count, _UNKNOWN)
        self._now[: known.num_rows] = np.arange(known.num_rows)
        self._before = np.full(count, _UNKNOWN)
        of_earlier, _ = positions_of(known, earlier, QUEUE_KEY)
        self._before[of_earlier] = known.num_rows + np.arange(earlier.num_rows)
        self._epochs = np.asarray(self._all["broker_epoch"])
        self._seqs = np.asarray(rows["seq"])
        self._parts = _contiguous(rows["emitter"])
        self._taken = {emitter: begin for emitter, (begin, _) in self._parts.items()}

    def take_until(self, emitter: str, seq: int) -> None:
        """Take the emitter's new rows below `seq`."""
        if emitter in self._parts:
            _, end = self._parts[emitter]
            begin = self._taken[emitter]
            stop = begin + int(np.searchsorted(self._seqs[begin:end], seq))
            self._take(begin, stop)
            self._taken[emitter] = stop

    def take_all(self) -> None:
        """Take all rows that are left."""
        for emitter, (_, end) in self._parts.items():
            self._take(self._taken[emitter], end)
            self._taken[emitter] = end

    def before(self, emitter: str, epoch: int) -> tuple[Positions, pa.Table]:
        """The keys of the emitter with marks in a life before `epoch`, and the last of them."""
        of_emitter = self._of_emitter(emitter)
        now = self._now[of_emitter]
        is_older = (now != _UNKNOWN) & (self._epochs[now] < epoch)
        rows = np.where(is_older, now, self._before[of_emitter])
        is_there = (rows != _UNKNOWN) & (self._epochs[rows] < epoch)
        return of_emitter[is_there], self._all.take(pa.array(rows[is_there]))

    def now(self, emitter: str, epoch: int) -> tuple[Positions, pa.Table]:
        """The keys of the emitter with marks in the life `epoch`, and the last of them."""
        of_emitter = self._of_emitter(emitter)
        rows = self._now[of_emitter]
        is_there = (rows != _UNKNOWN) & (self._epochs[rows] == epoch)
        return of_emitter[is_there], self._all.take(pa.array(rows[is_there]))

    def forget_before(self, emitter: str) -> None:
        """The life has booted: nobody will ask for the one before."""
        self._before[self._of_emitter(emitter)] = _UNKNOWN

    def forget(self, emitter: str, is_gone: Callable[[pa.Table], Truths]) -> None:
        """Keys of the emitter are gone, as their last rows report."""
        of_emitter = self._of_emitter(emitter)
        last = self._all.take(pa.array(self._now[of_emitter]))
        gone = of_emitter[is_gone(last)]
        self._now[gone] = self._before[gone] = _UNKNOWN

    def keys(self, emitter: str) -> pa.Table:
        """The keys of the emitter that are there."""
        rows = self._now[self._of_emitter(emitter)]
        return self._all.select(QUEUE_KEY).take(pa.array(rows))

    def carried(self) -> tuple[pa.Table, Positions | None, pa.Table]:
        """The last row of each key, which of them are new (None: rows have moved), and the rows of
        the life before.
        """
        is_there = self._now != _UNKNOWN
        last = self._all.take(pa.array(self._now[is_there]))
        earlier = self._all.take(pa.array(self._before[self._before != _UNKNOWN]))
        touched = np.flatnonzero(self._now >= self._first_new) if is_there.all() else None
        return last, touched, earlier

    def _take(self, begin: int, end: int) -> None:
        """Rows of one emitter, life by life."""
        epochs = self._epochs[self._first_new + begin : self._first_new + end]
        lives = [begin, *(begin + 1 + np.flatnonzero(np.diff(epochs))), end]
        for first, behind in pairwise(lives):
            places = self._positions[first:behind]
            rows = self._first_new + np.arange(first, behind)
            current = self._now[places]
            is_older = (current != _UNKNOWN) & (self._epochs[current] < self._epochs[rows])
            if is_older.any():
                self._before[places[is_older]] = current[is_older]
            self._now[places] = rows

    def _of_emitter(self, emitter: str) -> Positions:
        """Positions of the emitter's keys that rows taken so far have shown."""
        names = self._all["emitter"].combine_chunks()
        code = pc.index(names.dictionary, emitter).as_py()
        codes = np.asarray(names.indices)
        return np.flatnonzero((self._now != _UNKNOWN) & (codes[self._now] == code))


def _contiguous(emitters: pa.ChunkedArray) -> dict[str, tuple[int, int]]:
    """Where the rows of each emitter begin and end; they lie together."""
    if not len(emitters):
        return {}
    one = emitters.unify_dictionaries().combine_chunks()
    codes = np.asarray(one.indices)
    begins = [0, *(1 + np.flatnonzero(np.diff(codes)))]
    ends = [*begins[1:], len(codes)]
    names = one.dictionary.to_pylist()
    return {
        names[codes[begin]]: (int(begin), int(end)) for begin, end in zip(begins, ends, strict=True)
    }
