"""One step of alerting: of which alerts it says anything, and of which it leaves what they are."""

from __future__ import annotations

from pipelines.alerting.deciding import Known, judge, tell
from pipelines.alerting.evaluating import Looked
from pipelines.alerting.routing import Route, Routing
from pipelines.settings import SECOND_US
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


def test_alerts_of_a_rule_that_was_taken_away_end_at_the_next_look() -> None:
    first = judge(Known(), RULES, looked(0, late=True), now_us=NOON_US)
    later = judge(first.known, [LATE], looked(5, late=True), now_us=NOON_US + 5 * SECOND_US)
    assert standing(later.known) == {"Behind": "RESOLVED", "Late": "FIRING"}


def test_the_same_step_decided_again_tells_the_same_notices() -> None:
    decided = judge(Known(), RULES, looked(0), now_us=NOON_US)
    once, again = (tell(decided, RULES, ROUTING, silences=(), now_us=NOON_US) for _ in range(2))
    assert once == again
    assert [notice.alerts[0].annotations["summary"] for notice in once.notices] == ["orders"]
