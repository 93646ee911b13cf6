"""The notebook of kills runs from top to bottom on a lake with a run in it, and does not call a
run good in which something came twice that nobody had predicted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nbclient.exceptions import CellExecutionError

from experiment import table
from experiment.kills import revisions
from experiment.ledger import Delivery
from experiment.plan import Flush, Kill, Listener, Plan, Victim
from experiment.score import KillRow, score
from experiment.stage import Killed, Played
from pipelines.lab.lab import write_jupyter
from pipelines.lake.lake import Lake
from tests.gold_lake import write_gold_lake
from tests.lake_lag import CRASH
from tests.lake_story import CLUSTER, at
from tests.notebooks.test_tour_notebook import FOLDER, execute, outputs, read

KILLS = FOLDER / "01_kills.ipynb"
SECOND = 1_000_000
KILL = Kill(1, 0.0, Victim.CONSUMER, ("ledger-2",), broker_first=False, down_s=1, flush=Flush.ASYNC)


def moment_us(second: float) -> int:
    return int(at(second).timestamp()) * SECOND


def rows_of(lake: Lake) -> list[KillRow]:
    """The story's crash, with ledgers that show what its gold confirms."""
    deliveries: list[Delivery] = []
    for one in revisions(lake, CLUSTER):
        if one["basis"] == "DEPARTURE" and one["outcome"] == "CONFIRMED":
            place = one["group"], one["topic"], one["queue_id"]
            begin, end = one["redelivered_from"], one["redelivered_to"]
            first = [(CRASH - 20, offset) for offset in range(begin - 10, end)]
            again = [(CRASH + 15, offset) for offset in range(begin, end)]
            deliveries += [
                Delivery(moment_us(second), *place, offset, f"m{offset}", "client", 0)
                for second, offset in (*first, *again)
            ]
    deliveries.sort(key=lambda one: one.at_us)
    killed = Killed(KILL, moment_us(CRASH), moment_us(CRASH + 60), Flush.ASYNC)
    return score(Played(CLUSTER, (killed,), tuple(deliveries)), revisions(lake, CLUSTER))


def write_run(lake: Lake, rows: list[KillRow]) -> None:
    table.append(lake, Plan(1, tuple(Listener), Flush.ASYNC, (KILL,)), CLUSTER, rows)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return write_gold_lake(tmp_path / "lake")


@pytest.fixture
def jupyter(tmp_path: Path) -> Path:
    write_jupyter(tmp_path / "jupyter")
    return tmp_path / "jupyter"


def test_every_verdict_holds_where_what_came_twice_was_predicted(jupyter: Path, lake: Lake) -> None:
    rows = rows_of(lake)
    write_run(lake, rows)

    walked = outputs(execute(read(KILLS), jupyter, lake))

    texts = [one["text"] for one in walked if one.output_type == "stream"]
    assert [line for line in texts[-1].splitlines() if not line.startswith("holds")] == []
    assert len(texts[-1].splitlines()) == 6
    figures = [one for one in walked if "application/vnd.plotly.v1+json" in one.get("data", {})]
    assert len(figures) == 1
    assert all(one.output_type != "error" for one in walked)


def test_a_run_with_a_message_that_nobody_had_predicted_is_not_called_good(
    jupyter: Path, lake: Lake
) -> None:
    first, *others = rows_of(lake)
    (begin, _), *_ = first.redelivered
    write_run(lake, [replace(first, unforeseen=((begin, begin + 1),)), *others])

    with pytest.raises(CellExecutionError) as raised:
        execute(read(KILLS), jupyter, lake)

    assert "every message that came twice lies in a range recorded before" in str(raised.value)


def test_a_lake_without_kills_says_how_to_get_some(jupyter: Path, lake: Lake) -> None:
    with pytest.raises(CellExecutionError) as raised:
        execute(read(KILLS), jupyter, lake)

    assert f"tidemark experiment kills --lake {lake.root}" in str(raised.value)
