"""Queries what brokers and their replicas have stored, at one moment and over a range.

Place in the walk: between the lake and `models.storage_lines`. What a loss would cost is gold; the
last flushes of each file, what waits for a moment and what happened to brokers are facts of bronze.

Invariant: a state is the newest report within the look-back before the end of the range: whoever
speaks reports it again in that time. Absent on purpose: words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from dashboards.reads.lake_data import Seen, within
from pipelines.reading.reading import LOOK_BACK

EVENTS: Final = (
    *("BOOT", "RECOVERY", "SHUTDOWN", "ROLE_CHANGE", "REPLICA_JOINED", "REPLICA_LOST"),
    *("DAMAGED_FILE", "DISK_FULL", "WRITES_STOPPED", "TIMERS_LATE", "TIMERS_IN_TIME"),
)
"""Kinds of lifecycle rows that concern what a broker has stored."""
FLUSHED: Final = ("COMMIT", "FLUSH", "PERSIST")
TIMER: Final = "TIMER"


@dataclass(frozen=True, slots=True)
class StorageData:
    """One lake at one moment, asked about what is stored."""

    data: Seen

    def replication(self, start: datetime, end: datetime) -> pl.DataFrame:
        """What the loss of each master would have cost, from the look-back before `start` on."""
        return self.data.rows("replication_health", start - LOOK_BACK, end)

    def flushes(self, start: datetime, end: datetime) -> pl.DataFrame:
        """What a power cut would have cost, as `replication`."""
        return self.data.rows("flush_health", start - LOOK_BACK, end)

    def checkpoints(self, end: datetime) -> pl.DataFrame:
        """The last commit, flush or persist of each file of each broker."""
        return self._newest(end, pl.col("action").is_in(FLUSHED), "component", "action")

    def timers(self, end: datetime) -> pl.DataFrame:
        """What waits for its moment on each broker."""
        return self._newest(end, pl.col("component") == TIMER)

    def events(self, start: datetime, end: datetime) -> pl.DataFrame:
        """What happened to brokers and replicas in the range."""
        return self.data.answer(
            "lifecycle",
            ("storage events", start, end),
            lambda rows: within(rows, start, end, kind="event").filter(
                pl.col("kind").is_in(EVENTS)
            ),
        )

    def _newest(self, end: datetime, wanted: pl.Expr, *key: str) -> pl.DataFrame:
        return self.data.answer(
            "flush_checkpoints",
            ("newest", key, end),
            lambda rows: (
                within(rows, end - LOOK_BACK, end, kind="event")
                .filter(wanted)
                .sort("seq")
                .unique(["emitter", *key], keep="last", maintain_order=True)
                .sort("emitter", *key)
            ),
        )


def newest_of_each(rows: pl.DataFrame) -> pl.DataFrame:
    """The last row of each emitter."""
    return rows.sort("observed_at", "seq").unique("emitter", keep="last").sort("cluster", "broker")


def without(rows: pl.DataFrame, emitters: Sequence[str]) -> pl.DataFrame:
    """Rows of all other emitters: of nodes that do not lead any more, nothing is true now."""
    return rows.filter(~pl.col("emitter").is_in(list(emitters)))
