"""Benchmark `live-1k`: a live run, pages included, with 1,000 keys that move each second.

Each key's head moves and each is committed once a second. Scaled, there are fewer keys.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.analytics.figures import Figure
from bench.analytics.live import cluster, observe, percentile
from bench.analytics.moving import QUEUES, Movers
from bench.bars import EVENT_TO_GOLD_1K, EVENT_TO_PAGE

KEYS = 1_000
SECONDS = 40.0


def measure(folder: Path, scale: float) -> list[Figure]:
    """To gold, and to the page."""
    movers = Movers(max(QUEUES, round(KEYS * scale)))
    with cluster(folder, with_page=True) as seats:
        found = asyncio.run(observe(seats, movers, seconds=SECONDS))
    wall_s, cpu_s = found.spent.wall_s, found.spent.cpu_s
    what = f"live, {len(movers.keys):,} keys that all move each second: answered commit"
    return [
        found.to_gold(what, EVENT_TO_GOLD_1K),
        Figure(
            f"{what} → page, p95",
            percentile(found.to_page_s, 0.95),
            "s",
            EVENT_TO_PAGE,
            wall_s=wall_s,
            cpu_s=cpu_s,
            note="; ".join(found.failures),
        ),
    ]
