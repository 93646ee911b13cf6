"""One step of alerting: of which alerts it says anything, and of which it leaves what they are."""

from __future__ import annotations

from dataclasses import replace

from pipelines.alerting.evaluating import Looked
from pipelines.alerting.routing import Route, Routing
from pipelines.alerting.rule_files import read_rules, shipped_files
from pipelines.alerting.step import Known, judge, notify
from pipelines.alerting.wait_clock import Steady
from pipelines.base.settings import SECOND_US
from tests.alert_stories import NOON_US, behind, rows, rule

BEHIND = rule()
LATE = rule(name="Late", table="pipeline", when="age_ms > 1m", annotations={"summary": "late"})
RULES = (BEHIND, LATE)
ROUTING = Routing(Route("mail", group_wait_us=0))


def looked(at_s: int, *, late: bool = False, lag_s: float | None = 90) -> Looked:
    """A look that has read gold, or, without `lag_s`, what is said of the lake alone."""
    tables = {"pipeline": rows("pipeline", {"age_ms": 120_000 if late else 5})}
    if lag_s is not None:
        tables["group_state"] = rows("group_state", behind(lag_s))
    return Looked(NOON_US + at_s * SECOND_US, tables)


def standing(known: Known) -> dict[str, str]:
    return {alert.rule: alert.state.value for alert in known.alerts}


def test_a_look_at_the_lake_alone_leaves_the_alerts_of_gold_as_they_are() -> None:
    first = judge(Known(), RULES, looked(0), now_us=NOON_US)
    between = judge(
        first.known,
        RULES,
        looked(0, late=True, lag_s=None),
        now_us=NOON_US + 5 * SECOND_US,
        of_lake_alone=True,
    )
    assert standing(between.known) == {"Behind": "FIRING", "Late": "FIRING"}
    assert set(between.outcomes) == {"Late"}
    assert [change.alert.rule for change in between.changes] == ["Late"]


SHIPPED = {one.name: one for one in read_rules(shipped_files()).rules}


def late_after(standing_s: int, *, each_s: int = 5, known: Known | None = None) -> Known:
    """Gold stands still at noon for so long; of a process that looks each so many seconds."""
    known = known or Known()
    for at_s in range(0, standing_s + 1, each_s):
        now_us = NOON_US + at_s * SECOND_US
        seen = Looked(NOON_US, {"pipeline": rows("pipeline", {"age_ms": at_s * 1000, "cycle": 7})})
        known = judge(
            known, [SHIPPED["PipelineLate"]], seen, now_us=now_us, of_lake_alone=at_s > 0
        ).known
    return known


def test_gold_that_stands_still_is_reported_as_late_though_data_time_does_not_pass() -> None:
    assert standing(late_after(170)) == {"PipelineLate": "PENDING"}
    assert standing(late_after(190)) == {"PipelineLate": "FIRING"}


def test_a_clock_of_the_process_that_is_set_ahead_does_not_pass_a_wait_at_once() -> None:
    known = late_after(100)
    for ahead_s, state in ((3600, "PENDING"), (3655, "PENDING"), (3665, "FIRING")):
        late = Looked(NOON_US, {"pipeline": rows("pipeline", {"age_ms": 3_600_000, "cycle": 7})})
        known = judge(
            known,
            [SHIPPED["PipelineLate"]],
            late,
            now_us=NOON_US + ahead_s * SECOND_US,
            of_lake_alone=True,
        ).known
        assert standing(known) == {"PipelineLate": state}


def test_a_wait_that_was_begun_by_a_clock_that_is_lost_begins_anew() -> None:
    lost = replace(late_after(130), clock=Steady())
    assert standing(late_after(190, known=lost)) == {"PipelineLate": "FIRING"}


def test_slow_cycles_make_no_wait_longer() -> None:
    slow = rule(**{"for": "5m"})
    known, fired_s = Known(), None
    for at_s in range(0, 601, 5):
        is_new = at_s % 60 == 0  # Gold has a cycle a minute, and the process looks each 5 s.
        seen = looked(at_s - at_s % 60, lag_s=90 if is_new else None)
        decided = judge(
            known,
            (slow, LATE),
            seen,
            now_us=NOON_US + at_s * SECOND_US,
            of_lake_alone=not is_new,
        )
        known = decided.known
        if fired_s is None and standing(known).get("Behind") == "FIRING":
            fired_s = at_s
    assert fired_s == 300


def test_gold_that_is_made_anew_ends_nothing_and_notifies_nothing_of_its_past_again() -> None:
    known = judge(Known(), [BEHIND], looked(0), now_us=NOON_US).known
    for number, ago_s in enumerate(range(-86_400, -300, 3_600)):
        seen = looked(ago_s, lag_s=None)
        of_past = [behind(0 if number % 2 else 90), behind(90, group="b")]
        seen = replace(seen, rows={**seen.rows, "group_state": rows("group_state", *of_past)})
        now_us = NOON_US + number * SECOND_US
        decided = judge(known, [BEHIND], seen, now_us=now_us)
        assert decided.changes == ()
        known = decided.known
    assert standing(known) == {"Behind": "FIRING"}
    there = judge(known, [BEHIND], looked(-200, lag_s=0), now_us=NOON_US + 60 * SECOND_US)
    assert standing(there.known) == {"Behind": "RESOLVED"}


def test_a_clock_that_was_ahead_and_is_set_right_makes_gold_not_one_of_the_past() -> None:
    hour_us = 3_600 * SECOND_US
    known = judge(Known(), [BEHIND], looked(3_600), now_us=NOON_US + hour_us).known
    right = judge(known, [BEHIND], looked(5, lag_s=0), now_us=NOON_US + 10 * SECOND_US)
    assert standing(right.known) == {"Behind": "RESOLVED"}


def test_alerts_of_a_rule_that_was_taken_away_end_at_the_next_look() -> None:
    first = judge(Known(), RULES, looked(0, late=True), now_us=NOON_US)
    later = judge(first.known, [LATE], looked(5, late=True), now_us=NOON_US + 5 * SECOND_US)
    assert standing(later.known) == {"Behind": "RESOLVED", "Late": "FIRING"}


def test_the_same_step_decided_again_makes_the_same_notices() -> None:
    decided = judge(Known(), RULES, looked(0), now_us=NOON_US)
    once, again = (notify(decided, RULES, ROUTING, silences=(), now_us=NOON_US) for _ in range(2))
    assert once == again
    assert [notice.alerts[0].annotations["summary"] for notice in once.notices] == ["orders"]
