"""The shipper dies at each of its steps on the spool, one after the other; the next one completes
its work.

Its steps on the lake are hit at random by the kills of `test_exactly_once_under_kills`, and between
two tables by `test_shipper`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.runtime import File, SystemDisk, system_runtime
from engine.telemetry.shipper.shipper import Shipper
from tests.integration.telemetry.bronze_rows import assert_exactly_once, read_all
from tests.integration.telemetry.shipping import MASTER, Setting, event, report, texts


class Died(BaseException):
    """The process is gone; no handler may hold it up."""


class DyingDisk(SystemDisk):
    """Does `steps` things to the disk, then the process is dead."""

    __slots__ = ("steps_left",)

    def __init__(self, steps: int) -> None:
        self.steps_left = steps

    def _step(self) -> None:
        if self.steps_left == 0:
            raise Died
        self.steps_left -= 1

    def open(self, path: str, *, create: bool = False) -> File:
        self._step()
        return super().open(path, create=create)

    def names(self, path: str) -> list[str]:
        self._step()
        return super().names(path)

    def write(self, path: str, data: bytes) -> None:
        self._step()
        super().write(path, data[: len(data) // 2])  # Dead in the middle of it...
        self._step()
        super().write(path, data)  # ... or at its end.

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)

    def sync_directory(self, path: str) -> None:
        self._step()
        super().sync_directory(path)


def test_every_step_may_be_the_last(tmp_path: Path) -> None:
    setting = Setting(tmp_path)
    setting.telemetry = setting.boot(segment_bytes=600)
    steps_seen: list[str] = []
    steps = 0
    while True:
        for _ in range(3):  # Enough to begin a new segment, so that there is one to drop.
            steps_seen.append(f"fact {len(steps_seen)}")
            setting.report(event(steps_seen[-1]), report(len(steps_seen)))
        disk = DyingDisk(steps)
        runtime = replace(system_runtime(), disk=disk)
        try:
            Shipper(runtime, str(setting.spool), str(setting.lake), {}).ship_all()
        except Died:
            steps += 1
            setting.ship()
            assert len(list(setting.spool.glob("*.seg"))) == 1, f"{steps}: done is dropped"
        else:
            break
    assert steps >= 15, "many different deaths"
    setting.ship()
    assert assert_exactly_once(read_all(setting.lake), MASTER.emitter) == 2 * len(steps_seen)
    assert texts(setting) == steps_seen
    assert len(list(setting.spool.glob("*.seg"))) == 1
