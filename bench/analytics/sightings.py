"""Measures how long after its commit each offset first appears in gold.

Place in the walk: the live parts of the analytics read consumer_lag here while it grows: only the
files that its newest commits have added, never the whole table.

Invariant: every commit inside the range counts once; one that is never seen counts at its age, or a
gold that stands still would look fast. Absent on purpose: who commits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow.parquet as pq

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.tail import LogTruncated, Place, read_tail
from pipelines.reading.catalogue import CONSUMER_LAG

Key = tuple[str, str, int]
COLUMNS = ["group", "topic", "queue_id", "committed"]


@dataclass(slots=True)
class Sightings:
    """What gold has shown so far."""

    lake: Lake
    keys: Sequence[Key]
    seen: list[tuple[float, dict[int, int]]] = field(default_factory=list)
    """Wall clock, and the committed offset by the number of its key."""
    rows: int = 0
    _place: Place = field(default_factory=Place.start)
    _numbers: dict[Key, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = {key: number for number, key in enumerate(self.keys)}

    def look(self) -> int:
        """Read what was committed to gold since the last look; how many of its rows are ours."""
        address = self.lake.gold(CONSUMER_LAG.name)
        try:
            tail = read_tail(self.lake, address, self._place)
        except LogTruncated:
            raise
        except LakeError:  # There is no table yet.
            return 0
        now_s, count = time.time(), 0
        for file in tail.files:
            rows = pq.read_table(f"{address}/{file.path}", columns=COLUMNS, partitioning=None)
            found: dict[int, int] = {}
            for group, topic, queue_id, committed in zip(
                *(rows[name].to_pylist() for name in COLUMNS), strict=True
            ):
                number = self._numbers.get((group, topic, queue_id))
                if number is not None and committed is not None:
                    found[number] = max(committed, found.get(number, 0))
                    count += 1
            self.seen.append((now_s, found))
        self._place = tail.end
        self.rows += count
        return count

    def delays_s(
        self, commits: Mapping[int, Mapping[int, float]], *, since_s: float, until_s: float
    ) -> tuple[np.ndarray, int]:
        """Seconds from each answered commit in the range to its gold row, and how many of them were
        never seen. `commits`: moment by offset, for each share of the keys (number % shares).
        """
        shares, now_s = len(commits), time.time()
        delays: list[np.ndarray] = []
        unseen = 0
        for share, moments in commits.items():
            wanted = {at: when for at, when in moments.items() if since_s <= when < until_s}
            if not wanted:
                continue
            offsets = np.array(sorted(wanted))
            when_s = np.array([wanted[int(at)] for at in offsets])
            numbers = np.arange(share, len(self.keys), shares)
            seen_s = self._first_seen(numbers, offsets)
            unseen += int(np.isinf(seen_s).sum())
            delays.append((np.where(np.isinf(seen_s), now_s, seen_s) - when_s).ravel())
        return (np.concatenate(delays) if delays else np.empty(0)), unseen

    def _first_seen(self, numbers: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Per key and offset, when gold first had it or a later one; infinity: never."""
        first = np.full((len(numbers), len(offsets)), np.inf)
        row_of = {int(number): row for row, number in enumerate(numbers)}
        for when_s, found in reversed(self.seen):
            for number, committed in found.items():
                row = row_of.get(number)
                if row is not None:
                    first[row, : np.searchsorted(offsets, committed, "right")] = when_s
        return first
