"""A lake of an earlier version opens: every reader answers, and the run goes on behind its gold."""

from __future__ import annotations

import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dashboards.page_context import PageContext
from dashboards.pages import checks, group, overview, topic
from dashboards.reads.lake_data import LakeData
from engine.foundation.errors import LakeError
from expectations.rounds import Round, Wishes, check_round
from pipelines import tm
from pipelines.alerting.gold_view import Gold
from pipelines.alerting.rule_files import read_rules, shipped_files
from pipelines.base.settings import Evaluation, Pace
from pipelines.cycles.plan import Plans, last_done
from pipelines.cycles.replaying import evaluation_of, replay
from pipelines.cycles.taking_over import AGAIN, live_driver
from pipelines.lake.lake import Lake
from tests.checked_lake import in_this_process, rows_of
from tests.pipelines.in_process import SHORT, driver_of, in_process, run_to_the_end

FROZEN = Path(__file__).parents[1] / "cases" / "lakes"
QUESTIONS = (
    *("groups", "stalls", "why", "duplicates", "rollbacks", "ownership", "rebalances"),
    *("dead_letters", "replaced", "emitters"),
)
INTERVALS = ("stalled_windows", "duplicate_risk_windows", "ownership")
PLANNED_TO = datetime(2026, 3, 1, 12, 2, 20, tzinfo=UTC)
"""To when the cycle that was under way had been planned."""


OLDEST, NEWER = EARLIER = ("plans-without-days", "readers-noted")
# Every reader reads both; what goes on is the same from there.
goes_on = pytest.mark.parametrize(
    "lake", [OLDEST, pytest.param(NEWER, marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(params=EARLIER)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    with tarfile.open(FROZEN / f"{request.param}.tar.xz") as packed:
        packed.extractall(tmp_path / "lake", filter="data")
    return Lake.at(str(tmp_path / "lake"))


def answers(lake: Lake, as_of: int | None) -> dict[str, tuple[str, str]]:
    """Sentence and rows of every question."""
    handle = tm.connect(lake.root)
    found = {name: getattr(handle, name)(as_of=as_of) for name in QUESTIONS}
    found["lag"] = handle.lag("orders", as_of=as_of)
    return {name: (one.verdict, one.digest) for name, one in found.items()}


def go_on(lake: Lake) -> list[str]:
    """The run, to the end of what was shipped; what it prints on the way."""
    said: list[str] = []
    run_to_the_end(live_driver(in_process, lake, evaluation=SHORT, pace=Pace(), say=said.append))
    return said


def gold(lake: Lake, name: str) -> pl.DataFrame:
    return rows_of(lake, lake.gold(name))


def still_open(lake: Lake, name: str) -> set[str]:
    rows = gold(lake, name).sort("revision").unique("window_id", keep="last")
    return set(rows.filter(pl.col("state") == "OPEN")["window_id"])


def test_every_reader_answers(lake: Lake) -> None:
    context = PageContext(LakeData(lake), lambda: datetime(2026, 3, 1, 12, 1, 45, tzinfo=UTC))

    assert "orders, stalled, 722 messages" in answers(lake, None)["groups"][0]
    stalls = answers(lake, 2)["stalls"][0]
    assert "1 is still open. Group orders is stuck on queue 0 of topic-orders" in stalls
    assert "orders" in str(overview.content(context, "?range=15m", "light"))
    assert "orders-1" in str(group.content(context, "orders", "?range=15m", "light"))
    assert "topic-orders" in str(topic.content(context, "topic-orders", "?range=15m", "light"))
    assert checks.content(context)
    seen = Gold(lake)
    looked = seen.look(read_rules(shipped_files()).rules, seen.moment(), now_us=0)
    assert looked.unreadable == {}
    assert looked.rows["group_state"]["state"].to_list() == ["OK", "STALLED"]


@goes_on
def test_it_is_gone_on_with_and_what_was_known_stays_as_it_was(lake: Lake) -> None:
    before = {cycle: answers(lake, cycle) for cycle in (1, 2)}

    said = go_on(lake)

    assert said[0] == (
        f"the gold of {lake.root} is of an earlier version: it stays up to cycle 2, and its bronze "
        "is read once more to go on from there"
    )
    done = last_done(lake)
    assert done is not None
    assert done.cycle == 4
    assert {cycle: answers(lake, cycle) for cycle in (1, 2)} == before
    assert not Path(lake.state(AGAIN)).exists()
    assert go_on(lake) == []


@goes_on
def test_from_then_on_gold_is_what_it_would_be_if_all_was_computed_now(
    lake: Lake, tmp_path: Path
) -> None:
    go_on(lake)
    anew = Lake.at(str(tmp_path / "anew"))
    run_to_the_end(driver_of(Path(lake.root), target=Path(anew.root), evaluation=SHORT))

    for name in ("consumer_lag", "group_state", "lag_causes"):
        later = pl.col("observed_at") > PLANNED_TO
        order = ["observed_at", "seq", "group"]
        ours, theirs = (gold(one, name).filter(later).sort(order) for one in (lake, anew))
        assert ours.height > 0
        assert ours.select(theirs.columns).equals(theirs), name
    for name in INTERVALS:
        assert still_open(lake, name) == still_open(anew, name), name
    revisions = pl.concat(gold(lake, name).select("window_id", "revision") for name in INTERVALS)
    assert not revisions.is_duplicated().any()


@goes_on
def test_who_is_killed_on_the_way_begins_it_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(Plans, "bring_up", killed)
        with pytest.raises(KeyboardInterrupt):
            go_on(lake)
        once = {name: gold(lake, name).height for name in INTERVALS}
        assert Plans.is_of_earlier_version(lake)
        with pytest.raises(KeyboardInterrupt):
            go_on(lake)
        assert {name: gold(lake, name).height for name in INTERVALS} == once

    go_on(lake)
    done = last_done(lake)
    assert done is not None
    assert done.cycle == 4


def test_other_settings_than_those_of_its_run_are_refused(lake: Lake) -> None:
    with pytest.raises(LakeError, match="use the same settings"):
        live_driver(in_process, lake, evaluation=Evaluation(), pace=Pace())

    assert Plans.is_of_earlier_version(lake)


@goes_on
def test_it_is_replayed_with_its_own_settings_and_checked_once_it_is_gone_on_with(
    lake: Lake, tmp_path: Path
) -> None:
    target = Lake.at(str(tmp_path / "replayed"))

    assert evaluation_of(lake) == SHORT
    replay(
        in_process,
        lake,
        target,
        from_us=0,
        to=int(PLANNED_TO.timestamp() * 1_000_000),
        evaluation=evaluation_of(lake),
        pace=Pace(),
        say=lambda _: None,
    )
    assert gold(target, "consumer_lag").height > 0

    def checked() -> Round:
        return check_round(lake, in_this_process, Wishes(), clock=lambda: datetime.now(UTC))

    with pytest.raises(LakeError, match=r"has no gold table consumer_lag_rollups, .*pipeline run"):
        checked()
    go_on(lake)
    assert checked().runs[-1].batch.cycle == 4
