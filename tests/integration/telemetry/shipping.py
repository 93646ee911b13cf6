"""A store with a spool, a lake, and what stands between them, for tests of the shipper."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.foundation.observing import Fact, LifecycleEvent, OffsetReport
from engine.runtime import system_runtime
from engine.telemetry import EmitterIdentity, Telemetry
from engine.telemetry.shipper.shipper import Shipper
from tests.integration.telemetry.bronze_rows import read_bronze
from tests.unit.telemetry.lives import SetClock
from tests.unit.telemetry.mortal_disk import MortalDisk

ROOT = Path(__file__).parents[3]
MASTER = EmitterIdentity("cluster-1", "broker-a", 0)


class Setting:
    """A store with a spool, a lake, and the telemetry that writes into the one."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.spool = self.store / "spool"
        self.lake = folder / "lake"
        self.disk = MortalDisk()
        self.clock = SetClock(1)
        """It stands: rows have seq 1, 2, 3."""
        self.telemetry = self.boot()

    def boot(self, **settings: Any) -> Telemetry:
        """The broker's next life; the one before, if any, was killed."""
        self.disk.die()
        runtime = replace(system_runtime(), clock=self.clock, disk=self.disk)
        return Telemetry.open(runtime, str(self.spool), MASTER, **settings)

    def report(self, *facts: Fact) -> None:
        for fact in facts:
            self.telemetry.observe(fact)
        self.telemetry.write_turn()

    def shipper(self) -> Shipper:
        return Shipper(system_runtime(), str(self.spool), str(self.lake), {})

    def ship(self) -> int:
        return self.shipper().ship_all()

    def log(self, table: str, version: int) -> Path:
        return self.lake / "bronze" / table / "_delta_log" / f"{version:020d}.json"


def event(text: str) -> LifecycleEvent:
    return LifecycleEvent("ROLE_CHANGE", text)


def report(offset: int) -> OffsetReport:
    return OffsetReport("g", "t", 0, offset, None, "COMMIT_RPC", "TIMER", "c", True, 0, 100)


def texts(setting: Setting) -> list[str]:
    """What the lifecycle table says, in the order of seq."""
    return [row["detail"] for row in read_bronze(setting.lake, "lifecycle")]


def run_shipper(setting: Setting, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "engine.telemetry.shipper"),
            *("--store", str(setting.store), "--lake", str(setting.lake)),
            *arguments,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
