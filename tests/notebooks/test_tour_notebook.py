"""The tour runs from top to bottom in a kernel of its own, ends in its verdicts, and does not say
so when they are not true. The kernel is the one the notebook names, started as `tidemark lab` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from deltalake import DeltaTable
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from pipelines.lab.lab import KERNEL, lab_environment, write_jupyter
from pipelines.lake.lake import Lake
from tests.gold_lake import write_gold_lake

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
TOUR = FOLDER / "00_tour.ipynb"
CELL_WITHIN_S = 90


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `tidemark lab` writes for JupyterLab."""
    folder = tmp_path_factory.mktemp("jupyter")
    write_jupyter(folder)
    return folder


@contextmanager
def started_by_lab(jupyter: Path, lake: Lake) -> Iterator[None]:
    """The environment that a kernel of `tidemark lab` inherits."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in lab_environment(jupyter, lake).items():
            patch.setenv(name, value)
        yield


def execute(notebook: Any, jupyter: Path, lake: Lake, *, kernel: str = "") -> Any:
    """Run every cell, in the kernel that the notebook names unless another is meant."""
    client = NotebookClient(
        notebook,
        timeout=CELL_WITHIN_S,
        kernel_name=kernel,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    with started_by_lab(jupyter, lake):
        return client.execute()


def read(notebook: Path) -> Any:
    return nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_gold_lake(tmp_path_factory.mktemp("tour") / "lake")


def test_the_tour_walks_from_lag_to_duplicates_and_every_verdict_holds(
    jupyter: Path, story: Lake
) -> None:
    walked = outputs(execute(read(TOUR), jupyter, story))

    figures = [one for one in walked if "application/vnd.plotly.v1+json" in one.get("data", {})]
    assert len(figures) == 3
    texts = [one["text"] for one in walked if one.output_type == "stream"]
    assert [line for line in texts[-1].splitlines() if not line.startswith("holds")] == []
    assert len(texts[-1].splitlines()) == 9
    assert "shipping: orders queue 2, FROZEN_HEAD" in "".join(texts)
    assert all(one.output_type != "error" for one in walked)
    html = "".join(one["data"].get("text/html", "") for one in walked if "data" in one)
    assert "<script" not in html


def test_the_tour_fails_when_lag_is_not_what_it_claims(jupyter: Path, tmp_path: Path) -> None:
    lake = write_gold_lake(tmp_path / "lake")
    table = DeltaTable(lake.gold("consumer_lag"))
    table.update(updates={"lag_messages": "lag_messages + 1"}, predicate="lag_messages > 3000")

    with pytest.raises(CellExecutionError) as raised:
        execute(read(TOUR), jupyter, lake)

    assert "every known lag is the queue's end minus the consume offset" in str(raised.value)


def test_the_lab_s_own_kernel_knows_the_lake_as_well(jupyter: Path, story: Lake) -> None:
    beginning = read(TOUR)
    first = next(cell for cell in beginning.cells if cell.cell_type == "code")
    beginning.cells = [first]

    (shown,) = outputs(execute(beginning, jupyter, story, kernel=KERNEL))

    assert story.root in shown["data"]["text/plain"]


@pytest.mark.parametrize("notebook", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_committed_without_outputs(notebook: Path) -> None:
    cells = read(notebook).cells
    dirty = [
        cell["id"]
        for cell in cells
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None)
    ]
    assert cells, "a notebook without cells"
    assert not dirty, f"clear the outputs of {notebook.name}: {dirty}"
