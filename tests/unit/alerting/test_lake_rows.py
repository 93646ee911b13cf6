"""A look at gold: how emitters and gold fare, and what is gone, as rules see it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from pipelines.alerting.life_cycle import with_texts
from pipelines.alerting.present_rows import gone, rows_of_lake
from pipelines.alerting.rule_files import read_rules, shipped_files
from pipelines.reading.moment import Moment, Reached
from tests.alert_stories import NOON, NOON_US, Story, behind, rows


def text_of(story: Story) -> dict[str, str]:
    """The texts of a story's only alert."""
    (alert,) = story.alerts
    return dict(with_texts(story.rule, alert).annotations)


def a_moment(*ends: tuple[str, float]) -> Moment:
    """A cycle that has judged each emitter up to so many seconds before noon."""
    reached = tuple(Reached(who, NOON - timedelta(seconds=ago), 9) for who, ago in ends)
    return Moment("r", 7, reached, planned_at=NOON)


def test_emitters_are_reported_as_silent_or_ahead_with_the_reason() -> None:
    found = rows_of_lake(a_moment(("c/a/0", 1), ("c/b/0", 120), ("c/d/0", -60)), NOON_US)
    said = {row["broker"]: row for row in found["emitters"].iter_rows(named=True)}
    assert [(name, row["is_silent"], row["is_ahead"]) for name, row in said.items()] == [
        ("a", False, False),
        ("b", True, False),
        ("d", False, True),
    ]
    assert "c/b/0" in said["b"]["reason"]
    assert said["a"]["reason"] is None


def test_gold_says_how_old_it_is_and_a_lake_without_any_says_that_nobody_knows() -> None:
    found = rows_of_lake(a_moment(("c/a/0", 1)), NOON_US + 9_000_000)["pipeline"]
    assert found.row(0, named=True)["age_ms"] == 10_000
    assert rows_of_lake(None, NOON_US)["pipeline"].row(0, named=True)["age_ms"] is None


def test_gold_that_is_late_and_a_broker_that_is_silent_raise_the_shipped_alerts() -> None:
    shipped = {one.name: one for one in read_rules(shipped_files()).rules}
    story = Story(shipped["PipelineLate"])
    silent = Story(shipped["BrokerSilent"])
    for after_s in (200, 230, 260, 290):
        found = rows_of_lake(a_moment(("c/a/0", 1), ("c/b/0", 120)), NOON_US + after_s * 1_000_000)
        story.look(found["pipeline"], after_s=30)
        silent.look(found["emitters"], after_s=30)
    assert story.state == "FIRING"
    assert silent.state == "FIRING"
    assert silent.alerts[0].labels == {"cluster": "c", "broker": "b"}


def test_where_nothing_comes_from_anybody_who_is_silent_is_named_and_the_right_process() -> None:
    """The pipeline lives and waits: `PipelineLate` sends nobody to it."""
    shipped = {one.name: one for one in read_rules(shipped_files()).rules}
    late, silent = Story(shipped["PipelineLate"]), Story(shipped["BrokerSilent"])
    for waited_s in (30, 60, 130, 160, 190):
        moment = replace(a_moment(("c/a/observer", 0)), waited=timedelta(seconds=waited_s))
        found = rows_of_lake(moment, NOON_US + waited_s * 1_000_000)
        assert found["pipeline"]["waits"].to_list() == [True]
        late.look(found["pipeline"], after_s=30)
        silent.look(found["emitters"], after_s=30)
    assert (late.state, silent.state) == ("FIRING", "FIRING")
    assert silent.alerts[0].labels == {"cluster": "c", "broker": "a"}
    texts = text_of(late)
    assert texts["summary"].startswith("No emitter has reported anything for ")
    assert "brokers and observers" in texts["first_step"]


def test_a_pipeline_that_is_gone_is_reported_as_such_though_nothing_came_before() -> None:
    moment = replace(a_moment(("c/a/0", 0)), waited=timedelta(seconds=90))
    found = rows_of_lake(moment, NOON_US + 200 * 1_000_000)["pipeline"]
    assert found["waits"].to_list() == [False]
    shipped = {one.name: one for one in read_rules(shipped_files()).rules}
    late = Story(shipped["PipelineLate"])
    for _ in range(3):
        late.look(found, after_s=60)
    assert "tidemark pipeline run" in text_of(late)["first_step"]
    assert text_of(late)["summary"].startswith("Gold is 3 min 20 s old")


def test_an_emitter_that_reports_seldom_does_not_make_gold_late() -> None:
    shipped = {one.name: one for one in read_rules(shipped_files()).rules}
    late = Story(shipped["PipelineLate"])
    seldom = Reached("c/a/observer", NOON, 9, silence_us=605_000_000)
    moment = Moment("r", 7, (seldom,), planned_at=NOON, waited=timedelta(seconds=280))
    for _ in range(4):
        late.look(rows_of_lake(moment, NOON_US + 290 * 1_000_000)["pipeline"], after_s=60)
    assert late.state == ""


def test_groups_and_queues_that_ended_are_gone_and_those_that_came_back_are_not() -> None:
    states = rows("group_state", behind(0, state="GONE", group="g"), behind(0, group="lives"))
    ended = rows(
        "ended_queues", *({"group": "lives", "topic": "t", "queue_id": number} for number in (1, 2))
    )
    living = rows("consumer_lag", {"group": "lives", "topic": "t", "queue_id": 2})
    assert gone(states, ended, living) == (
        {"cluster": "c", "broker": "b", "group": "g"},
        {"cluster": "c", "broker": "b", "group": "lives", "topic": "t", "queue_id": "1"},
    )
