"""How many messages came again of a cluster that is watched from outside: never a 0 that nobody
has counted, in gold, in `tm`, and on the pages.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dashboards.page_context import PageContext
from dashboards.pages import group, overview
from dashboards.reads.lake_data import LakeData
from pipelines import tm
from pipelines.lake.lake import Lake
from pipelines.sentences.duplicates import CameAgain, came_again
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.cluster_story import ClusterStory
from tests.pipelines.gold_lake import compute, gold

LENGTH_S = 60
END = datetime.fromtimestamp(START_US / SECOND, UTC) + timedelta(seconds=LENGTH_S)
UNKNOWN = "unknown: an observer sees only what members hold"
EXACT = {"redelivered_messages": 3, "redelivered_unknown_reason": None}
NONE = {"redelivered_messages": 0, "redelivered_unknown_reason": None}
LEAST = {"redelivered_messages": 2, "redelivered_unknown_reason": "OBSERVED"}
UNSEEN = {"redelivered_messages": None, "redelivered_unknown_reason": "OBSERVED"}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A member is lost with messages that it had pulled, on a cluster watched from outside."""
    lake = tmp_path_factory.mktemp("watched") / "lake"
    story = ClusterStory(lake)
    story.writer.emitter = story.writer.emitter.removesuffix("/0") + "/watcher"
    story.group("orders", ["orders-1", "orders-2"])
    story.run(20)
    story.lose("orders", "orders-2", reason="CONNECTION_LOST")
    story.run(LENGTH_S - story.second, ship_every=5)
    story.writer.ship()
    compute(lake)
    return lake


@pytest.mark.parametrize(
    ("windows", "is_observed", "came", "text"),
    [
        ([], False, CameAgain(0), "0 messages"),
        ([], True, CameAgain(None, "OBSERVED"), f"how many messages is {UNKNOWN}"),
        ([NONE, EXACT], False, CameAgain(3), "3 messages"),
        ([NONE, UNSEEN], False, CameAgain(None, "OBSERVED"), f"how many messages is {UNKNOWN}"),
        ([EXACT, UNSEEN], False, CameAgain(3, "OBSERVED"), "at least 3 messages"),
        ([LEAST, NONE], True, CameAgain(2, "OBSERVED"), "at least 2 messages"),
    ],
)
def test_a_sum_with_something_unknown_in_it_is_the_least_or_unknown(
    windows: list[dict[str, object]], is_observed: bool, came: CameAgain, text: str
) -> None:
    told = came_again(windows, is_observed=is_observed)
    assert (told, told.text) == (came, text)


def test_gold_has_no_number_where_nobody_has_counted(watched: Path) -> None:
    rows = gold(watched, "duplicate_risk_windows")
    told = {(row["redelivered_messages"], row["redelivered_unknown_reason"]) for row in rows}
    assert told == {(None, "OBSERVED")}


def test_an_answer_says_that_it_is_unknown_whether_anything_came_again(watched: Path) -> None:
    asked = tm.connect(str(watched)).duplicates("orders", until=END)
    assert f"whether any message was delivered twice is {UNKNOWN}" in asked.verdict
    assert " 0 messages" not in asked.verdict


def test_the_pages_show_no_0_that_nobody_has_counted(watched: Path) -> None:
    desk = PageContext(LakeData(Lake.at(str(watched))), lambda: END + timedelta(seconds=2))
    strip = json.dumps(overview.content(desk, "", "light"), default=_props)
    tile = strip[strip.index("delivered twice") :][:600]
    assert "unknown" in tile
    assert "an observer sees only what members hold" in tile
    shown = json.dumps(group.content(desk, "orders", "", "light"), default=_props)
    risks = shown[shown.index("Windows of duplicate risk") :]
    assert UNKNOWN in risks


def _props(one: object) -> object:
    told = getattr(one, "to_plotly_json", None)
    return told() if told is not None else str(one)
