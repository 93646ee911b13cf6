"""A cycle is done when all its gold is committed: what a store refuses is done again, once."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from bench.analytics.bronze import BronzeAtScale
from engine.foundation.errors import LakeError
from pipelines.cycles.driver import READER
from pipelines.cycles.plan import last_done
from pipelines.lake.lake import Lake
from pipelines.lake.read_places import noted_places
from pipelines.reading.catalogue import CONSUMER_LAG
from tests.checked_lake import rows_of
from tests.pipelines.in_process import SHORT, driver_of

KEYS = np.arange(8)


def lag_of(lake: Lake) -> list[tuple[object, ...]]:
    """Every row of consumer_lag, whichever file it lies in."""
    return sorted(rows_of(lake, lake.gold(CONSUMER_LAG.name)).rows(), key=str)


def test_a_cycle_of_which_a_table_took_no_commit_is_not_done_and_is_carried_out_again(
    tmp_path: Path,
) -> None:
    home, twin = tmp_path / "lake", tmp_path / "twin"
    lake = Lake.at(str(home))
    bronze = BronzeAtScale(lake, len(KEYS))
    bronze.ship(5, KEYS)
    driver = driver_of(home, evaluation=SHORT)
    assert driver.next_cycle() is not None
    read_to = noted_places(lake)[READER]
    bronze.ship(10, KEYS)
    shutil.copytree(home, twin)
    log = Path(lake.gold(CONSUMER_LAG.name), "_delta_log")
    log.rename(tmp_path / "away")

    with pytest.raises(LakeError, match="takes no commit"):
        driver.next_cycle()

    (tmp_path / "away").rename(log)
    whole = last_done(lake)
    assert whole is not None
    assert whole.cycle == 1, "nobody is shown half of a cycle"
    assert noted_places(lake)[READER] == read_to, "upkeep keeps what has to be read again"
    for one in (home, twin):
        driver_of(one, evaluation=SHORT).next_cycle()
    assert lag_of(lake) == lag_of(Lake.at(str(twin)))
    assert driver_of(home, evaluation=SHORT).next_cycle() is None
