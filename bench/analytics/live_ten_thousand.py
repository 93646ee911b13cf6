"""Benchmark `live-10k`: tests whether gold keeps up with a live run of 10,000 moving keys.

Each key's head moves each second; each is committed each five seconds, as RocketMQ's clients do by
default: 2,000 commits a second. A broker reports 2,000 keys a second. Scaled, there are fewer keys.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.analytics.figures import Figure
from bench.analytics.live import cluster, observe
from bench.analytics.moving import GROUPS, QUEUES, Movers
from bench.bars import EVENT_TO_GOLD_10K, KEEPS_UP

KEYS = 10_000
SECONDS = 40.0
PERSIST_S = 5


def measure(folder: Path, scale: float) -> list[Figure]:
    """To gold, and how much later the last ones came than the first."""
    movers = Movers(max(GROUPS * QUEUES, round(KEYS * scale)), commits_each=PERSIST_S)
    with cluster(folder, with_page=False) as seats:
        found = asyncio.run(observe(seats, movers, seconds=SECONDS))
    wall_s, cpu_s = found.spent.wall_s, found.spent.cpu_s
    what = f"live, {len(movers.keys):,} keys that all move"
    return [
        found.to_gold(f"{what}: answered commit", EVENT_TO_GOLD_10K),
        Figure(
            f"{what}: it keeps up, median of the last third of {SECONDS:.0f} s less the first's",
            found.falls_behind_s,
            "s",
            KEEPS_UP,
            wall_s=wall_s,
            cpu_s=cpu_s,
        ),
    ]
