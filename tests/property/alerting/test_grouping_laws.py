"""Laws of notices: what a receiver has open is what fires, whatever comes, and whichever clock."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant
from hypothesis.stateful import rule as action

from pipelines.alerting.alerts import Alert, State, fingerprint_of
from pipelines.alerting.grouping import Group, step
from pipelines.alerting.matchers import matchers_of
from pipelines.alerting.routing import Inhibition, Route, Routing
from pipelines.alerting.silences import Silence
from pipelines.base.settings import HOUR_US, SECOND_US
from tests.alert_stories import NOON_US

NAMES = ("a", "b", "dead")
STATES = (State.PENDING, State.FIRING, State.NO_DATA, State.RESOLVED)
ROUTING = Routing(
    Route("pager", group_by=("cluster",), alerts_max=10_000),
    inhibitions=(Inhibition(matchers_of(["group=dead"]), matchers_of(["group=b"])),),
)
OTHER_ROUTING = Routing(
    Route("pager", group_by=("cluster", "group"), alerts_max=10_000),
    inhibitions=ROUTING.inhibitions,
)
QUIET = Silence("1", matchers_of(["group=a"]), NOON_US - HOUR_US, NOON_US * 2, "ann", "release")


class Pager(RuleBasedStateMachine):
    """A receiver that opens and closes what it is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.alerts: dict[str, Alert] = {}
        self.groups: dict[str, Group] = {}
        self.now_us = NOON_US
        self.open: set[str] = set()
        self.ids: set[str] = set()
        self.incidents: dict[str, bool] = {}
        """Of groups: did their last notice name anything that fires?"""
        self.is_quiet = False
        self.routing = ROUTING

    @action(name=st.sampled_from(NAMES), state=st.sampled_from(STATES))
    def becomes(self, name: str, state: State) -> None:
        """An alert's life cycle takes it somewhere."""
        known = self.alerts.get(name)
        labels = {"cluster": "c", "group": name}
        ended_us = self.now_us if state is State.RESOLVED else None
        if known is not None and state is State.PENDING:
            ended_us = self.now_us
        if known is None and state is State.RESOLVED:
            return
        self.alerts[name] = Alert(
            fingerprint_of("Rule", labels), "Rule", "warning", "", labels, {}, {}, state, "",
            NOON_US, self.now_us, ended_us, NOON_US,
        )  # fmt: skip

    @action(quiet=st.booleans())
    def is_silenced(self, *, quiet: bool) -> None:
        self.is_quiet = quiet

    @action(routing=st.sampled_from([ROUTING, OTHER_ROUTING]))
    def is_routed_otherwise(self, routing: Routing) -> None:
        """Somebody writes other routes to the same receiver."""
        self.routing = routing

    @action(seconds=st.sampled_from([1, 29, 30, 299, 300, 4 * 3600, -3600]))
    def passes(self, seconds: int) -> None:
        """Time passes, or the clock is set back; the alerts are looked at, twice."""
        self.now_us += seconds * SECOND_US
        alerts = sorted(self.alerts.values(), key=lambda one: one.fingerprint)
        silences = (QUIET,) if self.is_quiet else ()
        before = self.groups
        done = step(before, alerts, self.routing, silences=silences, now_us=self.now_us)
        again = step(before, alerts, self.routing, silences=silences, now_us=self.now_us)
        assert [one.notice_id for one in again.notices] == [one.notice_id for one in done.notices]
        self.groups = dict(done.groups)
        for notice in done.notices:
            self.incidents[notice.group_key] = notice.is_firing
            assert notice.notice_id not in self.ids
            assert notice.alerts
            self.ids.add(notice.notice_id)
            for alert in notice.alerts:
                if alert.state is State.RESOLVED:
                    assert alert.fingerprint in self.open
                    self.open.remove(alert.fingerprint)
                else:
                    assert alert.fingerprint not in done.muted
                    self.open.add(alert.fingerprint)

    @invariant()
    def the_groups_know_what_the_receiver_has_open(self) -> None:
        notified = {one for group in self.groups.values() for one in group.told}
        assert notified == self.open

    @invariant()
    def what_nobody_mutes_and_a_group_has_sent_is_not_behind_a_closed_incident(self) -> None:
        fires = {one.fingerprint for one in self.alerts.values() if one.state is State.FIRING}
        for key, group in self.groups.items():
            if any(one in fires and how != "left out" for one, how in group.told.items()):
                assert self.incidents[key]

    def teardown(self) -> None:
        """When all is over, and time passes, nothing is open anywhere."""
        over = {"state": State.RESOLVED, "resolved_at_us": self.now_us}
        self.alerts = {name: replace(one, **over) for name, one in self.alerts.items()}
        self.passes(300)
        assert not self.open
        assert not self.groups


TestPager = Pager.TestCase
TestPager.settings = settings(max_examples=60, stateful_step_count=30)
