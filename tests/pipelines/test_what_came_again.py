"""How many messages came again of a cluster that is watched from outside: never a 0 that nobody
has counted, in gold, in `tm`, and on the pages.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

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
HOW_MANY = f"how many repeated deliveries is {UNKNOWN}"
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
        ([], False, CameAgain(0), "0 repeated deliveries"),
        ([], True, CameAgain(None, "OBSERVED"), HOW_MANY),
        ([NONE, EXACT], False, CameAgain(3), "3 repeated deliveries"),
        ([NONE, UNSEEN], False, CameAgain(None, "OBSERVED"), HOW_MANY),
        ([EXACT, UNSEEN], False, CameAgain(3, "OBSERVED"), "at least 3 repeated deliveries"),
        ([LEAST, NONE], True, CameAgain(2, "OBSERVED"), "at least 2 repeated deliveries"),
    ],
)
def test_a_sum_with_something_unknown_in_it_is_the_least_or_unknown(
    windows: list[dict[str, object]], is_observed: bool, came: CameAgain, text: str
) -> None:
    again = came_again(windows, is_observed=is_observed)
    assert (again, again.text) == (came, text)


def of_one(offset: int, times: int = 1, topic: str = "t") -> dict[str, Any]:
    """A window in which one message came again so often."""
    place = {"cluster": "c", "broker": "b", "group": "g", "topic": topic, "queue_id": 0}
    ranges = {"redelivered_from": offset, "redelivered_to": offset + 1}
    return {**EXACT, **place, **ranges, "redelivered_messages": times}


def test_a_message_that_came_nine_times_is_one_message() -> None:
    """40 messages whose invisible times ran out eight times each are no 320 messages."""
    windows = [of_one(offset) for _ in range(8) for offset in range(40)]
    assert came_again(windows) == CameAgain(320, None, 40)
    assert came_again(windows).text == "320 repeated deliveries of at most 40 messages"
    assert came_again(windows[:40]).text == "40 repeated deliveries"
    assert came_again([of_one(7), of_one(7, topic="u")]).text == "2 repeated deliveries"
    assert came_again([of_one(7, 3)]).text == "3 repeated deliveries of at most 1 message"
    unseen = came_again([*windows, UNSEEN])
    assert unseen.text == "at least 320 repeated deliveries"


@pytest.mark.parametrize("seed", range(200))
def test_messages_that_came_again_are_never_fewer_than_there_were(seed: int) -> None:
    dice = random.Random(seed)
    came: set[tuple[str, int]] = set()
    windows = []
    for _ in range(dice.randrange(1, 12)):
        begin, topic = dice.randrange(20), dice.choice("tu")
        pulls = [range(begin, begin + dice.randrange(1, 9)) for _ in range(dice.randrange(1, 4))]
        came |= {(topic, offset) for pull in pulls for offset in pull}
        window = of_one(begin, sum(len(pull) for pull in pulls), topic)
        windows.append({**window, "redelivered_to": max(pull.stop for pull in pulls)})
    again = came_again(windows)
    assert again.deliveries is not None
    most = again.deliveries if again.messages_at_most is None else again.messages_at_most
    assert len(came) <= most <= again.deliveries


def test_gold_has_no_number_where_nobody_has_counted(watched: Path) -> None:
    rows = gold(watched, "duplicate_risk_windows")
    counts = {(row["redelivered_messages"], row["redelivered_unknown_reason"]) for row in rows}
    assert counts == {(None, "OBSERVED")}


def test_an_answer_says_that_it_is_unknown_whether_anything_came_again(watched: Path) -> None:
    asked = tm.connect(str(watched)).duplicates("orders", until=END)
    assert f"whether any message was delivered twice is {UNKNOWN}" in asked.verdict
    assert " 0 messages" not in asked.verdict


def test_the_pages_show_no_0_that_nobody_has_counted(watched: Path) -> None:
    context = PageContext(LakeData(Lake.at(str(watched))), lambda: END + timedelta(seconds=2))
    strip = json.dumps(overview.content(context, "", "light"), default=_props)
    tile = strip[strip.index("repeated deliveries") :][:600]
    assert "unknown" in tile
    assert "an observer sees only what members hold" in tile
    shown = json.dumps(group.content(context, "orders", "", "light"), default=_props)
    risks = shown[shown.index("Windows of duplicate risk") :]
    assert UNKNOWN in risks


def _props(one: object) -> object:
    to_plain = getattr(one, "to_plotly_json", None)
    return to_plain() if to_plain is not None else str(one)
