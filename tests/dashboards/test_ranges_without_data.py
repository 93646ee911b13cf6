"""A range of which nothing can be known shows nothing that is true of another time."""

from __future__ import annotations

import json

import pytest
from plotly.utils import PlotlyJSONEncoder

from dashboards import url_state
from dashboards.page_context import PageContext
from dashboards.pages import group, overview
from dashboards.reads.lake_data import LakeData
from pipelines.lake.lake import Lake
from tests.dashboards.conftest import FRESH
from tests.gold_lake import write_gold_lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_gold_lake(tmp_path_factory.mktemp("ranges") / "lake")


@pytest.mark.parametrize(
    "search",
    ["?from=2020-01-01&to=2020-01-02", "?from=2030-01-01&to=2030-01-02"],
    ids=["before", "ahead"],
)
def test_a_range_without_data_is_shown_as_such(lake: Lake, search: str) -> None:
    def shown(parts: object) -> str:
        return json.dumps(parts, cls=PlotlyJSONEncoder)

    context = PageContext(LakeData(lake), lambda: FRESH)
    for page in (
        shown(overview.content(context, search, "light")),
        shown(group.content(context, "shipping", search, "light")),
    ):
        assert "Nothing in this range" in page
        assert "pill-" not in page


@pytest.mark.parametrize(
    "search",
    [
        "?from=0001-01-01&to=0001-01-02",
        "?from=0001-01-01T00:00:00%2B14:00&to=0001-01-02",
        "?from=9999-12-31T20:00:00&to=9999-12-31T23:59:59-10:00",
        "?from=1969-12-31&to=1970-01-01",
    ],
)
def test_a_range_that_no_lake_covers_counts_as_not_given(search: str) -> None:
    assert url_state.parse(search) == url_state.View()
