"""Plans go with the facts they took; what each cycle had taken stays readable as long as gold is,
and where it is not, that is said.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from engine.foundation.errors import ConfigError
from pipelines.cycles.cuts import Cut
from pipelines.cycles.cycle_records import CYCLES, keep_day
from pipelines.cycles.plan import DONE, PLANNED, PLANS, Plan, cycles_kept, oldest_kept, plans_among
from pipelines.cycles.replaying import cuts_of_cycle
from pipelines.lake.lake import Lake
from pipelines.reading.moment import Moment, cycle_moment, last_complete
from pipelines.reading.revisions import Revision, revision_after, revision_of
from pipelines.tm.clusters import revised
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import CYCLES_TABLE, PLANS_TABLE, Upkeep

FIRST_DAY = datetime(2026, 3, 1, tzinfo=UTC)
DAYS = 6
CYCLES_A_DAY = 12
LAST = DAYS * CYCLES_A_DAY
STEP_S = 60
NOW = FIRST_DAY + timedelta(days=DAYS - 1, hours=20)


def written(root: Path, seed: int = 11) -> Lake:
    """A lake's plans of six days: a is judged further in each cycle, b now and then by much."""
    chance, lake = random.Random(seed), Lake.at(str(root))
    rows, a, b = [], 0, 0
    for cycle in range(1, LAST + 1):
        a += STEP_S
        b = a if chance.random() < 0.1 else b
        at = FIRST_DAY + timedelta(days=(cycle - 1) // CYCLES_A_DAY, seconds=cycle)
        cuts = [
            asdict(Cut(name, 0, 7 * to, 0, to, 0, int(FIRST_DAY.timestamp() + to) * 1_000_000))
            for name, to in (("c/a/0", a), ("c/b/0", b))
        ]
        body = json.dumps({"cuts": cuts, "places": {}, "chains": {0: ["state"] * 9}})
        fields = {"run_id": "run", "cycle": cycle, "recorded_at": at, "recorded_date": at.date()}
        rows.append({**fields, "phase": PLANNED, "body": body})
        rows.append({**fields, "phase": DONE, "body": '{"chains": {}, "settings": "{}"}'})
    write_deltalake(
        lake.state(PLANS),
        pa.Table.from_pylist(rows),
        partition_by=["recorded_date"],
        commit_properties=CommitProperties(app_transactions=[Transaction(PLANS, len(rows))]),
    )
    return lake


def maintained(lake: Lake, *, rounds: int = 3, bronze_days: int = 1) -> list[str]:
    said: list[str] = []
    upkeep = Upkeep(bronze_days=bronze_days, settle_s=0)
    for _ in range(rounds):
        Maintainer(lake, upkeep, said.append).round(NOW)
    return said


def known(lake: Lake) -> dict[int, Moment | None]:
    return {cycle: cycle_moment(lake, cycle) for cycle in range(1, LAST + 1)}


def ends(plan: Plan) -> tuple[Cut, ...]:
    return tuple(cut.rest() for cut in plan.cuts)


def days_of_plans(lake: Lake) -> int:
    return len(lake.table(lake.state(PLANS)).partitions())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return written(tmp_path / "lake")


def test_every_cycle_is_shown_as_it_was_when_its_plan_is_gone(lake: Lake) -> None:
    before = known(lake)
    planned_at = {cycle: one.planned_at for cycle, one in before.items() if one is not None}
    plans = plans_among(lake, range(1, LAST + 1))
    assert days_of_plans(lake) == DAYS
    maintained(lake)
    assert days_of_plans(lake) == 2
    assert known(lake) == before
    after = plans_among(lake, range(1, LAST + 1))
    assert {cycle: ends(one) for cycle, one in after.items()} == {
        cycle: ends(one) for cycle, one in plans.items()
    }
    assert {cycle: one.recorded_at for cycle, one in after.items()} == planned_at
    assert oldest_kept(lake) == 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_moment_names_the_same_cycles_whatever_upkeep_has_dropped(
    tmp_path: Path, seed: int
) -> None:
    lake = written(tmp_path / "lake", seed)
    last = last_complete(lake)
    assert last is not None
    moments = [FIRST_DAY + timedelta(seconds=s) for s in range(30, LAST * STEP_S, 333)]
    before = [revision_of(lake, last, at) for at in moments]
    assert any(before)
    maintained(lake)
    assert [revision_of(lake, last, at) for at in moments] == before
    first = cycle_moment(lake, 3)
    assert first is not None
    assert revision_after(lake, last, first, moments[1]) is not None


def test_what_is_kept_in_short_takes_a_few_bytes_a_cycle(lake: Lake) -> None:
    maintained(lake)
    files = lake.table(lake.state(CYCLES)).get_add_actions(flatten=True)
    sizes = pa.table(files)["size_bytes"].to_pylist()
    assert len(sizes) == DAYS - 2
    assert max(sizes) < 6_000, "most of it is the file's own description"


def test_a_kill_between_keeping_and_dropping_keeps_no_cycle_twice(lake: Lake) -> None:
    before = known(lake)
    day = FIRST_DAY.date()
    assert keep_day(lake, lake.state(PLANS), day) == CYCLES_A_DAY
    assert known(lake) == before, "both tables have them"
    assert keep_day(lake, lake.state(PLANS), day) == 0
    maintained(lake)
    rows = lake.table(lake.state(CYCLES)).to_pyarrow_table()
    assert rows.num_rows == 2 * CYCLES_A_DAY * (DAYS - 2)
    assert known(lake) == before


def test_a_day_whose_cycles_cannot_be_kept_is_not_dropped(lake: Lake) -> None:
    place = Path(lake.state(CYCLES))
    place.write_bytes(b"no folder")
    maintained(lake)
    assert days_of_plans(lake) == DAYS
    place.unlink()
    maintained(lake)
    assert days_of_plans(lake) == 2
    assert oldest_kept(lake) == 1


def test_a_day_is_kept_in_pieces_of_bounded_size(lake: Lake) -> None:
    before = known(lake)
    plans = lake.state(PLANS)
    for day in range(DAYS):
        assert (
            keep_day(lake, plans, (FIRST_DAY + timedelta(days=day)).date(), at_once=5)
            == CYCLES_A_DAY
        )
    lake.table(plans).delete("recorded_date < '2026-03-06'")
    assert known(lake) == before


def test_cycles_that_an_earlier_version_dropped_are_said_to_be_gone(lake: Lake) -> None:
    lake.table(lake.state(PLANS)).delete("recorded_date < '2026-03-03'")
    oldest = 2 * CYCLES_A_DAY + 1
    assert oldest_kept(lake) == oldest
    last = last_complete(lake)
    assert last is not None
    lost = revision_of(lake, last, FIRST_DAY + timedelta(seconds=5 * STEP_S))
    assert lost == Revision(None, None, (), kept_from=oldest)
    assert lost is not None
    assert revised(lost, shown=LAST) == (
        f"What was known of it first is not kept any more: cycles are kept from {oldest} on."
    )
    assert cycles_kept(lake, LAST) == f"a complete cycle that is still kept, {oldest} to {LAST}"
    with pytest.raises(ConfigError, match=f"still kept, {oldest} to {LAST}"):
        cuts_of_cycle(with_done(lake), 5)
    maintained(lake)
    assert oldest_kept(lake) == oldest
    later = FIRST_DAY + timedelta(seconds=(oldest + 30) * STEP_S)
    revision = revision_of(lake, last, later)
    assert revision is None or revision.known_at is not None


def with_done(lake: Lake) -> Lake:
    assert last_complete(lake) is not None
    return lake


def test_they_are_kept_as_long_as_any_gold(lake: Lake, tmp_path: Path) -> None:
    assert Upkeep(gold_days=90).days_of(CYCLES_TABLE) == 90
    assert Upkeep(table_days={"gold/consumer_lag": 900}).days_of(CYCLES_TABLE) == 900
    assert Upkeep(table_days={"gold/consumer_lag": 9}).days_of(CYCLES_TABLE) == 400
    assert Upkeep(bronze_days=7).days_of(PLANS_TABLE) == 7
    maintained(lake)
    upkeep = replace(Upkeep(bronze_days=1, gold_days=3, settle_s=0))
    for _ in range(2):
        Maintainer(lake, upkeep, lambda _line: None).round(NOW)
    assert oldest_kept(lake) == 2 * CYCLES_A_DAY + 1
    shutil.rmtree(tmp_path / "lake" / "state" / CYCLES)
    assert oldest_kept(lake) == 4 * CYCLES_A_DAY + 1
