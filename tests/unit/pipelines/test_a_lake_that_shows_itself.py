"""What a notebook shows of a connected lake: a damaged table is named, and nothing is raised."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines import tm
from pipelines.cycles.plan import Plans
from pipelines.lake.lake import Lake
from tests.gold_lake import write_gold_lake
from tests.lake_story import SETTINGS

Damage = Callable[[Path], object]


def _each_entry(table: Path, data: bytes) -> None:
    for entry in (table / "_delta_log").glob("*.json"):
        entry.write_bytes(data)


def _each_data_file(table: Path, data: bytes) -> None:
    for file in table.rglob("*.parquet"):
        file.write_bytes(data)


LOG_DAMAGES: dict[str, Damage] = {
    "a log of other bytes": lambda table: _each_entry(table, b"\xff\x00 no JSON"),
    "an empty log": lambda table: _each_entry(table, b""),
    "JSON that is no log": lambda table: _each_entry(table, b'{"add": 7}\n'),
}
DAMAGES = {**LOG_DAMAGES, "rows of noughts": lambda table: _each_data_file(table, bytes(64))}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return write_gold_lake(tmp_path / "lake")


@pytest.mark.parametrize("damage", LOG_DAMAGES.values(), ids=LOG_DAMAGES)
def test_a_damaged_table_is_named_and_the_others_are_shown(lake: Lake, damage: Damage) -> None:
    handle = tm.connect(lake.root)
    damage(Path(lake.gold("stalled_windows")))

    shown = repr(handle)

    [line] = [one for one in shown.splitlines() if "stalled_windows" in one]
    assert lake.gold("stalled_windows") in line
    assert "cannot be read" in line
    assert "restore" in line
    assert "group_state              version 0" in shown
    assert "It is judged to" in shown
    assert "stalled_windows" in handle._repr_html_()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_plans_are_named_and_the_tables_are_shown(lake: Lake, damage: Damage) -> None:
    handle = tm.connect(lake.root)
    damage(Path(lake.state("plans")))

    shown = repr(handle)

    assert lake.state("plans") in shown
    assert "cannot be read" in shown
    assert "group_state              version 0" in shown
    assert handle._ipython_key_completions_() == []


def test_a_table_that_is_gone_although_a_cycle_has_written_it_is_named(lake: Lake) -> None:
    plans = Plans.open(lake, SETTINGS, gold=(), buckets=1)
    assert plans.last is not None
    plans.finish(plans.record(plans.last.cuts, {}), {}, {"stalled_windows": 0})
    handle = tm.connect(lake.root)
    shutil.rmtree(lake.gold("stalled_windows"))

    shown = repr(handle)

    assert f"{lake.gold('stalled_windows')} is gone" in shown
