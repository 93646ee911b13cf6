"""Laws of an alert's life, whatever gold says, in whichever order, and however clocks leap."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import polars as pl
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition
from hypothesis.stateful import rule as action

from pipelines.alerting.alerts import OUTCOME, Alert, Course, State
from pipelines.alerting.life_cycle import OF_RULE
from pipelines.alerting.wait_clock import Steady
from tests.alert_stories import Story, behind, rows, rule

GROUPS = ("a", "b")
TOLD = ("bad", "bad at least", "good", "unknown", "null", "absent")
"""What gold may say of a group; bad at least: all of it is not known, and what is known is bad
enough; absent: no row, of an emitter that speaks.
"""
LAGS = {"bad": 90.0, "bad at least": 90.0, "good": 0.0, "unknown": None, "null": None}
NOT_ALL_KNOWN = ("unknown", "bad at least")
SPANS = st.sampled_from(["0", "10s", "1m", "5m"])


def frame_of(gold: dict[str, str]) -> pl.DataFrame:
    return rows(
        "group_state",
        *(
            behind(LAGS[says], group=group, state="UNKNOWN" if says in NOT_ALL_KNOWN else "OK")
            for group, says in gold.items()
            if says != "absent"
        ),
    )


def read_again(stored: dict[str, Any]) -> Alert:
    """An alert that was written down as JSON."""
    course = Course(**{**stored["course"], "changes_us": tuple(stored["course"]["changes_us"])})
    return Alert(**{**stored, "state": State(stored["state"]), "course": course})


class LifeOfAlerts(RuleBasedStateMachine):
    """A rule's alerts beside what gold really said of each group."""

    @initialize(wait=SPANS, keep=SPANS)
    def begin(self, wait: str, keep: str) -> None:
        self.story = Story(rule(keep_firing_for=keep, **{"for": wait}))
        self.gold: dict[str, str] = {}
        self.held_us: dict[str, int] = dict.fromkeys(GROUPS, 0)
        """How long, of real time, each group has been bad without anybody having seen it good."""
        self.gone: set[str] = set()

    @action(
        gold=st.fixed_dictionaries({group: st.sampled_from(TOLD) for group in GROUPS}),
        after_s=st.sampled_from([0.0, 5.0, 30.0, 60.0]),
        leap_s=st.sampled_from([0.0, 0.0, 3600.0, -3600.0]),
        silent=st.booleans(),
    )
    def looks(self, gold: dict[str, str], after_s: float, leap_s: float, *, silent: bool) -> None:
        """A look, in which the clock of the brokers may have been set."""
        found = {"silent": {"c/b/0": "silent"}} if silent else {}
        known = {group: "bad" if says == "bad at least" else says for group, says in gold.items()}
        self.step(known if not silent else dict.fromkeys(GROUPS, "unknown"), after_s)
        self.story.look(frame_of(gold), after_s=after_s + leap_s, process_s=after_s, **found)
        self.again(frame_of(gold), **found)

    @action(after_s=st.sampled_from([5.0, 60.0]))
    def finds_no_table(self, after_s: float) -> None:
        self.step(dict.fromkeys(GROUPS, "unknown"), after_s)
        self.story.look(None, after_s=after_s)
        self.again(None)

    @action(group=st.sampled_from(GROUPS))
    def goes(self, group: str) -> None:
        """A group is not there any more."""
        self.step({one: "gone" if one == group else "unknown" for one in GROUPS}, 5)
        gone = ({"cluster": "c", "broker": "b", "group": group},)
        self.story.look(rows("group_state"), gone=gone, silent={"c/b/0": "silent"})

    @action()
    def restarts(self) -> None:
        """All that is stored is read again: what comes is the same."""
        stored = json.dumps([asdict(alert) for alert in self.story.alerts])
        again = tuple(map(read_again, json.loads(stored)))
        assert again == self.story.alerts
        self.story.alerts = again
        self.story.steady = Steady(**json.loads(json.dumps(asdict(self.story.steady))))

    def step(self, gold: dict[str, str], after_s: float) -> None:
        self.before = {
            alert.labels["group"]: alert
            for alert in self.story.alerts
            if OUTCOME not in alert.labels
        }
        self.gold = gold
        for group, says in gold.items():
            good = says in ("good", "absent", "gone")
            self.held_us[group] = 0 if good else self.held_us[group] + round(after_s * 1e6)

    def again(self, frame: pl.DataFrame | None, **found: object) -> None:
        alerts, changes = self.story.alerts, self.story.changes
        self.story.look(frame, after_s=0, **found)
        assert self.story.alerts == alerts
        assert self.story.changes == ()
        self.story.changes = changes

    @precondition(lambda self: self.gold)
    @invariant()
    def nothing_is_resolved_without_evidence(self) -> None:
        now = {
            alert.labels["group"]: alert
            for alert in self.story.alerts
            if OUTCOME not in alert.labels
        }
        for group, alert in self.before.items():
            if alert.state is State.RESOLVED:
                continue
            later = now.get(group)
            if later is None or later.state is State.RESOLVED:
                assert self.gold[group] in ("good", "absent", "gone")

    @precondition(lambda self: self.gold)
    @invariant()
    def nothing_fires_before_its_time(self) -> None:
        for alert in self.story.alerts:
            if OUTCOME in alert.labels or alert.state is not State.FIRING:
                continue
            before = self.before.get(alert.labels["group"])
            if before is None or before.state is not State.FIRING:
                # Two looks at once count as one; a leap is worth the slack at most.
                held_us = self.held_us[alert.labels["group"]] + 15_000_000
                assert self.gold[alert.labels["group"]] == "bad"
                assert held_us >= self.story.rule.for_us

    @precondition(lambda self: self.gold)
    @invariant()
    def alerts_say_when_they_fired_and_ended(self) -> None:
        for alert in self.story.alerts:
            assert (alert.state in (State.FIRING, *OF_RULE)) <= (alert.fired_at_us is not None)
            assert (alert.state is State.RESOLVED) <= (alert.resolved_at_us is not None)


TestLifeOfAlerts = LifeOfAlerts.TestCase
TestLifeOfAlerts.settings = settings(max_examples=40, stateful_step_count=25)
