"""Benchmark `sampling`: event-loop time to sample watermarks of 100,000 group-queue pairs.

Scaled, there are fewer groups. What is measured and how: see `bench.sampling`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.analytics.cost import Clock
from bench.analytics.figures import Figure
from bench.sampling import GROUPS, measured


def measure(folder: Path, scale: float) -> list[Figure]:
    """One figure a share of the pairs that moves."""
    clock = Clock()
    found = asyncio.run(measured(folder, max(1, round(GROUPS * scale))))
    spent = clock.spent()
    return [
        Figure(
            f"sampling on the loop, {one.pairs:,} queues of groups, {one.share:.0%} moving",
            one.cpu_ms,
            "ms a second",
            one.bar,
            wall_s=spent.wall_s,
            cpu_s=spent.cpu_s,
            note=f"{one.emitted:,} emitted",
        )
        for one in found
        if one.bar is not None
    ]
