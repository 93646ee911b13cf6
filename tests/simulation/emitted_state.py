"""The state of a broker as a reader of its facts knows it.

It goes by the rules at table `lifecycle` and by nothing else: a key stays as its newest row says
until a snapshot ends without it, its topic or group is reported gone, or the group has left the
topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.runtime import Disk
from engine.telemetry.frames import Turn, decode_frames
from engine.telemetry.segments import segment_names
from engine.telemetry.tables import TABLES

QueueKey = tuple[str, int]
PairKey = tuple[str, str, int]


@dataclass
class ToldState:
    """The keys that a reader believes in, and with which marks."""

    queues: dict[QueueKey, tuple[int, int]] = field(default_factory=dict)
    """(topic, queue_id) → seq of the newest row, max offset."""
    pairs: dict[PairKey, tuple[int, int | None, int | None, int]] = field(default_factory=dict)
    """(group, topic, queue_id) → seq, committed, pulled, max offset."""
    unknown_since: int | None = 0
    """Seq of the boot, or of the loss, behind which no snapshot has begun and ended; None: what is
    believed is so."""
    snapshots: int = 0

    def take(self, seq: int, table: str, row: dict[str, Any]) -> None:
        """One row, in the order of seq."""
        if table == "queue_watermarks":
            self.queues[row["topic"], row["queue_id"]] = (seq, row["max_offset"])
        elif table == "group_watermarks":
            key = (row["group"], row["topic"], row["queue_id"])
            self.pairs[key] = (seq, row["committed"], row["pulled"], row["max_offset"])
        elif table == "lifecycle":
            self._take_event(seq, row)

    def _take_event(self, seq: int, row: dict[str, Any]) -> None:
        match row["kind"]:
            case "BOOT" | "SPOOL_LOSS":
                self.unknown_since = seq
            case "TOPIC_GONE":
                self.queues = {k: v for k, v in self.queues.items() if k[0] != row["topic"]}
                self.pairs = {k: v for k, v in self.pairs.items() if k[1] != row["topic"]}
            case "TOPIC_LEFT" | "OFFSETS_DELETED":
                left = (row["group"], row["topic"])
                self.pairs = {k: v for k, v in self.pairs.items() if k[:2] != left}
            case "GROUP_GONE":
                self.pairs = {k: v for k, v in self.pairs.items() if k[0] != row["group"]}
            case "SNAPSHOT":
                self.snapshots += 1
                begin = row["seq_from"]
                self.queues = {k: v for k, v in self.queues.items() if v[0] >= begin}
                self.pairs = {k: v for k, v in self.pairs.items() if v[0] >= begin}
                if self.unknown_since is not None and begin > self.unknown_since:
                    self.unknown_since = None


def emitted_state(disk: Disk, directory: str) -> ToldState:
    """What the rows of a spool say, all of which are there."""
    state = ToldState()
    for seq, table, row in rows_in_order(disk, directory):
        state.take(seq, table, row)
    return state


def rows_in_order(disk: Disk, directory: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """(seq, table, row) of every row in the spool."""
    for name in segment_names(disk, directory):
        for placed in decode_frames(disk.read(f"{directory}/{name}"))[0]:
            if not isinstance(placed.frame, Turn):
                continue
            for seq, (number, _, values) in enumerate(placed.frame.rows, placed.frame.first_seq):
                table = TABLES[number]
                yield seq, table.name, dict(zip(table.own_names, values, strict=True))
