"""A page, an alert and `tm` say one sentence about one stalled window."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from dashboards.models import lag_overview
from dashboards.reads.lake_data import LakeData
from pipelines import tm
from pipelines.alerting.texts import rendered
from pipelines.lake.lake import Lake
from pipelines.sentences.alerts import OF_STALLS
from pipelines.sentences.figures import moment as moment_of
from pipelines.sentences.stalls import headline, verdict
from tests.dashboards.test_answers_and_views import SPAN, lines_of
from tests.gold_lake import END, START, write_gold_lake

NAMES = ("QueueFrozen", "QueueNotPulled", "ConsumersGone", "OrderlyQueueBlocked", "QueueStalled")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_gold_lake(tmp_path_factory.mktemp("lake"))


def the_window(lake: Lake) -> dict[str, Any]:
    """The open window of shipping, as `tm` has it."""
    rows = tm.connect(lake.root).stalls("shipping").rows
    return rows.filter(pl.col("closed_at").is_null()).row(-1, named=True)


@pytest.mark.parametrize("rule", NAMES)
def test_an_alert_about_a_window_says_its_verdict(lake: Lake, rule: str) -> None:
    window = {**the_window(lake), "headline": verdict(the_window(lake))}
    texts = rendered(
        {"summary": OF_STALLS[rule]["summary"]}, labels={}, figures=window, given={"evidence": ""}
    )
    assert texts["summary"] == verdict(window)


def test_tm_says_the_verdict_of_an_alert_about_a_window(lake: Lake) -> None:
    window, asked = the_window(lake), tm.connect(lake.root)
    assert f" {verdict(window)} " in asked.stalls("shipping").verdict
    assert f" {verdict(window)} " in asked.explain(str(window["window_id"])).verdict


def test_the_overview_says_the_verdict_of_an_alert_about_a_window(lake: Lake) -> None:
    lines = lines_of(LakeData(lake).seen())
    (shipping,) = [line for line in lines if line.group == "shipping"]
    assert shipping.reason.startswith(f"{verdict(the_window(lake))} ")


def test_a_lake_of_an_earlier_version_says_the_same_verdict(lake: Lake) -> None:
    window = the_window(lake)
    assert verdict({**window, "headline": None}) == f"G{headline(window)[1:]}."


def test_a_stall_has_one_beginning_wherever_it_is_shown(lake: Lake) -> None:
    """The earliest that is proven: its message was in a listener before its window opened."""
    window, asked = the_window(lake), tm.connect(lake.root)
    begin = window["head_since"]
    assert begin < window["opened_at"]
    assert window["began_at"] == begin
    assert window["stood_ms"] == (END - begin).total_seconds() * 1000
    assert f" began at {moment_of(begin, day=True)} " in (
        asked.explain(str(window["window_id"])).verdict
    )
    seen = LakeData(lake).seen()
    begun = [
        one.at
        for one in lag_overview.changes(
            stalls=seen.stalls(START, END),
            risks=seen.present("duplicate_risk_windows", START, END),
            rebalances=seen.rows("rebalances", START, END),
            dead_letters=seen.rows("dead_letters", START, END),
            span=SPAN,
        )
        if (one.kind, one.group) == ("stall", "shipping")
    ]
    assert begin in begun
    assert window["opened_at"] not in begun
