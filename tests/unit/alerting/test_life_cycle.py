"""The life of an alert: what makes it fire, what ends it, and what does neither."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.alerting.alerts import State
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.life_cycle import Now, without_rule
from pipelines.reading.known import began_at
from tests.alert_stories import NOON_US, Story, behind, moment, rows, rule

BAD = rows("group_state", behind(90))
GOOD = rows("group_state", behind(0))


def test_it_is_pending_until_the_condition_has_held_for_long_enough() -> None:
    story = Story(rule(**{"for": "30s"}))
    assert story.look(BAD).kinds == ["BEGUN"]
    for _ in range(5):
        assert story.look(BAD).state == "PENDING"
    assert story.look(BAD).kinds == ["FIRED"]
    [alert] = story.alerts
    assert alert.fired_at_us == NOON_US + 35_000_000
    assert alert.active_at_us == NOON_US + 5_000_000
    assert alert.annotations["summary"] == "orders"


def test_a_short_trouble_is_dropped_and_nobody_is_notified() -> None:
    story = Story(rule(**{"for": "30s"})).look(BAD).look(BAD)
    assert story.look(GOOD).kinds == ["DROPPED"]
    assert story.alerts == ()


def test_what_gold_knows_to_last_already_fires_at_once() -> None:
    made = rule(table="stalled_windows", when="rule = 'STALLED'", **{"for": "1m"})
    window = {"rule": "STALLED", "topic": "t", "queue_id": 3, "opened_at": moment(-120)}
    story = Story(made).look(rows("stalled_windows", window))
    assert story.state == "FIRING"
    assert story.alerts[0].active_at_us == NOON_US - 120_000_000


HEAD: dict[str, Any] = {"rule": "STALLED", "topic": "t", "queue_id": 3, "opened_at": moment(-20)}


def test_an_alert_is_so_since_the_earliest_beginning_that_is_proven_and_waits_from_the_window() -> (
    None
):
    made = rule(table="stalled_windows", when="rule = 'STALLED'", **{"for": "1m"})
    window = {**HEAD, "head_since": moment(-90)}
    story = Story(made).look(rows("stalled_windows", window))
    assert story.state == "PENDING", "the window has been open for 25 s"
    assert story.alerts[0].active_at_us == NOON_US - 90_000_000
    assert began_at(window) == moment(-90), "as on the pages"


def test_a_beginning_that_is_proven_later_is_that_of_an_alert_until_it_fires() -> None:
    """What somebody says of an alert is kept by its beginning."""
    made = rule(table="stalled_windows", when="rule = 'STALLED'", **{"for": "1m"})
    story = Story(made).look(rows("stalled_windows", HEAD))
    assert story.alerts[0].active_at_us == NOON_US - 20_000_000
    story.look(rows("stalled_windows", {**HEAD, "head_since": moment(-90)}))
    assert (story.state, story.alerts[0].active_at_us) == ("PENDING", NOON_US - 90_000_000)
    assert story.kinds == ["NOTED"]
    for head_since in (-5, *[-200] * 8):
        story.look(rows("stalled_windows", {**HEAD, "head_since": moment(head_since)}))
    assert story.state == "FIRING"
    assert story.alerts[0].active_at_us == NOON_US - 200_000_000
    story.look(rows("stalled_windows", {**HEAD, "head_since": moment(-300)}))
    assert story.alerts[0].active_at_us == NOON_US - 200_000_000


@pytest.mark.parametrize(
    ("window", "since_us"),
    [
        ({**HEAD, "opened_at": moment(14), "head_since": moment(12)}, NOON_US + 12_000_000),
        (HEAD, NOON_US + 15_000_000),
    ],
    ids=["another window", "the window of before"],
)
def test_an_alert_that_comes_again_is_so_since_its_new_window_began(
    window: dict[str, Any], since_us: int
) -> None:
    made = rule(table="stalled_windows", when="rule = 'STALLED'")
    story = Story(made).look(rows("stalled_windows", HEAD)).look(rows("stalled_windows"))
    assert (story.state, story.alerts[0].resolved_at_us) == ("RESOLVED", NOON_US + 10_000_000)
    story.look(rows("stalled_windows", window))
    assert story.alerts[0].active_at_us == since_us


def test_it_fires_on_for_as_long_as_the_rule_says() -> None:
    story = Story(rule(keep_firing_for="20s")).look(BAD)
    for _ in range(4):
        assert story.look(GOOD).state == "FIRING"
    assert story.look(BAD).look(GOOD).state == "FIRING"
    for _ in range(3):
        story.look(GOOD)
    assert story.look(GOOD).kinds == ["RESOLVED"]
    assert story.alerts[0].resolved_at_us == story.data_us


def test_the_same_look_twice_changes_nothing() -> None:
    story = Story(rule(**{"for": "30s"})).look(BAD)
    before = story.alerts
    assert story.look(BAD, after_s=0).changes == ()
    assert story.alerts == before


def test_nothing_is_resolved_while_nobody_knows_and_no_wait_goes_on() -> None:
    story = Story(rule(**{"for": "30s"})).look(BAD)
    for _ in range(20):
        story.look(None)
    assert "PENDING" in story.states
    story.look(BAD)
    [alert] = [one for one in story.alerts if one.rule == "Behind" and "outcome" not in one.labels]
    assert alert.state is State.PENDING
    for _ in range(6):
        story.look(BAD)
    assert "FIRING" in story.states


def test_a_rule_that_cannot_be_judged_is_an_alert_of_its_own_after_a_while() -> None:
    story = Story(rule()).look(BAD)
    for _ in range(26):
        story.look(None)
    states = {alert.labels.get("outcome", ""): alert.state.value for alert in story.alerts}
    assert states == {"": "FIRING", "NO_DATA": "NO_DATA"}
    story.look(BAD)
    states = {alert.labels.get("outcome", ""): alert.state.value for alert in story.alerts}
    assert states == {"": "FIRING", "NO_DATA": "RESOLVED"}


def test_a_rule_may_say_that_its_lack_of_data_is_nobodys_business() -> None:
    story = Story(rule(no_data="keep")).look(BAD)
    for _ in range(40):
        story.look(None)
    assert story.states == ["FIRING"]


def test_a_group_that_is_gone_ends_its_alerts_whatever_is_not_known() -> None:
    gone = ({"cluster": "c", "broker": "b", "group": "orders"},)
    story = Story(rule()).look(BAD)
    assert "FIRING" in story.look(None, gone=({**gone[0], "group": "others"},)).states
    story.look(rows("group_state"), gone=gone, silent={"c/b/0": "silent"})
    [alert] = [one for one in story.alerts if "outcome" not in one.labels]
    assert alert.state is State.RESOLVED
    assert "not there any more" in alert.reason


def test_a_group_that_came_back_is_not_ended_by_its_former_end() -> None:
    gone = ({"cluster": "c", "broker": "b", "group": "orders"},)
    assert Story(rule()).look(BAD).look(BAD, gone=gone).state == "FIRING"


def test_a_clock_that_leaps_neither_fires_nor_resolves() -> None:
    story = Story(rule(keep_firing_for="5m", **{"for": "5m"})).look(BAD)
    assert story.look(BAD, after_s=3600, process_s=5).state == "PENDING"
    assert story.look(BAD, after_s=-7200, process_s=5).state == "PENDING"
    assert story.look(BAD, after_s=5, process_s=3600).state == "PENDING"
    assert story.look(BAD, after_s=3600, process_s=3600).state == "PENDING"
    for _ in range(60):
        story.look(BAD)
    assert story.state == "FIRING"
    assert story.look(GOOD).look(GOOD, after_s=3600, process_s=5).state == "FIRING"
    assert story.look(GOOD, after_s=-3600, process_s=5).state == "FIRING"


def test_four_changes_in_half_an_hour_are_flapping_notified_once_and_held() -> None:
    story = Story(rule())
    kinds: list[str] = []
    for _ in range(10):
        kinds += story.look(BAD, after_s=30).kinds
        kinds += story.look(GOOD, after_s=30).kinds
    assert [one for one in kinds if one not in ("NOTED", "BEGUN")] == [
        "FIRED", "RESOLVED", "FIRED", "FLAPPING",
    ]  # fmt: skip
    assert story.state == "FIRING"
    assert "flaps" in story.alerts[0].reason
    for _ in range(59):
        assert story.look(GOOD, after_s=30).state == "FIRING"
    assert story.look(GOOD, after_s=30).kinds == ["RESOLVED"]


def test_what_flapped_and_stays_wrong_is_a_plain_alert_again() -> None:
    story = Story(rule())
    for _ in range(3):
        story.look(BAD, after_s=30).look(GOOD, after_s=30)
    story.look(BAD, after_s=30)
    for _ in range(59):
        story.look(BAD, after_s=30)
    assert "flaps" in story.alerts[0].reason
    assert story.look(BAD, after_s=30).kinds == ["RESTED"]
    assert story.alerts[0].reason == ""


def test_what_was_resolved_is_forgotten_after_a_while() -> None:
    story = Story(rule()).look(BAD).look(GOOD)
    for _ in range(29):
        assert story.look(GOOD, after_s=60).state == "RESOLVED"
    assert story.look(GOOD, after_s=60).kinds == ["FORGOTTEN"]
    assert story.alerts == ()


def test_alerts_of_a_rule_that_is_in_no_file_any_more_are_ended() -> None:
    story = Story(rule()).look(BAD)
    ended = without_rule(story.alerts, Now(story.data_us, 0))
    assert [alert.state.value for alert in ended.alerts] == ["RESOLVED"]
    assert "rule" in ended.alerts[0].reason
    assert without_rule(ended.alerts, Now(story.data_us, 60)).alerts == ended.alerts
    assert without_rule(ended.alerts, Now(story.data_us, 1_800_000_000)).alerts == ()


def test_a_look_without_any_cycle_keeps_everything() -> None:
    story = Story(rule()).look(BAD)
    story.after(Looked(None, {"group_state": BAD}))
    assert "FIRING" in story.states


def test_changes_that_lie_far_apart_are_no_flapping() -> None:
    story = Story(rule())
    kinds: list[str] = []
    for _ in range(4):
        for frame in (BAD, GOOD):
            for _ in range(11):
                kinds += story.look(frame, after_s=60).kinds
    assert "FLAPPING" not in kinds
    assert kinds.count("FIRED") == kinds.count("RESOLVED") == 4


def test_that_a_rule_cannot_be_judged_for_a_moment_is_notified_to_nobody() -> None:
    story = Story(rule())
    for _ in range(20):
        assert story.look(None).state == "PENDING"
    assert story.look(GOOD).kinds == ["DROPPED"]


def test_gold_that_stood_still_and_leaps_has_won_no_time_for_a_wait() -> None:
    story = Story(rule(**{"for": "5m"})).look(BAD)
    for _ in range(60):
        story.look(BAD, after_s=0, process_s=30)
    assert story.look(BAD, after_s=1800, process_s=5).state == "PENDING"
