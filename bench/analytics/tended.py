"""Benchmark `upkeep`: files in use per table per day, and the cost of a thirty-day query.

Two of the days, that of the query and the newest one, have a cycle each five seconds; the others
stand for age, with as many as upkeep leaves files. Scaled, these two have fewer. What is measured
and how: see `bench.upkeep`.
"""

from __future__ import annotations

from pathlib import Path

from bench.analytics.figures import Figure
from bench.bars import FILES_A_DAY, QUESTION_CPU
from bench.upkeep import measure as tend

DAYS, CYCLES, CYCLES_OF_OTHERS = 30, 17_280, 12
CYCLES_MIN = 120
"""With fewer, no day would need upkeep."""


def measure(folder: Path, scale: float) -> list[Figure]:
    """Two figures."""
    del folder
    cycles = max(CYCLES_MIN, round(CYCLES * scale))
    found = tend(DAYS, cycles, cycles_of_others=CYCLES_OF_OTHERS)
    return [
        Figure(
            "files in use of a table and a day, most of 30 days",
            found.files,
            bar=FILES_A_DAY,
            wall_s=found.spent.wall_s,
            cpu_s=found.spent.cpu_s,
            note=f"{found.files_untended} without upkeep",
        ),
        Figure(
            "a question of 15 minutes of one group (tm.lag), asked of 30 days",
            found.question_cpu_s,
            "CPU s",
            QUESTION_CPU,
            cpu_s=found.question_cpu_s,
            note=f"{found.rows} rows; {found.question_untended_cpu_s:.2f} without upkeep",
        ),
    ]
