"""Bronze in memory, emitted row by row: what a BronzeWriter would ship, without a lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.telemetry.tables import BY_NAME
from tests.pipelines.bronze_lake import SECOND, START_US, BronzeWriter, bronze_table
from tests.pipelines.partition import Bronze

Rows = dict[str, list[dict[str, Any]]]


class Emitter(BronzeWriter):
    """One broker of a story; its horizon never goes back, whatever its clock does."""

    def __init__(self, rows: Rows, *, broker: str = "broker-a") -> None:
        super().__init__(Path("/nowhere"), broker=broker)
        self._rows = rows
        self._horizon_us = 0

    def ship(self) -> None:
        """Everything reported up to now can be read."""
        clock_us = self.now_us
        self._horizon_us = self.now_us = max(self.now_us, self._horizon_us)
        super().ship()
        self.now_us = clock_us

    def boot(self, *, clean: bool = False) -> None:
        """A new life begins now."""
        self.epoch_us = self.now_us
        self.report("lifecycle", kind="BOOT", clean=clean)

    def watermark(self, queue_id: int = 0, *, group: str = "g", **values: Any) -> int:
        """A queue of which 80 of 100 messages are committed, unless given otherwise."""
        known = {
            "group": group,
            "topic": "t",
            "queue_id": queue_id,
            "pulled": 90,
            "processed": None,
            "committed": 80,
            "persisted": 70,
            "committed_state": "EXACT",
            "min_offset": 0,
            "max_offset": 100,
            "last_puller": "client-1",
            "last_pull_time": self.now_us,
            "last_commit_time": self.now_us,
            "reports": 1,
            "message_model": "CLUSTERING",
            "members": 1,
            **values,
        }
        is_waiting = known["committed_state"] == "EXACT"
        known.setdefault("store_time_at_committed", self.now_us - SECOND if is_waiting else None)
        return self.report("group_watermarks", **known)

    def sample(self, queue_id: int = 0, *, group: str = "g", **values: Any) -> int:
        """What client-1 holds of a queue: nothing, unless given otherwise."""
        known = {
            "client_id": "client-1",
            "group": group,
            "topic": "t",
            "queue_id": queue_id,
            "held_count": 0,
            "held_bytes": 0,
            "locked": False,
            "dropped": False,
            "last_pull_time": self.now_us,
            **values,
        }
        return self.report("client_windows", **known)

    def _append(self, table: str, rows: list[dict[str, Any]]) -> None:
        self._rows.setdefault(table, []).extend(rows)


def bronze(rows: Rows) -> Bronze:
    """The rows as tables of all names."""
    return {name: bronze_table(name, rows.get(name, [])) for name in BY_NAME}


def second(moment: Any) -> float:
    """Seconds of the story of a moment that was read back."""
    return float(moment.timestamp() - START_US / SECOND)
