"""A page, an alert and `tm` say one sentence about one stalled window."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from dashboards.models import lag_overview
from dashboards.reads.lake_data import LakeData
from pipelines import tm
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.gold_view import Gold
from pipelines.alerting.texts import rendered
from pipelines.base.time_units import micros
from pipelines.lake.lake import Lake
from pipelines.reading.known import began_at
from pipelines.sentences.alerts import OF_STALLS
from pipelines.sentences.figures import moment as moment_of
from pipelines.sentences.stalls import headline, verdict
from tests.alert_stories import Story as Alerts
from tests.dashboards.test_answers_and_views import SPAN, lines_of
from tests.gold_lake import END, START, write_gold_lake
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.marts.test_kinds_of_stalls import (
    HEAD,
    reported_each_2_s,
    snapshot_at_boot,
    windows,
)
from tests.shipped_alerts import shipped_rules

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


def alert_of(looked: Looked, group: str) -> int:
    """Since when the feed of alerts says that a queue of the group is frozen, µs."""
    (rule,) = [one for one in shipped_rules() if one.name == "QueueFrozen"]
    assert looked.data_us is not None
    feed = Alerts(rule, data_us=looked.data_us, now_us=looked.data_us).after(looked)
    (found,) = [one for one in feed.alerts if one.labels["group"] == group]
    return found.active_at_us


def test_the_feed_of_alerts_has_that_beginning(lake: Lake) -> None:
    gold, now_us = Gold(lake), micros(END)
    looked = gold.look(shipped_rules(), gold.moment(), now_us=now_us)
    assert alert_of(looked, "shipping") == micros(the_window(lake)["head_since"])


def test_a_restart_of_its_broker_moves_no_beginning() -> None:
    """The broker asks its clients anew; what stood before it stands since then."""
    story = snapshot_at_boot()
    stored = {"store_time_at_committed": START_US}
    reported_each_2_s(story, until=40, mark=stored, sample=HEAD)
    story.broker.at(40.5)
    story.broker.boot()
    story.event("BOOT")
    story.event("SNAPSHOT", seq_from=story.broker.report("lifecycle", kind="RECOVERY"))
    anew = {**HEAD, "head_since": START_US + 41 * SECOND}
    reported_each_2_s(story, begin=42, until=90, mark=stored, sample=anew)
    rows = windows(story)
    assert len({row["window_id"] for row in rows}) == 1
    assert {micros(began_at(row)) for row in rows} == {START_US}
    window = rows[-1]
    assert window["state"] == "OPEN"
    assert moment_of(began_at(window)) in window["headline"]
    seen = pl.DataFrame([{**window, "began_at": began_at(window)}], infer_schema_length=None)
    looked = Looked(micros(window["observed_at"]), {"stalled_windows": seen})
    assert alert_of(looked, "g") == START_US
