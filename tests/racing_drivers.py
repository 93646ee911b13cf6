"""Drivers of one lake that all believe that they may plan the next cycle."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from engine.foundation.errors import LakeError
from pipelines.cycles.cuts import Cut
from pipelines.cycles.plan import Plans
from pipelines.lake.lake import Lake
from tests.lake_story import SETTINGS


def opened(lake: Lake) -> Plans:
    """The plans of a lake, as a driver takes them up."""
    return Plans.open(lake, SETTINGS, gold=(), buckets=1)


def recorded_at_once(lake: Lake, *, count: int) -> int:
    """How many of so many, each with a cut of its own, have recorded the next cycle."""
    drivers = [opened(lake) for _ in range(count)]
    ready = threading.Barrier(count)

    def record(number: int) -> bool:
        cut = Cut("c/b/0", 10, 20 + number, 1, 2, 1_000_000, 2_000_000 + number)
        ready.wait(60)
        try:
            drivers[number].record((cut,), {})
        except LakeError:
            return False
        return True

    with ThreadPoolExecutor(count) as together:
        return sum(together.map(record, range(count)))
