"""A link of an alert leads to the notebook of its kind, with group, range and cut filled in."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlparse

import httpx
import pytest

from engine.foundation.errors import ConfigError
from pipelines.base.time_units import micros
from pipelines.lab import lab_links
from pipelines.lab.lab import lab_command, lab_environment
from pipelines.lake.lake import Lake
from pipelines.reading.investigations import KINDS, PATH, Investigation, asked_for, of_alert
from pipelines.tm import LAKE_VARIABLE
from provision.places import NOTEBOOKS
from tests.gold_lake import END, START, write_gold_lake

GROUPS = {"members": "billing", "failures": "billing", "duplicates": "ledger"}
ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/lab\?token=(\w+)")
HOSTILE = 'x\'); import os\n"""\\'


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_gold_lake(Path(tmp_path_factory.mktemp("investigated")))


@pytest.fixture
def notebooks(tmp_path: Path) -> Path:
    shutil.copytree(NOTEBOOKS / lab_links.TEMPLATES, tmp_path / lab_links.TEMPLATES)
    return tmp_path


def investigation(kind: str) -> Investigation:
    table = {
        "lag": "group_state",
        "stalls": "stalled_windows",
        "duplicates": "offset_violations",
        "members": "rebalances",
        "failures": "dead_letters",
        "platform": "pipeline",
    }[kind]
    labels = {"group": GROUPS.get(kind, "shipping")} if kind != "platform" else {}
    begin_us, end_us = micros(START) + 60_000_000, micros(END)
    return of_alert(table, labels, begin_us=begin_us, end_us=end_us, margin=timedelta(minutes=5))


def cells(place: Path) -> list[str]:
    notebook = json.loads(place.read_text())
    return ["".join(one["source"]) for one in notebook["cells"] if one["cell_type"] == "code"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_notebook_of_each_kind_is_filled_in_and_reaches_its_verdict(
    kind: str,
    lake: Lake,
    notebooks: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = investigation(kind)
    assert asked.kind == kind
    link = dict(parse_qsl(urlparse(asked.address).query))
    made = notebooks / lab_links.made(notebooks, asked_for(link))
    script = notebooks / "script.py"
    script.write_text("\n".join(cells(made)))
    monkeypatch.setenv(LAKE_VARIABLE, lake.root)
    names = runpy.run_path(str(script))
    assert names["AS_OF"] == names["UNTIL"] == "2026-03-01T12:15:00Z"
    assert names["SINCE"] == "2026-03-01T11:56:00Z"
    assert "FAILS" not in capsys.readouterr().out


def test_names_that_others_chose_are_texts_and_never_code(notebooks: Path) -> None:
    asked = asked_for({"kind": "stalls", "group": HOSTILE, "cluster": "é\x00"})
    made = notebooks / lab_links.made(notebooks, asked)
    script = notebooks / "parameters.py"
    script.write_text(cells(made)[0])
    names = runpy.run_path(str(script))
    assert (names["GROUP"], names["CLUSTER"], names["TOPIC"]) == (HOSTILE, "é\x00", None)
    assert "os" not in names


def test_a_second_click_opens_what_the_first_has_made_as_somebody_has_left_it(
    notebooks: Path,
) -> None:
    first = lab_links.made(notebooks, investigation("lag"))
    (notebooks / first).write_text("changed by hand")
    assert lab_links.made(notebooks, investigation("lag")) == first
    assert (notebooks / first).read_text() == "changed by hand"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kind": "../../etc"}, "one of lag"),
        ({"kind": "lag", "group": "x" * 301}, "300 characters"),
        ({"kind": "lag", "since": "yesterday"}, "a moment like"),
    ],
)
def test_what_is_no_question_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        asked_for(given)


@contextmanager
def serving(notebooks: Path, home: Path) -> Iterator[tuple[str, str]]:
    """Address and token of a lab in a folder of notebooks."""
    environment = lab_environment(home, Lake.at(str(home / "lake"))) | {"HOME": str(home)}
    command = lab_command(port=0, browser=False, notebooks=notebooks)
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = []
        try:
            for line in process.stderr:
                said.append(line)
                if found := ADDRESS.search(line):
                    yield found[1], found[2]
                    return
            raise AssertionError("the lab said no address:\n" + "".join(said))
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_a_lab_opens_the_notebook_for_who_has_logged_in_and_for_nobody_else(
    notebooks: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asked = investigation("stalls")
    with serving(notebooks, tmp_path_factory.mktemp("home")) as (address, token):
        stranger = httpx.get(address + asked.address)
        assert stranger.status_code == 302
        assert stranger.headers["Location"].startswith("/login?next=")
        assert not (notebooks / lab_links.FOLDER).exists()
        known = {"Authorization": f"token {token}"}
        opened = httpx.get(address + asked.address, headers=known)
        assert opened.status_code == 302
        assert opened.headers["Location"] == f"/lab/tree/{lab_links.FOLDER}/{asked.file_name}"
        path = opened.headers["Location"].removeprefix("/lab/tree/")
        content = httpx.get(f"{address}/api/contents/{path}", headers=known).json()
        assert "GROUP = 'shipping'" in content["content"]["cells"][1]["source"]
        wrong = httpx.get(f"{address}{PATH}?kind=none", headers=known)
        assert wrong.status_code == 400
