"""Gold computed by a Spark standalone cluster: master, two workers and driver on hosts of their
own, which no loopback address joins.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.foundation.errors import ConfigError
from pipelines import commands
from tests.pipelines.gold_lake import SHORT, everything
from tests.pipelines.spark_cluster import spark_cluster

pytestmark = pytest.mark.timeout(600)

STORY_ENDS = "horizon 12:02:24"


def test_a_cluster_of_two_workers_writes_the_rows_that_one_process_writes(
    told: Path, fresh_lake: Callable[[], Path], tmp_path: Path
) -> None:
    lake = fresh_lake()
    with (
        spark_cluster(tmp_path, workers=2) as cluster,
        cluster.start(
            [
                *("-m", "tidemark", "pipeline", "run", "--lake", str(lake)),
                *("--master", cluster.url, "--address", cluster.driver.address),
                *("--window-ms", str(SHORT.window_ms), "--slide-ms", str(SHORT.slide_ms)),
                *("--rows-per-cycle", "1500", "--cycle-ms", "0"),
            ]
        ) as driver,
    ):
        assert driver.stdout is not None
        while STORY_ENDS not in (line := driver.stdout.readline()):
            assert line, "the driver ended by itself"
        driver.terminate()
        assert driver.wait(60) == 0
    assert everything(lake) == everything(told)
    for log in tmp_path.glob("*.log"):
        assert "127.0.0." not in log.read_text(), f"{log.name} names a loopback address"
    for worker in ("worker-0", "worker-1"):
        assert list((tmp_path / worker).glob("app-*")), f"{worker} has run nothing"


def test_a_cluster_without_an_address_of_the_driver_is_one_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        commands.app,
        ["pipeline", "run", "--lake", str(tmp_path), "--master", "spark://10.77.0.1:7077"],
    )
    assert isinstance(done.exception, ConfigError)
    assert "name an address of this machine that they can reach" in str(done.exception)
