"""Rules of alerts played over gold that is past: the life and the notices that they have live."""

from __future__ import annotations

from typing import Any

import polars as pl

from pipelines.alerting.routing import Routing, routing_of
from pipelines.backtest.playing import AlertRules, Player, ticks_of
from pipelines.backtest.scoring import Heard
from pipelines.base.settings import MINUTE_US, SECOND_US
from tests.alert_stories import NOON_US, behind, moment, rows, rule


def routing(**keys: Any) -> Routing:
    made = routing_of("r.toml", {"receiver": "all", "group_wait": "10s", **keys}).routing
    assert made is not None
    return made


def heard(frames: dict[int, pl.DataFrame], *, until_s: int, rules: AlertRules) -> Heard:
    """Look each ten seconds; `frames`: what gold gets, by the second."""
    player = Player(rules, rules.spans_us)
    for at_s in range(0, until_s, 10):
        new = {"group_state": frames[at_s]} if at_s in frames else {}
        player.look(NOON_US + at_s * SECOND_US, new)
    return player.heard()


def state(at_s: int, lag_s: float, group: str = "orders") -> pl.DataFrame:
    return rows("group_state", behind(lag_s, group=group, observed_at=moment(at_s)))


def seconds(moment_us: int | None) -> float | None:
    return None if moment_us is None else (moment_us - NOON_US) / SECOND_US


ENDED = rows("ended_queues").clear()
WAITS = AlertRules((rule(**{"for": "30s"}),), routing())


def test_an_alert_is_notified_when_its_wait_and_that_of_its_group_are_over() -> None:
    found = heard({0: state(0, 5), 20: state(20, 90)}, until_s=300, rules=WAITS)
    (alert,) = found.reported
    assert (seconds(alert.begin_us), alert.end_us, alert.group) == (60, None, "orders")
    assert [len(one) for one in found.notices] == [1]


def test_one_that_is_over_before_anybody_was_notified_is_notified_to_nobody() -> None:
    quick = {20: state(20, 90), 40: state(40, 5), 200: state(200, 90), 210: state(210, 5)}
    assert heard(quick, until_s=600, rules=WAITS) == Heard()


def test_what_fires_no_more_ends_and_a_notice_of_that_is_none_that_fires() -> None:
    over = {20: state(20, 90), 200: state(200, 5)}
    found = heard(over, until_s=900, rules=WAITS)
    assert [(seconds(one.begin_us), seconds(one.end_us)) for one in found.reported] == [(60, 200)]
    assert len(found.notices) == 1


def test_alerts_that_a_route_puts_together_are_one_notice() -> None:
    both = rows("group_state", behind(90), behind(90, group="mails"))
    apart = heard({20: both}, until_s=300, rules=WAITS)
    together = AlertRules(WAITS.rules, routing(group_by=["alertname"]))
    one = heard({20: both}, until_s=300, rules=together)
    assert [len(said) for said in apart.notices] == [1, 1]
    assert [len(said) for said in one.notices] == [2]


def test_knowing_what_comes_changes_no_notice() -> None:
    calm = rule(name="Calm", when="time_lag_ms > 10h")
    counts = rule(
        name="Counts",
        tables=["group_state"],
        sql="SELECT count(*) AS groups FROM group_state HAVING count(*) < 1",
        labels=[],
        annotations={"summary": "{{ groups }}"},
    )
    rules = AlertRules((*WAITS.rules, calm, counts), routing())
    frames = {20: state(20, 5), 300: state(300, 90), 500: state(500, 5), 900: state(900, 90)}
    expected = Player(rules, rules.spans_us)
    for at_s in range(0, 1_200, 10):
        if not at_s % 400:
            coming = [state for when, state in frames.items() if at_s <= when < at_s + 400]
            none = rows("group_state").clear()
            stretch = {"group_state": pl.concat([none, *coming]), "ended_queues": ENDED}
            expected.expect(stretch)
        new = {"group_state": frames[at_s]} if at_s in frames else {}
        expected.look(NOON_US + at_s * SECOND_US, new)
    found = expected.heard()
    assert found == heard(frames, until_s=1_200, rules=rules)
    assert [(seconds(one.begin_us), one.group) for one in found.reported] == [
        (10, ""),
        (340, "orders"),
        (940, "orders"),
    ]


def test_rules_of_the_present_moment_are_left_out() -> None:
    silent = rule(name="Silent", table="emitters", when="is_silent", annotations={"summary": "!"})
    both = AlertRules((*WAITS.rules, silent), routing())
    assert [one.name for one in both.played] == ["Behind"]
    assert [one.name for one in both.left_out] == ["Silent"]


def test_somebody_looks_behind_each_row_and_a_minute_later_at_the_latest() -> None:
    begin_us = 1_000 * MINUTE_US
    moments = [begin_us + 7 * SECOND_US, begin_us + 8 * SECOND_US, begin_us + 100 * SECOND_US]
    ticks = ticks_of(moments, begin_us, begin_us + 3 * MINUTE_US, 5 * SECOND_US)
    assert [(one - begin_us) // SECOND_US for one in ticks] == [10, 70, 100, 160, 180]
