"""A stalled window has one sentence: its page, its alert and `tm` say the same one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from dashboards.page_context import PageContext
from dashboards.pages import group
from dashboards.reads.lake_data import LakeData
from pipelines import tm
from pipelines.alerting.rule_files import read_rules, shipped_files
from pipelines.alerting.texts import rendered
from pipelines.lake.lake import Lake
from pipelines.marts.stalled_windows import STALLED_WINDOWS
from pipelines.sentences.figures import whole
from pipelines.sentences.stalls import headline
from tests.gold_lake import END, write_gold_lake
from tests.lake_story import append_rows

RULES = {rule.name: rule for rule in read_rules(shipped_files()).rules}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """With a stalled window whose newest revision says what gold would say of it."""
    made = write_gold_lake(tmp_path_factory.mktemp("verdict") / "lake")
    window = open_window(made)
    said = whole(headline(window))
    row = {name: window.get(name) for name in STALLED_WINDOWS.column_names}
    row |= {"revision": window["revision"] + 1, "headline": said}
    row["evidence"] = f"{said} Offset 451 has not moved for 30 s."
    append_rows(made.gold("stalled_windows"), STALLED_WINDOWS.columns, [row], "observed_date")
    return made


def open_window(lake: Lake) -> dict[str, Any]:
    handle = replace(tm.connect(lake.root), clock=lambda: END)
    rows = handle.stalls("shipping").rows.filter(pl.col("closed_at").is_null())
    return rows.row(0, named=True)


def alert_of(window: dict[str, Any], rule: str) -> str:
    figures = {name: None if one is None else str(one) for name, one in window.items()}
    labels = {name: str(window[name]) for name in RULES[rule].label_columns}
    made = rendered(
        RULES[rule].annotations,
        labels=labels,
        figures=figures,
        given={"evidence": str(window["evidence"]), "since": "", "moment": "", "owner": ""},
    )
    return made["summary"]


def test_the_page_the_alert_and_tm_say_the_headline_of_one_window(lake: Lake) -> None:
    window = open_window(lake)
    said = str(window["headline"])
    assert said.startswith("Group shipping is stuck on queue 2 of orders on broker-a: message ")
    assert alert_of(window, "QueueFrozen") == said
    sentence = said.rstrip(".")
    page = str(group.content(PageContext(LakeData(lake), lambda: END), "shipping", "", "dark")[2])
    assert sentence in page
    handle = replace(tm.connect(lake.root), clock=lambda: END)
    for answer in (handle.stalls("shipping"), handle.explain(window["window_id"])):
        assert sentence[1:] in answer.verdict, "it begins in the middle of a verdict"


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, rule in RULES.items()
        if rule.tables == (STALLED_WINDOWS.name,) and "labels" not in rule.annotations["summary"]
    ),
)
def test_every_rule_of_single_windows_says_their_headline(lake: Lake, name: str) -> None:
    window = open_window(lake)
    assert alert_of(window, name) == window["headline"]
    assert alert_of({**window, "headline": None}, name) == window["evidence"]


def test_rules_of_single_windows_have_no_sentence_of_their_own() -> None:
    of_one_window = {
        name for name, rule in RULES.items() if rule.tables == (STALLED_WINDOWS.name,) and rule.when
    }
    own = {name for name in of_one_window if "headline" not in RULES[name].annotations["summary"]}
    assert own == set()
