"""The tour runs from top to bottom in a kernel of its own, ends in its verdicts, and does not say
so when they are not true.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from deltalake import DeltaTable
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from pipelines.lake import Lake
from tests.gold_lake import write_gold_lake

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
TOUR = FOLDER / "00_tour.ipynb"
CELL_WITHIN_S = 90


@contextmanager
def connected_to(lake: Lake) -> Iterator[None]:
    """The environment a kernel finds that `tidemark lab` started."""
    before = os.environ.get("TIDEMARK_LAKE")
    os.environ["TIDEMARK_LAKE"] = lake.root
    try:
        yield
    finally:
        if before is None:
            del os.environ["TIDEMARK_LAKE"]
        else:
            os.environ["TIDEMARK_LAKE"] = before


def execute(notebook: Path, lake: Lake) -> Any:
    read = nbformat.read(notebook, as_version=4)
    client = NotebookClient(
        read,
        timeout=CELL_WITHIN_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(notebook.parent)}},
    )
    with connected_to(lake):
        return client.execute()


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_gold_lake(tmp_path_factory.mktemp("tour") / "lake")


def test_the_tour_walks_from_lag_to_duplicates_and_every_verdict_holds(story: Lake) -> None:
    walked = outputs(execute(TOUR, story))

    figures = [one for one in walked if "application/vnd.plotly.v1+json" in one.get("data", {})]
    assert len(figures) == 3
    texts = [one["text"] for one in walked if one.output_type == "stream"]
    assert [line for line in texts[-1].splitlines() if not line.startswith("holds")] == []
    assert len(texts[-1].splitlines()) == 9
    assert "shipping: orders queue 2, FROZEN_HEAD" in "".join(texts)
    assert all(one.output_type != "error" for one in walked)
    html = "".join(one["data"].get("text/html", "") for one in walked if "data" in one)
    assert "<script" not in html


def test_the_tour_fails_when_lag_is_not_what_it_claims(tmp_path: Path) -> None:
    lake = write_gold_lake(tmp_path / "lake")
    table = DeltaTable(lake.gold("consumer_lag"))
    table.update(updates={"lag_messages": "lag_messages + 1"}, predicate="lag_messages > 3000")

    with pytest.raises(CellExecutionError) as raised:
        execute(TOUR, lake)

    assert "every known lag is the queue's end minus the consume offset" in str(raised.value)


@pytest.mark.parametrize("notebook", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_committed_without_outputs(notebook: Path) -> None:
    cells = nbformat.read(notebook, as_version=4).cells
    dirty = [
        cell["id"]
        for cell in cells
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None)
    ]
    assert cells, "a notebook without cells"
    assert not dirty, f"clear the outputs of {notebook.name}: {dirty}"
