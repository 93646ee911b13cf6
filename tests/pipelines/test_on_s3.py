"""A lake in an object store, from bronze to the pages: computed, asked, shown and walked through by
the processes that a user starts.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import pytest

from pipelines import tm
from pipelines.base.settings import Pace
from pipelines.cycles.taking_over import live_driver
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import object_store
from tests.integration.pipelines.s3_server import BUCKET, s3_server
from tests.pipelines.gold_lake import SHORT, everything
from tests.pipelines.in_process import in_process, run_to_the_end
from tests.pipelines.test_runs_of_earlier_versions import FROZEN

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
    """The story's bronze in the store, and its gold."""
    home = put(incident_bronze, ROOT)
    run_to_the_end(live_driver(in_process, home, evaluation=SHORT, pace=Pace()))
    return home


def put(folder: Path, address: str) -> Lake:
    """A lake in the store with the files of one on a disk."""
    lake = Lake.at(address)
    store = object_store(lake)
    for file in folder.rglob("*"):
        if file.is_file():
            obstore.put(store, str(file.relative_to(folder)), file.read_bytes())
    return lake


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


def test_gold_in_a_store_is_the_gold_on_a_disk(lake: Lake, computed_lake: Path) -> None:
    assert everything(lake.root) == everything(computed_lake)


HANDLE = """
from pipelines import tm

def answer(place):
    asked = tm.connect(place)
    first = asked.stalls().rows["window_id"][0]
    return [len(asked.stalls()), len(asked.groups()), asked.explain(first).verdict]
"""


def test_the_notebooks_handle_asks_a_lake_in_a_store(lake: Lake, computed_lake: Path) -> None:
    stored, on_disk = answers_of(HANDLE, lake.root, str(computed_lake))
    assert stored == on_disk


def answers_of(script: str, *places: str) -> list[Any]:
    """What a process finds that asks lakes by the function `answer` of a script."""
    script += "\nimport json, sys\n"
    script += "print('\\x1e' + json.dumps([answer(place) for place in sys.argv[1:]]))"
    done = subprocess.run(
        [sys.executable, "-c", script, *places], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.rpartition("\x1e")[2])
    return found


def test_the_dashboard_shows_a_lake_in_a_store(lake: Lake, computed_lake: Path) -> None:
    """A group's name and figures, as the browser is given them."""
    worst = tm.connect(computed_lake).groups().rows.row(0, named=True)
    lag = tm.connect(computed_lake).lag(worst["group"]).rows.sort("observed_at")
    ends = lag.unique(["topic", "queue_id"], keep="last")["max_offset"].to_list()
    with started("dash", "--lake", lake.root, "--port", "0") as dash:
        address = re.search(r"http://\S+", await_line(dash, "dash http://"))
        assert address is not None
        origin = address[0].rstrip("/")
        overview = called_back(origin, "overview-strip.children", {"url.pathname": "/"})
        of_group = {"url.pathname": f"/group/{worst['group']}"}
        group = called_back(origin, "group-summary.children", of_group)

    assert worst["group"] in overview["overview-groups-tree"]
    assert f"{worst['lag_messages']:,}" in overview["overview-groups-tree"]
    assert f"The furthest behind is {worst['group']}:" in overview["overview-heatmap-text"]
    assert f"{worst['lag_messages']:,}" in group["group-summary"]
    for end in ends:
        assert f'"max_offset": "{end}"' in group["group-queues"]


def called_back(origin: str, output: str, given: Mapping[str, str]) -> dict[str, str]:
    """What the callback that has an output answers over HTTP: its components, as JSON texts."""
    known = json.loads(asked(f"{origin}/_dash-dependencies"))
    [callback] = [one for one in known if output in one["output"]]
    outputs = [
        dict(zip(("id", "property"), one.rsplit(".", 1), strict=True))
        for one in callback["output"].strip(".").split("...")
    ]
    inputs = [
        {**one, "value": given.get(f"{one['id']}.{one['property']}")} for one in callback["inputs"]
    ]
    body = {"output": callback["output"], "outputs": outputs, "inputs": inputs, "state": []}
    body["changedPropIds"] = [f"{inputs[0]['id']}.{inputs[0]['property']}"]
    answer = json.loads(asked(f"{origin}/_dash-update-component", json.dumps(body).encode()))
    return {name: json.dumps(shown) for name, shown in answer["response"].items()}


def asked(url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        assert answer.status == 200
        found: bytes = answer.read()
    return found


CELLS = """
from IPython.core.interactiveshell import InteractiveShell

def run(cell):
    return InteractiveShell.instance().run_cell(cell, store_history=False)

def answer(place):
    run("from pipelines import tm").raise_error()
    run(f"asked = tm.connect({place!r})").raise_error()
    group = run("asked.groups().rows['group'][0]").result
    drawn = run(f"len(asked[{group!r}].plot().data)").result
    return [group, run("asked.stalls()").result._repr_html_(), drawn]
"""


def test_a_notebook_cell_shows_a_lake_in_a_store(lake: Lake, computed_lake: Path) -> None:
    """What IPython prints of an answer and draws of it, cell by cell."""
    (group, shown, drawn), of_disk = answers_of(CELLS, lake.root, str(computed_lake))
    assert [group, table_of(shown), drawn] == [of_disk[0], table_of(of_disk[1]), of_disk[2]]
    assert "dead-queue" in table_of(shown)
    assert drawn > 0


def table_of(html: str) -> str:
    """The rows that are shown; the lines about them say when it was asked."""
    return html.partition("<table")[2].partition("</table>")[0]


# Spark's process is that of lakes on a disk, and what it does to a store is done above without it.
@pytest.mark.slow
def test_the_process_that_a_user_starts_computes_the_same(
    s3: Mapping[str, str], incident_bronze: Path, computed_lake: Path
) -> None:
    home = put(incident_bronze, f"s3://{BUCKET}/by-process")
    with started(
        *("pipeline", "run", "--lake", home.root, "--cycle-ms", "0", "--rows-per-cycle", "1500"),
        *("--window-ms", str(SHORT.window_ms), "--slide-ms", str(SHORT.slide_ms)),
    ) as driver:
        await_line(driver, STORY_ENDS)
        driver.terminate()
        assert driver.wait(60) == 0
    assert everything(home.root) == everything(computed_lake)


BY_SPARK = """
from pipelines import tm

def answer(place):
    spark = tm.connect(place).spark(tables=("consumer_lag", "lifecycle"))
    lags = spark.sql(
        "SELECT `group`, observed_date, count(*), sum(lag_messages), max(seq), max(observed_at)"
        " FROM consumer_lag GROUP BY 1, 2 ORDER BY 1"
    )
    facts = spark.sql("SELECT event_date, max(seq) FROM lifecycle GROUP BY 1")
    return [str(lags.collect()), str(facts.collect())]
"""


@pytest.mark.slow
def test_spark_reads_a_lake_in_a_store_as_it_reads_one_on_a_disk(
    lake: Lake, computed_lake: Path
) -> None:
    found, of_disk = (answers_of(BY_SPARK, place)[0] for place in (lake.root, str(computed_lake)))
    assert found == of_disk
    lags, facts = found
    assert "Row(group=" in lags
    assert "Row(event_date=" in facts


@pytest.mark.slow
def test_the_run_of_an_earlier_version_is_gone_on_with_in_a_store_as_on_a_disk(
    s3: Mapping[str, str], tmp_path: Path
) -> None:
    with tarfile.open(FROZEN / "readers-noted.tar.xz") as packed:
        packed.extractall(tmp_path / "lake", filter="data")
    on_disk = Lake.at(str(tmp_path / "lake"))
    stored = put(tmp_path / "lake", f"s3://{BUCKET}/earlier")
    for lake in (stored, on_disk):
        run_to_the_end(live_driver(in_process, lake, evaluation=SHORT, pace=Pace()))
    assert everything(stored.root) == everything(on_disk.root)
