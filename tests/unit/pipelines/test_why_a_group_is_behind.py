"""`tm.why` and the line on the group's page: all causes of the newest tick, no false calm."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dashboards.page_context import PageContext
from dashboards.pages import group
from dashboards.reads.lake_data import LakeData
from pipelines import tm
from pipelines.lake.lake import Lake
from pipelines.marts.lag_causes import LAG_CAUSES
from pipelines.tm.arguments import NoSuchName
from tests.gold_lake import END, write_gold_lake
from tests.lake_story import BROKER, CLUSTER, EMITTER, append_rows

FULL = "Group shipping has no free listener: all 20 of c@1 are at work."


def cause(name: str, evidence: str, at: datetime, **values: Any) -> dict[str, Any]:
    known = {"group": "shipping", "lag_messages": 3152, "emitter": EMITTER, "seq": 1}
    place = {"cluster": CLUSTER, "broker": BROKER, "observed_at": at, "observed_date": at.date()}
    row = {**known, **place, "cause": name, "evidence": evidence, **values}
    return {column: row.get(column) for column in LAG_CAUSES.column_names}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return write_gold_lake(tmp_path / "lake")


def write_causes(lake: Lake, *rows: dict[str, Any]) -> None:
    append_rows(lake.gold("lag_causes"), LAG_CAUSES.columns, list(rows), "observed_date")


def page(lake: Lake) -> str:
    return str(group.content(PageContext(LakeData(lake), lambda: END), "shipping", "", "dark")[2])


def test_all_causes_of_the_newest_tick_are_shown_and_none_of_before(lake: Lake) -> None:
    now, before = END - timedelta(seconds=20), END - timedelta(seconds=80)
    write_causes(
        lake,
        cause("BURST", "a burst that is over", before),
        cause("LISTENERS_SATURATED", FULL, now, measured=20, expected=20),
        cause("SLOW_LISTENER", "Group shipping is slower than it was.", now),
    )
    answer = tm.connect(lake.root).why("shipping")
    assert answer.df["cause"].to_list() == ["LISTENERS_SATURATED", "SLOW_LISTENER"]
    begin = (
        f"Group shipping is 3,164 messages behind on {BROKER}; what follows was seen at 12:14:40 "
        f"UTC. {FULL} Group"
    )
    assert answer.verdict.startswith(begin)
    assert FULL in page(lake)
    assert "a burst that is over" not in page(lake)


def test_its_lag_is_that_of_the_moment_and_what_was_seen_before_says_when(lake: Lake) -> None:
    stood = "Group shipping stands on queue 2 of orders; 2,990 messages wait."
    at = END - timedelta(seconds=20)
    write_causes(lake, cause("STANDING_QUEUES", stood, at, lag_messages=3090))
    lake_now = tm.connect(lake.root)
    said = lake_now.why("shipping").verdict
    assert "3,090" not in said
    assert (
        "shipping is 3,164 messages behind on broker-a; what follows was seen at 12:14:40 UTC. "
        "This was seen first:" in said
    )
    assert "shipping is 3,164 messages behind" in lake_now.lag("shipping").verdict
    assert f"This was seen first: {stood} (seen at 12:14:40 UTC)" in page(lake)


def test_a_group_that_has_caught_up_has_no_causes_any_more(lake: Lake) -> None:
    write_causes(
        lake,
        cause("LISTENERS_SATURATED", FULL, END - timedelta(seconds=80)),
        cause("NONE", "the group is behind no more than is allowed", END - timedelta(seconds=20)),
    )
    assert len(tm.connect(lake.root).why("shipping")) == 0
    assert FULL not in page(lake)


def test_a_group_without_causes_is_said_with_its_state_not_as_well(lake: Lake) -> None:
    stalled = f"No cause is known of group shipping on {BROKER}. "
    for said in (tm.connect(lake.root).why("shipping"), tm.connect(lake.root).why()):
        assert said.verdict.startswith(stalled)
        assert "not behind" not in said.verdict
    well = tm.connect(lake.root).why("billing").verdict
    assert well.startswith("Group billing is well. ")


def test_a_group_that_is_not_there_is_refused_with_the_near_name(lake: Lake) -> None:
    with pytest.raises(NoSuchName, match="did you mean 'shipping'"):
        tm.connect(lake.root).why("shiping")
