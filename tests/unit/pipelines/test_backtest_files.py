"""What a backtest reads: incidents in three kinds of files and in a table, rule sets by name or
with settings; and sentences for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from pipelines.backtest.rule_sets import Tried, tried_of
from pipelines.backtest.truths import Incident, append_incidents, from_file, incident_of, planted
from pipelines.base.settings import Evaluation
from pipelines.lake.lake import Lake
from pipelines.rules.burrow.evaluator import Status
from pipelines.rules.burrow.over_time import BurrowRules, EvaluatorSettings
from pipelines.rules.burrow.storage import StorageSettings
from pipelines.rules.thresholds import Thresholds

NOON_US = 1_772_366_400_000_000
"""2026-03-01 12:00:00 UTC."""
S = 1_000_000
FROZEN = Incident(NOON_US, NOON_US + 90 * S, "orders", "FROZEN_HEAD", "shop", "sales", 3)
DEAD = Incident(NOON_US + 5 * S, NOON_US + 60 * S, "mails", "DEAD_CONSUMER")

CSV = """cluster,group,topic,queue_id,kind,begin,end
shop,orders,sales,3,FROZEN_HEAD,2026-03-01T12:00:00Z,2026-03-01T13:01:30+01:00
,mails,,,DEAD_CONSUMER,2026-03-01T12:00:05,2026-03-01T12:01:00
"""
TOML = """
[[incident]]
cluster = "shop"
group = "orders"
topic = "sales"
queue_id = 3
kind = "FROZEN_HEAD"
begin = 2026-03-01T12:00:00Z
end = 2026-03-01T12:01:30Z
[[incident]]
group = "mails"
kind = "DEAD_CONSUMER"
begin = 2026-03-01T12:00:05Z
end = 2026-03-01T12:01:00Z
"""
JSON = """[
 {"group": "mails", "kind": "DEAD_CONSUMER", "cluster": null,
  "begin": "2026-03-01T12:00:05Z", "end": "2026-03-01T12:01:00Z"},
 {"cluster": "shop", "group": "orders", "topic": "sales", "queue_id": 3, "kind": "FROZEN_HEAD",
  "begin": "2026-03-01T12:00:00Z", "end": "2026-03-01T12:01:30Z"}
]"""


@pytest.mark.parametrize(("suffix", "text"), [("csv", CSV), ("toml", TOML), ("json", JSON)])
def test_incidents_are_the_same_whichever_file_they_are_written_in(
    tmp_path: Path, suffix: str, text: str
) -> None:
    file = tmp_path / f"truth.{suffix}"
    file.write_text(text, encoding="utf-8")
    assert from_file(file) == [FROZEN, DEAD]


def test_planted_incidents_are_read_back_by_range(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    assert planted(lake, 0, NOON_US) is None
    mails = Incident(DEAD.begin_us, DEAD.end_us, "mails", "KILL", "shop")
    append_incidents(lake, [mails])
    append_incidents(lake, [FROZEN])
    assert planted(lake, NOON_US, NOON_US + 600 * S) == [FROZEN, mails]
    assert planted(lake, NOON_US + 70 * S, NOON_US + 600 * S) == [FROZEN]
    assert planted(lake, 0, NOON_US - 1) == []


def test_a_planted_incident_names_its_cluster(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the cluster of mails"):
        append_incidents(Lake.at(str(tmp_path)), [DEAD])


ROW = {"group": "g", "kind": "KILL", "begin": "2026-03-01", "end": "2026-03-02"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"group": None}, "group=None"),
        ({"kind": ""}, "kind=''"),
        ({"begin": "noon"}, "begin='noon'"),
        ({"end": "2026-02-28"}, "a moment not before begin 2026-03-01"),
        ({"queue_id": "-1"}, "queue_id='-1'"),
        ({"queue_id": True}, "queue_id=True"),
        ({"queue_id": 1.5}, "queue_id=1.5"),
        ({"topic": 7}, "topic=7"),
        ({"quueue": "3"}, "quueue"),
    ],
)
def test_a_wrong_incident_is_named_with_its_row_and_what_would_be_right(
    change: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        incident_of(ROW | change, "truth.csv row 4")
    assert said in str(caught.value)
    assert "(truth.csv row 4)" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("missing.csv", None, "No such file"),
        ("truth.xml", "<a/>", "a file named"),
        ("truth.json", "{", "a file of its kind"),
        ("truth.json", '{"incidents": []}', "a list of incidents"),
        ("truth.toml", "incident = 3", "a list of incidents"),
        ("truth.json", "[3]", "an object with group"),
    ],
)
def test_a_file_that_is_none_of_incidents_is_refused(
    tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    file = tmp_path / name
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=said):
        from_file(file)


OWN = Evaluation(window_ms=10_000, slide_ms=2_000)


def test_rule_sets_are_asked_for_by_name() -> None:
    assert tried_of("ours, burrow,thresholds", OWN) == [
        Tried("ours", OWN),
        Tried("burrow", BurrowRules()),
        Tried("lag > 1000 for 300 s", Thresholds(1000, 300)),
    ]


def test_a_file_gives_them_settings_and_ours_start_from_the_lake_s_own(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(
        """
        [[rules]]
        of = "ours"
        name = "long"
        window_ms = 60000
        [[rules]]
        of = "burrow"
        intervals = 5
        allowed_lag = 3
        minimum_complete = 0.5
        offset_refresh_s = 30
        bad_from = "ERR"
        [[rules]]
        of = "thresholds"
        lag_max = 50
        """,
        encoding="utf-8",
    )
    assert tried_of(str(file), OWN) == [
        Tried("long", Evaluation(window_ms=60_000, slide_ms=2_000)),
        Tried(
            "burrow",
            BurrowRules(
                StorageSettings(intervals=5),
                EvaluatorSettings(allowed_lag=3, minimum_complete=0.5),
                offset_refresh_s=30,
                bad_from=Status.ERR,
            ),
        ),
        Tried("lag > 50 for 300 s", Thresholds(50, 300)),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "ours, burrow, thresholds"),
        ('[[rules]]\nof = "mine"', "of='mine'"),
        ('[[rules]]\nof = "ours"\nwindow = 3', "window=3"),
        ('[[rules]]\nof = "ours"\nwindow_ms = "3"', "window_ms='3'"),
        ('[[rules]]\nof = "ours"\nwindow_ms = 7', "window_ms=7"),
        ('[[rules]]\nof = "burrow"\nbad_from = "BAD"', "bad_from='BAD'"),
        ('[[rules]]\nof = "thresholds"\nlag_max = true', "lag_max=True"),
        ('[[rules]]\nof = "ours"\n[[rules]]\nof = "ours"', "different names"),
    ],
)
def test_a_wrong_rule_set_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        tried_of(str(file), OWN)
    assert said in str(caught.value)


def test_rules_that_are_neither_names_nor_a_file_are_refused() -> None:
    with pytest.raises(ConfigError, match="ours, burrow, thresholds"):
        tried_of("ours,barrow", OWN)
