"""Rules judge by what is known at the least: no alert ends because a queue is unknown."""

from __future__ import annotations

import pytest

from pipelines.alerting.evaluating import Looked
from pipelines.alerting.texts import rendered
from tests.alert_stories import NOON_US, Story, rows, rule
from tests.unit.alerting.test_conditions import judged
from tests.unit.alerting.test_evaluating import signals

PART = {
    "lag_messages": None,
    "lag_at_least_messages": 40,
    "time_lag_ms": None,
    "time_lag_at_least_ms": 90_000,
    "queues": 4,
    "queues_known": 3,
}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lag_messages > 39", True),
        ("39 < lag_messages", True),
        ("lag_messages >= 40", True),
        ("lag_messages > 40", None),
        ("lag_messages < 41", None),
        ("lag_messages <= 39", False),
        ("40 > lag_messages", False),
        ("lag_messages = 39", False),
        ("lag_messages != 39", True),
        ("lag_messages = 40", None),
        ("time_lag_ms > 1m", True),
        ("time_lag_ms < 1m", False),
        ("time_lag_ms > 2m", None),
        ("lag_messages is null", True),
        ("-lag_messages > -50", None),
        ("lag_messages + 5 > 40", None),
    ],
)
def test_a_comparison_that_the_lower_bound_decides_is_decided(text: str, said: bool | None) -> None:
    assert judged(text, **PART) is said


def group(state: str = "SLOW", **figures: object) -> dict[str, object]:
    known = {"queues": 4, "queues_known": 4, "lag_messages": 40, "time_lag_ms": 90_000}
    return {"cluster": "c", "broker": "b", "group": "g", "state": state, **known, **figures}


def test_a_group_stays_in_an_alert_when_a_queue_of_it_becomes_unknown() -> None:
    for made in (
        rule(when="time_lag_ms > 1m"),
        rule(
            tables=["group_state"],
            sql='select cluster, broker, "group" from group_state where time_lag_ms > 60000',
            labels=["cluster", "broker", "group"],
        ),
    ):
        story = Story(made).look(rows("group_state", group()))
        assert story.state == "FIRING"
        for state in ("SLOW", "UNKNOWN"):
            assert story.look(rows("group_state", group(state, **PART))).state == "FIRING"
            assert not story.alerts[0].reason
        less = group("OK", time_lag_ms=5_000)
        assert story.look(rows("group_state", less)).state == "RESOLVED"


def test_a_group_whose_state_is_unknown_comes_into_an_alert_by_its_figures_alone() -> None:
    frame = rows("group_state", group("UNKNOWN", **PART))
    looked = Looked(NOON_US, {"group_state": frame})
    whens = ("lag_messages > 30", "lag_messages > 30 and state != 'OK'", "lag_messages > 50")
    assert [len(signals(rule(when=when), looked).holds) for when in whens] == [1, 0, 0]


def test_rows_of_an_earlier_version_are_judged_by_the_sum_that_they_have() -> None:
    frame = rows("group_state", group(queues_known=3))
    found = signals(rule(when="lag_messages > 39"), Looked(NOON_US, {"group_state": frame}))
    assert found.holds[0].figures["lag_messages"] is None
    assert found.holds[0].figures["lag_at_least_messages"] == 40


def test_the_texts_of_an_alert_say_at_least() -> None:
    texts = {"summary": "{{ lag_messages | count }} messages, {{ time_lag_ms | duration }} behind"}
    figures = {name: value for name, value in PART.items() if name != "queues"}
    assert rendered(texts, labels={}, figures=figures, given={}) == {
        "summary": "at least 40 messages, at least 1 min 30 s behind"
    }
