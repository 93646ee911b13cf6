"""A power cut that takes what was not synced, from copies of a running broker's store: its log as
it was at one moment, and what it reported as that was at a later one.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from engine.broker.config import BrokerConfig
from engine.foundation.observing import HandedTail
from engine.runtime import SystemDisk
from engine.telemetry.frames import Life, decode_frames
from engine.telemetry.progress import Progress
from engine.telemetry.segments import segment_names
from tests.integration.broker.cluster import Cluster, cluster, eventually

SPOOL = "spool"


def unsynced(config: BrokerConfig) -> BrokerConfig:
    """A broker that syncs its log when it stops, and not before."""
    return replace(config, store=replace(config.store, flush_interval_commit_log_ms=3_600_000))


def carried_tails(store: Path) -> list[HandedTail]:
    """What the spool in a store says that was pulled before it was synced."""
    directory = store / SPOOL
    progress = Progress()
    for name in segment_names(SystemDisk(), str(directory)):
        for placed in decode_frames((directory / name).read_bytes())[0]:
            if isinstance(placed.frame, Life):
                progress = Progress.of(placed.frame)
            else:
                progress.take_tails(placed.frame.tails)
    return progress.handed_tails()


class Cut:
    """The store that a power cut leaves, put together while the broker runs."""

    def __init__(self, running: Path, left: Path) -> None:
        self._running = running
        self._left = left

    def log_is_synced_up_to_here(self) -> None:
        """What is stored from now on is lost."""
        shutil.copytree(self._running, self._left, ignore=shutil.ignore_patterns("*.lock", "lock"))

    async def spool_is_synced_up_to_here(self, *tails: tuple[str, int]) -> None:
        """Once it carries these (topic, queue offset), all that was reported until now is kept."""

        async def has_them() -> bool:
            there = {(one.topic, one.queue_offset) for one in carried_tails(self._running)}
            return there >= {*tails}

        await eventually(has_them, f"the spool carries {tails}")
        shutil.rmtree(self._left / SPOOL)
        shutil.copytree(self._running / SPOOL, self._left / SPOOL)


@asynccontextmanager
async def before_the_cut(config: BrokerConfig) -> AsyncIterator[tuple[Cluster, Cut]]:
    """A broker of which a power cut leaves the store beside its own, called `left`."""
    store = Path(config.store.root)
    async with cluster(unsynced(config)) as running:
        yield running, Cut(store, store.with_name("left"))


def after_the_cut(config: BrokerConfig) -> BrokerConfig:
    """The broker that finds what was left."""
    root = str(Path(config.store.root).with_name("left"))
    return replace(config, store=replace(config.store, root=root))
