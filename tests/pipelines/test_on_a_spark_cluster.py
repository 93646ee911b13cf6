"""Gold computed by a Spark standalone cluster: master, two workers and driver on hosts of their
own, which no loopback address joins.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engine.foundation.errors import ConfigError
from pipelines import commands
from pipelines.lake.lake import Lake
from pipelines.reading.moment import last_complete
from pipelines.reports.making import From, Wish, make
from pipelines.reports.shelf import Shelf
from pipelines.reports.windows import Period, Window
from tests.pipelines.gold_lake import SHORT, everything
from tests.pipelines.spark_cluster import spark_cluster

pytestmark = pytest.mark.timeout(600)

PATIENCE_S = 300
STORY_ENDS = "horizon 12:02:24"


# Four JVMs on hosts of their own; `test_live_equals_replay` shows it in the suite with local ones.
@pytest.mark.slow
def test_a_cluster_of_two_workers_writes_the_rows_that_one_process_writes(
    computed_lake: Path, fresh_lake: Callable[[], Path], tmp_path: Path
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
    assert everything(lake) == everything(computed_lake)
    for log in tmp_path.glob("*.log"):
        assert "127.0.0." not in log.read_text(), f"{log.name} names a loopback address"
    for worker in ("worker-0", "worker-1"):
        assert list((tmp_path / worker).glob("app-*")), f"{worker} has run nothing"


@pytest.mark.slow
def test_a_report_and_checks_are_made_on_a_cluster(computed_lake: Path, tmp_path: Path) -> None:
    lake, files = tmp_path / "lake", tmp_path / "files"
    shutil.copytree(computed_lake, lake)
    with spark_cluster(tmp_path, workers=2) as cluster:
        on_it = ("--master", cluster.url, "--address", cluster.driver.address)
        of_executors = ("--conf", "spark.executor.memory=512m")

        def done(*words: str, code: int = 0) -> str:
            command = ["-m", "tidemark", *words, "--lake", str(lake), *on_it, *of_executors]
            with cluster.start(command) as driver:
                output, _ = driver.communicate(timeout=PATIENCE_S)
            assert driver.returncode == code, output
            return output

        moment = last_complete(Lake.at(str(lake)))
        assert moment is not None
        ended = max(one.judged_to for one in moment.reached)
        begun = ended - timedelta(minutes=5)
        period = ("--from", begun.isoformat(), "--to", ended.isoformat())
        made = json.loads(
            done(
                *("reports", "run", "--period", "custom", *period, "--folder", str(files)),
                *("--database", f"sqlite:///{tmp_path / 'tidemark.db'}", "--json"),
            )
        )
        assert made["made_now"]
        # Two laws are broken in the lake's story, and no other.
        checked = done("check", "--docs", "none", code=1)
        assert checked.count("FAILS") == 2
        assert "offsets_never_fall_unexplained" in checked
    apps = {app for worker in ("worker-0", "worker-1") for app in (tmp_path / worker).glob("app-*")}
    assert len({app.name for app in apps}) == 2, "each was an application of the cluster"
    local, _ = make(Shelf(Lake.at(str(lake)), files), Wish(made_window(made), From.RECORDED))
    assert local.digest == made["digest"], "one process counts the same"


def made_window(computed_lake: dict[str, str]) -> Window:
    begin, end = (datetime.fromisoformat(computed_lake[name]) for name in ("begin", "end"))
    return Window(Period.CUSTOM, begin, end, computed_lake["zone"])


def test_a_cluster_without_an_address_of_the_driver_is_one_sentence(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        commands.app,
        ["pipeline", "run", "--lake", str(tmp_path), "--master", "spark://10.77.0.1:7077"],
    )
    assert isinstance(done.exception, ConfigError)
    assert "name an address of this machine that they can reach" in str(done.exception)
