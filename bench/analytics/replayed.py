"""Benchmark `replay`: bronze rows per second in a replay that writes all gold tables.

How: `bench.replay`.
"""

from __future__ import annotations

from pathlib import Path

from bench.analytics.figures import Figure
from bench.bars import REPLAY_RATE
from bench.replay import SHIPPED_S
from bench.replay import measure as replay

KEYS, SECONDS = 10_000, 5 * SHIPPED_S


def measure(folder: Path, scale: float) -> list[Figure]:
    """The cycles behind the first, which is that of a JVM that was just started."""
    keys = max(16, round(KEYS * scale))
    _, others = replay(folder, keys, SECONDS)
    per_cpu_s = others.rows / others.spent.cpu_s
    return [
        Figure(
            f"replay, {keys:,} keys, {others.rows:,} rows of bronze, on two cores",
            others.rows_per_s,
            "rows/s",
            REPLAY_RATE,
            wall_s=others.spent.wall_s,
            cpu_s=others.spent.cpu_s,
            note=f"{per_cpu_s:,.0f} a CPU second; {others.gold_rows:,} gold rows",
        )
    ]
