"""The part `cluster`: a replay on a standalone cluster with one worker of one core, and with two.

Master, workers and driver are on hosts of their own (network namespaces of this machine), as in the
test of the cluster. The replay is the command that users have; what counts are its own lines, from
the second cycle on. Scaled, there are fewer keys.
"""

from __future__ import annotations

import re
import subprocess
import threading
from datetime import timedelta
from pathlib import Path

from bench.analytics.bronze import START_US
from bench.analytics.cost import Clock
from bench.analytics.figures import Figure
from bench.bars import WORKERS_RATIO
from bench.replay import SHIPPED_S, write_bronze
from pipelines.lake import Lake
from pipelines.microseconds import moment_at
from tests.pipelines.spark_cluster import spark_cluster

KEYS, SECONDS = 10_000, 5 * SHIPPED_S
BUCKETS = 4
WITHIN_S = 100.0
"""Of one replay."""
CYCLE = re.compile(r"^cycle (\d+): (\d+) rows in, .* ([\d.]+) s$")


def measure(folder: Path, scale: float) -> list[Figure]:
    """The ratio of their rows a second."""
    keys = max(500, round(KEYS * scale))
    write_bronze(Lake.at(str(folder / "lake")), keys, SECONDS)
    clock = Clock()
    rates = {workers: _rate(folder, workers, keys) for workers in (1, 2)}
    spent = clock.spent()
    return [
        Figure(
            f"replay on a standalone cluster, two workers of one core ÷ one, {keys:,} keys",
            rates[2] / rates[1],
            "",
            WORKERS_RATIO,
            wall_s=spent.wall_s,
            cpu_s=spent.cpu_s,
            note=f"{rates[2]:,.0f} : {rates[1]:,.0f} rows/s",
        )
    ]


def _rate(folder: Path, workers: int, keys: int) -> float:
    """Rows a second of the cycles behind the first."""
    place = folder / f"{workers}-workers"
    place.mkdir()
    begin = moment_at(START_US) - timedelta(minutes=1)
    end = begin + timedelta(seconds=SECONDS + 120)
    with (
        spark_cluster(place, workers=workers) as cluster,
        cluster.start(
            [
                *("-m", "tidemark", "pipeline", "replay", "--lake", str(folder / "lake")),
                *("--from", begin.isoformat(), "--to", end.isoformat()),
                *("--into", str(place / "side"), "--buckets", str(BUCKETS)),
                *("--rows-per-cycle", str(keys * SHIPPED_S)),
                *("--master", cluster.url, "--address", cluster.driver.address),
            ]
        ) as driver,
    ):
        said = _said(driver)
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
