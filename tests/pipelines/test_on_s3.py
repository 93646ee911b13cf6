"""A lake in an object store, from bronze to the pages: computed, asked, shown and walked through by
the processes that a user starts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import pytest

from pipelines.lake import Lake
from pipelines.small_files import object_store
from tests.integration.pipelines.s3_server import BUCKET, s3_server
from tests.pipelines.gold_lake import SHORT, everything

pytestmark = pytest.mark.timeout(600)

TIDEMARK = str(Path(sys.executable).parent / "tidemark")
ROOT = f"s3://{BUCKET}/lake"
STORY_ENDS = "horizon 12:02:24"


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, str]]:
    with s3_server() as options, pytest.MonkeyPatch.context() as patch:
        for name, text in options.items():
            patch.setenv(name, text)
        yield options


@pytest.fixture(scope="module")
def lake(s3: Mapping[str, str], incident_bronze: Path) -> Lake:
    """The story's bronze in the store, and its gold as `tidemark pipeline run` computes it."""
    home = Lake.at(ROOT)
    store = object_store(home)
    for file in incident_bronze.rglob("*"):
        if file.is_file():
            obstore.put(store, str(file.relative_to(incident_bronze)), file.read_bytes())
    with started(
        *("pipeline", "run", "--lake", ROOT, "--cycle-ms", "0", "--rows-per-cycle", "1500"),
        *("--window-ms", str(SHORT.window_ms), "--slide-ms", str(SHORT.slide_ms)),
    ) as driver:
        await_line(driver, STORY_ENDS)
        driver.terminate()
        assert driver.wait(60) == 0
    return home


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([TIDEMARK, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def await_line(process: subprocess.Popen[str], wanted: str) -> str:
    assert process.stdout is not None
    while wanted not in (line := process.stdout.readline()):
        assert line, "it ended by itself"
    return line


def test_gold_in_a_store_is_the_gold_on_a_disk(lake: Lake, told: Path) -> None:
    assert everything(lake.root) == everything(told)


def test_the_notebooks_handle_asks_a_lake_in_a_store(lake: Lake, told: Path) -> None:
    script = (
        "import json, sys; from pipelines import tm; asked = tm.connect(sys.argv[1]);"
        "print(json.dumps([len(asked.stalls()), len(asked.groups()),"
        " asked.explain(asked.stalls().rows['window_id'][0]).verdict]))"
    )

    assert answer_of(script, lake.root) == answer_of(script, str(told))


def answer_of(script: str, place: str) -> Any:
    """What a process prints that asks a lake, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", script, place], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_dashboard_shows_a_lake_in_a_store(lake: Lake) -> None:
    with started("dash", "--lake", lake.root, "--port", "0") as dash:
        address = re.search(r"http://\S+", await_line(dash, "dash http://"))
        assert address is not None
        with urllib.request.urlopen(address[0], timeout=60) as answer:
            assert answer.status == 200


def test_spark_reads_a_lake_in_a_store_as_it_reads_one_on_a_disk(lake: Lake, told: Path) -> None:
    script = (
        "import json, sys; from pipelines import tm; spark = tm.connect(sys.argv[1]).spark();"
        "rows = spark.sql('SELECT `group`, observed_date, count(*), sum(lag_messages), max(seq),"
        " max(observed_at) FROM consumer_lag GROUP BY 1, 2 ORDER BY 1').collect();"
        "facts = spark.sql('SELECT event_date, max(seq) FROM lifecycle GROUP BY 1').collect();"
        "print(json.dumps([str(rows), str(facts)]))"
    )
    lags, facts = answer_of(script, lake.root)
    assert [lags, facts] == answer_of(script, str(told))
    assert "Row(group=" in lags
    assert "Row(event_date=" in facts
