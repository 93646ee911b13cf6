"""A driver that stood still between the look at its lease and its plan, while another took over."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import write_deltalake

from engine.foundation.errors import LakeError
from pipelines.base.settings import Evaluation
from pipelines.cycles.cuts import Cut
from pipelines.cycles.driver import Driver
from pipelines.cycles.plan import PLANS, Plans
from pipelines.lake.lake import Lake
from tests.lake_story import SETTINGS
from tests.pipelines.bronze_lake import BronzeWriter
from tests.pipelines.in_process import driver_of
from tests.racing_drivers import opened, recorded_at_once

FIRST = Cut("c/b/0", 0, 10, 0, 1, 0, 1_000_000)
SECOND = Cut("c/b/0", 10, 20, 1, 2, 1_000_000, 2_000_000)
LATER = Cut("c/b/0", 10, 30, 1, 3, 1_000_000, 3_000_000)


def with_one_cycle(lake: Lake) -> Plans:
    plans = opened(lake)
    plans.finish(plans.record((FIRST,), {}), {0: ("state-1",)})
    return plans


def test_it_records_nothing_beside_the_plan_of_the_one_that_took_over(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    replaced = with_one_cycle(lake)
    planned = opened(lake).record((SECOND,), {})

    with pytest.raises(LakeError, match="another one computes the gold"):
        replaced.record((LATER,), {})
    with pytest.raises(LakeError, match="another one computes the gold"):
        replaced.begin_tables(["a_new_table"])

    again = opened(lake)
    assert again.last == planned
    assert not again.is_done
    assert again.begun == {}


def test_it_does_not_end_the_cycle_that_another_has_ended(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    replaced = with_one_cycle(lake)
    planned = replaced.record((SECOND,), {})
    took_over = opened(lake)
    assert took_over.last == planned
    took_over.finish(planned, {0: ("state-2",)})

    with pytest.raises(LakeError, match="another one computes the gold"):
        replaced.finish(planned, {0: ("other",)})

    assert opened(lake).chains == {0: ("state-2",)}


def test_of_several_that_plan_at_the_same_time_one_does(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    with_one_cycle(lake)
    assert recorded_at_once(lake, count=4) == 1
    assert opened(lake).last is not None


def test_two_that_begin_a_lake_at_the_same_time_do_not_begin_two_runs(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    late = Plans(lake, "another run", SETTINGS, buckets=1)
    first = opened(lake)

    with pytest.raises(LakeError, match="plans takes no record"):
        late.record((FIRST,), {})

    assert opened(lake).run_id == first.run_id


def test_plans_of_a_version_that_counted_no_records_are_gone_on_with(tmp_path: Path) -> None:
    lake, old = Lake.at(str(tmp_path)), Lake.at(str(tmp_path / "old"))
    with_one_cycle(lake)
    rows = lake.table(lake.state(PLANS)).to_pyarrow_table()
    write_deltalake(old.state(PLANS), rows, partition_by=["recorded_date"])

    plans, beside = opened(old), opened(old)
    assert plans.record((SECOND,), {}).cycle == 2

    assert opened(old).last == plans.last
    with pytest.raises(LakeError, match="another one computes the gold"):
        beside.record((LATER,), {})


def test_gold_has_every_row_once_although_two_drivers_go_on_from_the_same_cycle(
    tmp_path: Path,
) -> None:
    """More is shipped between the look of one and that of the other: their cuts would differ."""
    writer = BronzeWriter(tmp_path)

    def ship(second: int) -> None:
        writer.at(second)
        writer.report(
            "rebalance_events",
            group="g",
            client_id=f"c{second}",
            kind="JOINED",
            inferred=False,
            generation=second,
        )
        writer.ship()

    def driver() -> Driver:
        return driver_of(tmp_path, evaluation=Evaluation())

    ship(1)
    replaced = driver()
    assert replaced.next_cycle() is not None
    took_over = driver()
    ship(2)
    assert took_over.next_cycle() is not None
    ship(3)

    with pytest.raises(LakeError, match="another one computes the gold"):
        replaced.next_cycle()
    assert took_over.next_cycle() is not None

    lake = Lake.at(str(tmp_path))
    clients = lake.table(lake.gold("rebalances")).to_pyarrow_table()["client_id"].to_pylist()
    assert sorted(clients) == ["c1", "c2", "c3"]
