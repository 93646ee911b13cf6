"""Detects queues that have ended, from complete snapshots and from deletions.

Place in the walk: lifecycle → from which tick on a queue's last row speaks of nothing any more. A
SNAPSHOT says that every queue that is still there has a row from `seq_from` on; GROUP_GONE,
TOPIC_GONE, TOPIC_LEFT and OFFSETS_DELETED that what was reported before has ended. A row after an
ending begins another life. TOPIC_UNNAMED and TOPIC_NAMED end nothing: a topic may be about to be
left.

Invariant: between two rows of a queue nothing of it changed, as far as the horizon of its emitter
goes, once that has sent a snapshot. An earlier engine sends none: it reports every queue each 30 s,
and its queues are gone when it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.judging.arrivals import Grid, Shipped, seen_from, ticks_of
from pipelines.marts.judging.packed import Flags, numbers

SNAPSHOT: Final = "SNAPSHOT"
NAMING: Final = ("TOPIC_UNNAMED", "TOPIC_NAMED")
_ENDS: Final = ("GROUP_GONE", "TOPIC_GONE", "TOPIC_LEFT", "OFFSETS_DELETED")
_KINDS: Final = (SNAPSHOT, *_ENDS, *NAMING)

ENDINGS: Final = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("seq", pa.int64()),
        ("seen_us", pa.int64()),
        ("kind", pa.string()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("below_seq", pa.int64()),
    ]
)
"""below_seq: rows before this one speak of nothing any more."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What has ended at a tick."""

    tick_us: int
    emitter: str
    kind: str
    group: str | None
    topic: str | None
    below_seq: int


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts: its words, and per row the place of its word."""

    words: tuple[str, ...]
    codes: np.ndarray[tuple[int], np.dtype[np.int32]]

    @staticmethod
    def of(column: pa.ChunkedArray) -> Texts:
        """The texts of a column of dictionaries."""
        whole = column.combine_chunks()
        return Texts(tuple(whole.dictionary.to_pylist()), np.asarray(whole.indices))

    def are(self, word: str, rows: np.ndarray[tuple[int], np.dtype[np.int64]] | None) -> Flags:
        """Which of the rows have this word?"""
        codes = self.codes if rows is None else self.codes[rows]
        if word not in self.words:
            return np.zeros(len(codes), bool)
        return np.asarray(codes == self.words.index(word))


def endings_arrived(
    waiting: pa.Table,
    lifecycle: pa.Table,
    shipped: Mapping[str, Shipped],
    grids: Mapping[str, Grid],
) -> tuple[list[Ending], pa.Table]:
    """Endings in the order of ticks, and those that no tick has seen yet."""
    kind = pc.cast(lifecycle["kind"], pa.string())
    rows = lifecycle.filter(pc.is_in(kind, value_set=pa.array(_KINDS)))
    seqs = numbers(rows["seq"])
    names = rows.schema.names
    nothing = pa.nulls(rows.num_rows, pa.string())
    first = numbers(rows["seq_from"]) if "seq_from" in names else seqs
    is_snapshot = np.asarray(pc.equal(pc.cast(rows["kind"], pa.string()), SNAPSHOT))
    new = pa.table(
        [
            rows["emitter"],
            pa.array(seqs),
            pa.array(seen_from(rows, numbers(rows["event_us"]), shipped)),
            pc.cast(rows["kind"], pa.string()),
            pc.cast(rows["group"], pa.string()) if "group" in names else nothing,
            pc.cast(rows["topic"], pa.string()) if "topic" in names else nothing,
            pa.array(np.where(is_snapshot, first, seqs)),
        ],
        schema=ENDINGS,
    )
    both = pa.concat_tables([waiting, new]).unify_dictionaries().combine_chunks()
    ticks = ticks_of(both["emitter"], numbers(both["seen_us"]), grids)
    seen = both.append_column("tick_us", pa.array(ticks)).filter(pa.array(ticks > 0))
    arrived = [
        Ending(row["tick_us"], *(row[name] for name in ("emitter", *ENDINGS.names[3:])))
        for row in seen.sort_by([("tick_us", "ascending"), ("seq", "ascending")]).to_pylist()
    ]
    return arrived, both.filter(pa.array(ticks == 0))
