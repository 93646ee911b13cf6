"""A look at gold: how emitters and gold fare, and what is gone, as rules see it."""

from __future__ import annotations

from datetime import timedelta

from pipelines.alerting.files import read_rules, shipped_files
from pipelines.alerting.lake_rows import gone, rows_of_lake
from pipelines.moment import Moment, Reached
from tests.alert_stories import NOON, NOON_US, Story, behind, rows


def a_moment(*ends: tuple[str, float]) -> Moment:
    """A cycle that has judged each emitter up to so many seconds before noon."""
    reached = tuple(Reached(who, NOON - timedelta(seconds=ago), 9) for who, ago in ends)
    return Moment("r", 7, reached, planned_at=NOON)


def test_emitters_are_told_as_silent_or_ahead_with_the_reason() -> None:
    told = rows_of_lake(a_moment(("c/a/0", 1), ("c/b/0", 120), ("c/d/0", -60)), NOON_US)
    said = {row["broker"]: row for row in told["emitters"].iter_rows(named=True)}
    assert [(name, row["is_silent"], row["is_ahead"]) for name, row in said.items()] == [
        ("a", False, False),
        ("b", True, False),
        ("d", False, True),
    ]
    assert "c/b/0" in said["b"]["reason"]
    assert said["a"]["reason"] is None


def test_gold_tells_how_old_it_is_and_a_lake_without_any_says_that_nobody_knows() -> None:
    told = rows_of_lake(a_moment(("c/a/0", 1)), NOON_US + 9_000_000)["pipeline"]
    assert told.row(0, named=True)["age_ms"] == 10_000
    assert rows_of_lake(None, NOON_US)["pipeline"].row(0, named=True)["age_ms"] is None


def test_gold_that_is_late_and_a_broker_that_is_silent_raise_the_shipped_alerts() -> None:
    shipped = {one.name: one for one in read_rules(shipped_files()).rules}
    story = Story(shipped["PipelineLate"])
    silent = Story(shipped["BrokerSilent"])
    for after_s in (200, 230, 260, 290):
        told = rows_of_lake(a_moment(("c/a/0", 1), ("c/b/0", 120)), NOON_US + after_s * 1_000_000)
        story.look(told["pipeline"], after_s=30)
        silent.look(told["emitters"], after_s=30)
    assert story.state == "FIRING"
    assert silent.state == "FIRING"
    assert silent.alerts[0].labels == {"cluster": "c", "broker": "b"}


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
