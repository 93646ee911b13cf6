"""A shipper whose engine was killed, at any moment of its life: it ships the rest and ends.

Else it would hold the spool's lock, and the next engine's shipper could not begin.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.telemetry.shipper.shipper import Shipper, sole_shipper
from engine.telemetry.shipper.spool_reader import Run
from tests.integration.broker.test_engine_with_a_lake import shipper_of
from tests.integration.telemetry.shipping import ROOT, Setting, event, texts

ENDS_WITHIN_S = 30
ENGINE = """
import asyncio, sys
from pathlib import Path
from engine.foreground import ShipperChild
asyncio.run(ShipperChild(Path(sys.argv[1]), sys.argv[2]).run())
"""
"""What an engine does with its shipper."""


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def has_ended(process_id: int) -> bool:
    """Is it gone, or only waiting to be collected?"""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


@pytest.mark.parametrize("moment_s", [0.0, 0.02, 0.1, 0.3, 0.6, 1.0, 3.0])
def test_killed_at_any_moment_an_engine_leaves_no_shipper_behind(
    setting: Setting, moment_s: float
) -> None:
    setting.report(event("reported before the kill"))
    engine = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(setting.store), str(setting.lake)],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    shipper = shipper_of(engine.pid)
    time.sleep(moment_s)
    engine.send_signal(signal.SIGKILL)
    engine.wait(10)
    deadline_s = time.monotonic() + ENDS_WITHIN_S
    try:
        while not has_ended(shipper):
            assert time.monotonic() < deadline_s, f"it still runs {ENDS_WITHIN_S} s later"
            time.sleep(0.05)
    finally:
        if not has_ended(shipper):
            os.kill(shipper, signal.SIGKILL)
    with sole_shipper(str(setting.spool)):
        setting.ship()
    assert texts(setting) == ["reported before the kill"]


def test_who_ships_the_rest_stops_at_what_was_there_though_the_next_engine_reports_more(
    setting: Setting,
) -> None:
    """An orphan that followed the spool would never end, and hold the lock for ever."""

    class Chased(Shipper):
        """Each time it has shipped, there is more."""

        shipped_count = 0

        def _mark(self, run: Run) -> None:
            super()._mark(run)
            self.shipped_count += 1
            assert self.shipped_count < 10, "it goes on and on"
            setting.report(event(f"after shipment {self.shipped_count}"))

    setting.report(event("there"))
    shipper = setting.shipper()
    shipper.__class__ = Chased
    shipper.ship_all()
    assert texts(setting)[0] == "there"
    setting.ship()
    assert texts(setting)[-1].startswith("after shipment")
