"""Benchmark `cluster`: compares replays on Spark clusters with one worker and with two.

Each worker has one core.

Master, workers and driver are on hosts of their own (network namespaces of this machine), as in the
test of the cluster. The replay is the command that users have, with its own cycles and buckets; its
own lines count, from the second cycle on. One worker and two take turns; which begins alternates,
and the ratio is the median of the pairs. Scaled, there are fewer minutes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from datetime import timedelta
from pathlib import Path
from statistics import median

from bench.analytics.bronze import START_US
from bench.analytics.cost import Clock
from bench.analytics.figures import Figure
from bench.analytics.replay import SHIPPED_S, write_bronze
from bench.bars import WORKERS_RATIO
from pipelines.base.time_units import moment_at
from pipelines.lake.lake import Lake
from tests.pipelines.spark_cluster import spark_cluster

KEYS, MINUTES, MINUTES_MIN = 20_000, 8, 4
"""Each key moves each second, and each minute is shipped by itself: two of them are a cycle."""
PAIRS = 5
WITHIN_S = 150.0
"""Of one replay."""
CYCLE = re.compile(r"^cycle (\d+): (\d+) rows in, .* ([\d.]+) s$")


def measure(folder: Path, scale: float) -> list[Figure]:
    """The ratio of their rows a second."""
    minutes = max(MINUTES_MIN, round(MINUTES * scale))
    write_bronze(Lake.at(str(folder / "lake")), KEYS, minutes * SHIPPED_S)
    clock = Clock()
    pairs = []
    for number in range(PAIRS):
        turns = (1, 2) if number % 2 == 0 else (2, 1)
        pairs.append({workers: _rate(folder / f"{number}-{workers}", workers) for workers in turns})
    spent = clock.spent()
    ratios = sorted(pair[2] / pair[1] for pair in pairs)
    two, one = (median(pair[workers] for pair in pairs) for workers in (2, 1))
    return [
        Figure(
            f"replay on a standalone cluster, two workers of one core ÷ one, {KEYS:,} keys",
            median(ratios),
            "",
            WORKERS_RATIO,
            wall_s=spent.wall_s,
            cpu_s=spent.cpu_s,
            note=f"{two:,.0f} : {one:,.0f} rows/s; {PAIRS} pairs, {ratios[0]:.2f}-{ratios[-1]:.2f}",
        )
    ]


def _rate(place: Path, workers: int) -> float:
    """Rows a second of the cycles behind the first; the replay's lake goes when it is over."""
    place.mkdir()
    begin = moment_at(START_US) - timedelta(minutes=1)
    end = begin + timedelta(days=1)
    with (
        spark_cluster(place, workers=workers) as cluster,
        cluster.start(
            [
                *("-m", "tidemark", "pipeline", "replay", "--lake", str(place.parent / "lake")),
                *("--from", begin.isoformat(), "--to", end.isoformat()),
                *("--into", str(place / "side")),
                *("--master", cluster.url, "--address", cluster.driver.address),
            ]
        ) as driver,
    ):
        said = _said(driver)
    shutil.rmtree(place / "side", ignore_errors=True)
    cycles = [found.groups() for line in said if (found := CYCLE.match(line)) is not None]
    rest = [(int(rows), float(seconds)) for number, rows, seconds in cycles if int(number) > 1]
    if driver.returncode or not rest:
        last = said[-1] if said else "it said nothing"
        raise SystemExit(f"{workers} workers: the replay ended with {driver.returncode}: {last}")
    return sum(rows for rows, _ in rest) / sum(seconds for _, seconds in rest)


def _said(driver: subprocess.Popen[str]) -> list[str]:
    """Its lines until its end, for which it has WITHIN_S."""
    killer = threading.Timer(WITHIN_S, driver.kill)
    killer.start()
    try:
        assert driver.stdout is not None
        said = driver.stdout.read().splitlines()
        driver.wait()
    finally:
        killer.cancel()
    return said
