"""A POP group that acknowledges nothing stands, though no queue of it does: answers and pages."""

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
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.cluster_story import ClusterStory
from tests.pipelines.gold_lake import compute

LENGTH_S = 120
BEGIN = datetime.fromtimestamp(START_US / SECOND, UTC)
END = BEGIN + timedelta(seconds=LENGTH_S)
SAID = "Group pops takes messages and acknowledges none since "


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One group reads by POP and acknowledges nothing; the other one is well."""
    lake = tmp_path_factory.mktemp("pops") / "lake"
    story = ClusterStory(lake)
    story.group("pops", ["pops-1"])
    story.group("orders", ["orders-1"])
    queue = next(one for one in story.queues if one.group == "pops")
    story.run(20)
    for number in range(6):
        story.pop(queue, message_id=f"m{number}", out=4)
        story.run(15, ship_every=5)
    story.run(LENGTH_S - story.second, ship_every=5)
    story.writer.ship()
    compute(lake)
    return lake


def test_an_answer_about_stalls_names_the_group_beside_that_no_queue_stands(lake: Path) -> None:
    asked = tm.connect(str(lake))
    assert asked.stalls("pops").verdict.startswith(f"No stalled window of pops is known. {SAID}")
    assert f"No stalled window is known. {SAID}" in asked.stalls().verdict
    assert "acknowledges" not in asked.stalls("orders").verdict
    before = BEGIN + timedelta(seconds=15)
    assert "acknowledges" not in asked.stalls("pops", until=before).verdict


def test_the_pages_say_it_too(lake: Path) -> None:
    context = PageContext(LakeData(Lake.at(str(lake))), lambda: END + timedelta(seconds=2))
    strip = json.dumps(overview.content(context, "", "light"), default=_props)
    tile = strip[strip.index("stalled windows") :][:900]
    assert SAID in tile
    assert "nothing stands still" not in strip
    shown = json.dumps(group.content(context, "pops", "", "light"), default=_props)
    stalls = shown[: shown.index("No queue of this group stood still")]
    assert SAID in stalls[-900:]


def _props(one: object) -> object:
    made = getattr(one, "to_plotly_json", None)
    return made() if made is not None else str(one)
