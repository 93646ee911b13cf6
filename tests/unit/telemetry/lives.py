"""Several lives of one broker's telemetry over one folder, and what its spool holds between."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.foundation.observing import LifecycleEvent, OffsetReport
from engine.runtime import Runtime, system_runtime
from engine.runtime.clock import StepListener
from engine.telemetry import EmitterIdentity, Telemetry
from engine.telemetry.frames import Frame, Life, Turn, decode_frames
from engine.telemetry.tables import BY_NAME, TABLES
from tests.unit.telemetry.mortal_disk import MortalDisk

DETAIL = BY_NAME["lifecycle"].own_names.index("detail")
"""Where a row of the lifecycle says it in words."""

MASTER = EmitterIdentity("cluster-1", "broker-a", 0)


class SetClock:
    """A clock that shows what it is set to."""

    def __init__(self, now_us: int) -> None:
        self.us = now_us

    def local_hour(self, at_ms: int) -> int:
        return at_ms // 3_600_000 % 24

    def now_us(self) -> int:
        return self.us

    def now_ms(self) -> int:
        return self.us // 1000

    def steady_us(self) -> int:
        return self.us

    def steady_ms(self) -> int:
        return self.us // 1000

    def offset_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return self.us // 1000

    def on_step(self, listener: StepListener) -> None:
        """It shows what it is set to, without steps."""


class Broker:
    """A store folder, a clock, and the telemetry of its present life."""

    def __init__(self, store: Path) -> None:
        self.spool = store / "spool"
        self.clock = SetClock(1)
        """It stands at the beginning: rows have seq 1, 2, 3 until it is set."""
        self.disk = MortalDisk()
        self.runtime: Runtime = replace(system_runtime(), clock=self.clock, disk=self.disk)

    def boot(self, **settings: Any) -> Telemetry:
        """The next life; the one before, if any, was killed."""
        self.disk.die()
        return Telemetry.open(self.runtime, str(self.spool), MASTER, **settings)

    def segments(self) -> list[str]:
        return sorted(path.name for path in self.spool.glob("*.seg"))

    def turns(self) -> list[Turn]:
        """Every turn in the spool, heartbeats too, oldest first."""
        found = []
        for name in self.segments():
            placed, _ = decode_frames((self.spool / name).read_bytes())
            found += [each.frame for each in placed if isinstance(each.frame, Turn)]
        return found

    def rows(self) -> list[tuple[int, str, tuple[Any, ...]]]:
        """(seq, table, own values) of every row in the spool."""
        return [
            (seq, TABLES[number].name, values)
            for turn in self.turns()
            for seq, (number, _, values) in enumerate(turn.rows, turn.first_seq)
        ]


def missing_in(frames: Iterable[Frame]) -> list[int]:
    """Seqs of rows that a spool lacks, from its first one on: a life's first frame names the row
    before it, and the rows of a life follow each other."""
    missing: list[int] = []
    last_seq = next_seq = 0
    for frame in frames:
        if isinstance(frame, Life):
            unused = frame.unused_in(last_seq + 1, frame.before_seq + 1)
            missing += range(last_seq + 1 + unused, frame.before_seq + 1)
            last_seq, next_seq = frame.before_seq, frame.first_seq
        elif frame.rows:
            assert frame.first_seq == next_seq, "a row follows the one before"
            next_seq = frame.next_seq
            last_seq = next_seq - 1
    return missing


def report(offset: int) -> OffsetReport:
    return OffsetReport("g", "t", 0, offset, None, "COMMIT_RPC", "TIMER", "c", True, 0, 100)


def boot_event(detail: str) -> LifecycleEvent:
    return LifecycleEvent("BOOT", detail)
