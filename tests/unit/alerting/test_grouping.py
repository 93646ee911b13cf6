"""What people are sent: together with what, when, how often, and what they are spared."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from pipelines.alerting.alerts import Alert, Course, Notice, State, fingerprint_of
from pipelines.alerting.grouping import GROUPS_MAX, Group, Grouped, step
from pipelines.alerting.matchers import matchers_of
from pipelines.alerting.routing import Inhibition, Route, Routing, routing_of
from pipelines.alerting.rule_files import ROUTING as ROUTING_FILE
from pipelines.alerting.silences import Silence
from pipelines.base.settings import HOUR_US, MINUTE_US, SECOND_US
from tests.alert_stories import NOON_US, rule


def alert(
    rule: str = "Stalled",
    *,
    state: State = State.FIRING,
    severity: str = "warning",
    flaps: bool = False,
    **labels: str,
) -> Alert:
    """One alert of a group of the cluster c."""
    labels = {"cluster": "c", "group": "orders", **labels}
    return Alert(
        fingerprint_of(rule, labels), rule, severity, "ann", labels, {}, {}, state, "",
        NOON_US, None if state is State.PENDING else NOON_US,
        NOON_US if state is State.RESOLVED else None, NOON_US, Course(is_flapping=flaps),
    )  # fmt: skip


def resolved(one: Alert) -> Alert:
    return replace(one, state=State.RESOLVED, resolved_at_us=NOON_US)


@dataclass
class Receiver:
    """What a receiver gets, as time passes."""

    routing: Routing = field(default_factory=lambda: Routing(Route("mail")))
    now_us: int = NOON_US
    groups: Mapping[str, Group] = field(default_factory=dict)
    grouped: Grouped | None = None

    def after(self, seconds: float, *alerts: Alert, silences: tuple = ()) -> list[Notice]:
        self.now_us += round(seconds * SECOND_US)
        done = step(self.groups, alerts, self.routing, silences=silences, now_us=self.now_us)
        self.groups, self.grouped = done.groups, done
        return list(done.notices)


def named_in(notice: Notice) -> list[tuple[str, str]]:
    """Queue and state of what a notice names."""
    return [(one.labels.get("queue_id", ""), one.state.value) for one in notice.alerts]


def test_a_group_waits_for_what_comes_with_its_first_alert_and_sends_it_once() -> None:
    receiver = Receiver()
    assert receiver.after(0, alert(queue_id="0")) == []
    assert receiver.after(20, alert(queue_id="0"), alert(queue_id="1")) == []
    [notice] = receiver.after(10, alert(queue_id="0"), alert(queue_id="1"))
    assert sorted(named_in(notice)) == [("0", "FIRING"), ("1", "FIRING")]
    assert notice.group_labels == {"cluster": "c", "group": "orders", "alertname": "Stalled"}
    assert notice.is_firing
    for _ in range(30):
        assert receiver.after(60, alert(queue_id="0"), alert(queue_id="1")) == []


def test_what_is_new_or_over_is_sent_after_the_interval_and_all_again_after_the_repeat() -> None:
    first, second = alert(queue_id="0"), alert(queue_id="1")
    receiver = Receiver()
    receiver.after(0, first)
    receiver.after(30, first)
    assert receiver.after(299, first, second) == []
    [notice] = receiver.after(1, first, second)
    assert len(notice.alerts) == 2
    [notice] = receiver.after(300, resolved(first), second)
    assert named_in(notice) == [("1", "FIRING"), ("0", "RESOLVED")]
    assert receiver.after(4 * 3600 - 1, resolved(first), second) == []
    [notice] = receiver.after(300, resolved(first), second)
    assert named_in(notice) == [("1", "FIRING")]
    [notice] = receiver.after(300, resolved(first), resolved(second))
    assert not notice.is_firing
    assert receiver.groups == {}


def test_what_is_over_before_anybody_was_notified_is_notified_to_nobody() -> None:
    receiver = Receiver()
    receiver.after(0, alert())
    assert receiver.after(30, resolved(alert())) == []
    assert receiver.groups == {}
    assert Receiver().after(30, alert(state=State.PENDING)) == []


def test_a_receiver_that_wants_no_end_is_spared_it() -> None:
    receiver = Receiver(Routing(Route("chat", group_wait_us=0, send_resolved=False)))
    assert len(receiver.after(0, alert())) == 1
    assert receiver.after(300, resolved(alert())) == []
    assert receiver.groups == {}


def test_an_alert_that_waits_to_fire_again_is_over_for_whom_it_was_sent_to() -> None:
    receiver = Receiver(Routing(Route("chat", group_wait_us=0)))
    receiver.after(0, alert())
    again = replace(resolved(alert()), state=State.PENDING)
    [notice] = receiver.after(300, again)
    assert named_in(notice) == [("", "RESOLVED")]


def test_flapping_is_notified_once() -> None:
    receiver = Receiver(Routing(Route("chat", group_wait_us=0)))
    receiver.after(0, alert())
    [notice] = receiver.after(300, alert(flaps=True))
    assert notice.alerts[0].course.is_flapping
    assert receiver.after(300, alert(flaps=True)) == []


def test_the_same_decision_has_the_same_id_and_another_one_another() -> None:
    one, other = Receiver(), Receiver()
    for receiver in (one, other):
        receiver.after(0, alert())
    [first], [same] = one.after(30, alert()), other.after(30, alert())
    assert first.notice_id == same.notice_id
    [repeat] = one.after(5 * 3600, alert())
    assert repeat.notice_id != first.notice_id
    assert step(one.groups, [alert()], one.routing, now_us=one.now_us).notices == ()


def silence(text: str, begin_us: int = NOON_US - HOUR_US) -> Silence:
    return Silence("1", matchers_of([text]), begin_us, NOON_US + HOUR_US, "ann", "a release")


def test_silenced_alerts_are_left_out_until_the_silence_ends() -> None:
    receiver = Receiver(Routing(Route("chat", group_wait_us=0)))
    quiet = (silence("group=~ord.*"),)
    assert receiver.after(0, alert(), silences=quiet) == []
    assert receiver.grouped is not None
    assert "silenced by ann: a release" in receiver.grouped.muted.values()
    assert len(receiver.after(3600, alert(), silences=quiet)) == 1


def test_an_end_is_sent_to_whom_the_begin_was_although_it_is_silenced() -> None:
    receiver = Receiver(Routing(Route("pager", group_wait_us=0)))
    receiver.after(0, alert())
    quiet = (silence("group=orders"),)
    assert receiver.after(300, alert(), silences=quiet) == []
    [notice] = receiver.after(300, resolved(alert()), silences=quiet)
    assert not notice.is_firing


def test_a_dead_broker_silences_its_queues_and_no_others() -> None:
    inhibition = Inhibition(
        matchers_of(["alertname=BrokerSilent"]), matchers_of(['broker!=""']), ("cluster", "broker")
    )
    receiver = Receiver(Routing(Route("chat", group_wait_us=0), inhibitions=(inhibition,)))
    alerts = [
        alert("BrokerSilent", group="", broker="a"),
        alert(broker="a", queue_id="0"),
        alert(broker="b", queue_id="1"),
        alert(broker="a", cluster="other", queue_id="2"),
        alert("BrokerSilent", group="", broker="b", state=State.PENDING),
    ]
    named = [one for notice in receiver.after(0, *alerts) for one in notice.alerts]
    assert {one.labels.get("queue_id") for one in named} == {None, "1", "2"}
    assert receiver.grouped is not None
    assert receiver.grouped.muted == {alerts[1].fingerprint: "inhibited by BrokerSilent"}


def test_the_routing_that_is_shipped_mutes_what_a_silent_broker_and_late_gold_explain() -> None:
    routing = routing_of("default.toml", tomllib.loads(ROUTING_FILE.read_text())).routing
    assert routing is not None
    queue, other = alert(broker="a", queue_id="0"), alert(broker="b", queue_id="1")
    silent = replace(alert("BrokerSilent", broker="a"), labels={"cluster": "c", "broker": "a"})
    late = replace(alert("PipelineLate"), labels={})
    lacks = replace(alert("Stalled", outcome="NO_DATA"), labels={"outcome": "NO_DATA"})
    grouped = step({}, [queue, other, silent], routing, now_us=NOON_US)
    assert set(grouped.muted) == {queue.fingerprint}
    grouped = step({}, [queue, other, silent, late, lacks], routing, now_us=NOON_US)
    assert set(grouped.muted) == {one.fingerprint for one in (queue, other, lacks)}


def test_a_notice_has_the_texts_of_the_moment() -> None:
    named = rule(name="Stalled", annotations={"summary": "{{ time_lag_ms | duration }}"})
    one = replace(alert(), figures={"time_lag_ms": 90_000})
    routing = Routing(Route("mail", group_wait_us=0))
    [notice] = step({}, [one], routing, rules={"Stalled": named}, now_us=NOON_US).notices
    assert notice.alerts[0].annotations["summary"] == "1 min 30 s"


def test_two_alerts_never_mute_each_other() -> None:
    inhibition = Inhibition(matchers_of(["severity=warning"]), matchers_of(["severity=warning"]))
    receiver = Receiver(Routing(Route("chat", group_wait_us=0), inhibitions=(inhibition,)))
    assert len(receiver.after(0, alert(), alert("Other"))) == 2


def test_two_inhibitions_do_not_mute_two_alerts_by_each_other() -> None:
    one, other = matchers_of(["alertname=Stalled"]), matchers_of(["alertname=Other"])
    both = (Inhibition(one, other), Inhibition(other, one))
    receiver = Receiver(Routing(Route("chat", group_wait_us=0), inhibitions=both))
    [notice] = receiver.after(0, alert(), alert("Other"))
    assert [one.rule for one in notice.alerts] == ["Stalled"]


def test_that_a_rule_cannot_be_judged_mutes_nothing() -> None:
    inhibition = Inhibition(matchers_of(["alertname=ClusterDown"]), matchers_of(['group!=""']))
    receiver = Receiver(Routing(Route("chat", group_wait_us=0), inhibitions=(inhibition,)))
    down = alert("ClusterDown", group="", outcome="NO_DATA", state=State.NO_DATA)
    notified = [one.rule for notice in receiver.after(0, down, alert()) for one in notice.alerts]
    assert sorted(notified) == ["ClusterDown", "Stalled"]


def test_what_goes_on_under_a_silence_is_sent_again_when_the_rest_was_sent_as_over() -> None:
    receiver = Receiver(Routing(Route("pager", group_wait_us=0)))
    first, second = alert(queue_id="0"), alert(queue_id="1")
    receiver.after(0, first, second)
    quiet = (silence("queue_id=0"),)
    [notice] = receiver.after(300, first, resolved(second), silences=quiet)
    assert not notice.is_firing  # A pager closes the incident of the group.
    [notice] = receiver.after(300, first)
    assert named_in(notice) == [("0", "FIRING")]


def test_a_silence_that_ends_sends_nothing_again_that_has_no_news() -> None:
    receiver = Receiver(Routing(Route("pager", group_wait_us=0)))
    receiver.after(0, alert())
    assert receiver.after(300, alert(), silences=(silence("group=orders"),)) == []
    assert receiver.after(300, alert()) == []


@pytest.mark.parametrize(
    ("routes", "next_receiver"),
    [
        (Routing(Route("team", group_wait_us=0), receivers=frozenset(["pager", "team"])), "team"),
        (Routing(Route("pager", group_by=("cluster",), group_wait_us=0)), "pager"),
    ],
)
def test_what_was_sent_by_a_route_that_is_no_more_is_over_there_and_sent_anew(
    routes: Routing, next_receiver: str
) -> None:
    receiver = Receiver(Routing(Route("pager", group_wait_us=0)))
    [begun] = receiver.after(0, alert())
    receiver.routing = routes
    over, anew = receiver.after(1, alert())
    assert (over.receiver, over.group_key, over.is_firing) == ("pager", begun.group_key, False)
    assert "another notice" in over.alerts[0].reason
    assert (anew.receiver, anew.is_firing) == (next_receiver, True)
    assert receiver.after(1, alert()) == []


def test_an_alert_whose_severity_takes_another_route_is_over_at_the_first() -> None:
    critical = Route("pager", matchers_of(["severity=critical"]), group_wait_us=0)
    receiver = Receiver(Routing(Route("mail", group_wait_us=0), (critical,)))
    receiver.after(0, alert(severity="critical"))
    over, anew = receiver.after(1, alert())
    assert [(over.receiver, over.is_firing), (anew.receiver, anew.is_firing)] == [
        ("pager", False),
        ("mail", True),
    ]


def test_a_receiver_that_is_no_more_is_sent_nothing() -> None:
    receiver = Receiver(Routing(Route("pager", group_wait_us=0)))
    receiver.after(0, alert())
    receiver.routing = Routing(Route("mail"))
    assert receiver.after(1, alert()) == []


def test_routes_are_asked_in_order_and_may_go_on() -> None:
    routing = Routing(
        Route("mail", group_wait_us=0),
        (
            Route("pager", matchers_of(["severity=critical"]), goes_on=True, group_wait_us=0),
            Route("team", matchers_of(["group=orders"]), group_wait_us=0, group_by=("cluster",)),
        ),
    )
    notices = Receiver(routing).after(0, alert(severity="critical"), alert(group="other"))
    assert sorted(one.receiver for one in notices) == ["mail", "pager", "team"]


def test_a_clock_that_is_set_back_delays_no_notice_beyond_its_wait() -> None:
    receiver = Receiver()
    receiver.after(0, alert())
    assert receiver.after(-7200, alert()) == []
    assert len(receiver.after(30, alert())) == 1
    assert receiver.after(-7200, alert()) == []
    assert len(receiver.after(300, alert(), alert(queue_id="1"))) == 1


def test_ten_thousand_alerts_at_once_are_one_notice_that_names_a_few() -> None:
    alerts = [alert(queue_id=str(number)) for number in range(10_000)]
    alerts[7] = replace(alerts[7], severity="critical")
    receiver = Receiver(Routing(Route("mail", alerts_max=20)))
    assert receiver.after(0, *alerts) == []
    [notice] = receiver.after(30, *alerts)
    assert len(notice.alerts) == 20
    assert notice.alerts[0].severity == "critical"
    assert notice.truncated_alerts == 9_980
    some_over = [resolved(one) for one in alerts[:5_000]] + alerts[5_000:]
    [notice] = receiver.after(300, *some_over)
    assert [one.state.value for one in notice.alerts] == ["FIRING"] * 10 + ["RESOLVED"] * 10


def test_a_thousand_groups_at_once_are_few_notices_of_which_the_last_counts_the_rest() -> None:
    alerts = [alert(group=f"g{number}") for number in range(1_000)]
    alerts[7] = replace(alerts[7], severity="critical")
    receiver = Receiver(Routing(Route("mail", alerts_max=20)))
    assert receiver.after(0, *alerts) == []
    notices = receiver.after(30, *alerts)
    assert len(notices) == GROUPS_MAX + 1
    (rest,) = [one for one in notices if not one.group_labels]
    assert len(rest.alerts) + rest.truncated_alerts == 1_000 - GROUPS_MAX
    assert alerts[7] in [one.alerts[0] for one in notices if one.group_labels]
    assert receiver.after(300, *alerts) == []


def test_what_was_sent_with_the_rest_is_over_there_whatever_room_there_is_by_then() -> None:
    alerts = [alert(group=f"g{number:03}") for number in range(GROUPS_MAX + 2)]
    receiver = Receiver(Routing(Route("mail", group_wait_us=0)))
    sent = {one.alerts[0].fingerprint: one.group_key for one in receiver.after(0, *alerts)}
    (rest,) = [key for key in sent.values() if key.endswith("/rest")]
    with_rest = [one for one in alerts if sent.get(one.fingerprint, rest) == rest]
    assert len(with_rest) == 2
    left = [one if one in with_rest else resolved(one) for one in alerts]
    assert rest not in {one.group_key for one in receiver.after(300, *left)}
    (last,) = receiver.after(300, *(resolved(one) for one in alerts))
    assert (last.group_key, len(last.alerts), last.is_firing) == (rest, 2, False)
    assert receiver.groups == {}


ROUTING = {
    "receiver": "mail",
    "group_wait": "10s",
    "route": [{"receiver": "pager", "matchers": ["severity=critical"], "continue": True}],
    "inhibit": [{"source": ["alertname=A"], "target": ["alertname=B"], "equal": ["cluster"]}],
}


def test_routing_is_read_from_a_document_and_routes_take_on_what_they_do_not_say() -> None:
    routing = routing_of("routing.toml", ROUTING, ["mail", "pager"]).routing
    assert routing is not None
    assert routing.routes[0].group_wait_us == 10 * SECOND_US
    assert routing.routes[0].goes_on
    assert routing.otherwise.group_interval_us == 5 * MINUTE_US
    assert routing.inhibitions[0].equal == ("cluster",)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"receiver": None}, "routing.toml: receiver: must name who is notified"),
        ({"receiver": "male"}, "receiver = 'male': there is no receiver 'male'; near it: mail"),
        ({"group_wait": "soon"}, "group_wait = 'soon': must be a span of time like 30s"),
        ({"group_interval": "16m"}, "at most 15 minutes"),
        ({"group_interval": "0"}, "group_interval = '0': must be"),
        ({"send_resolved": "no"}, "send_resolved = 'no': must be true or false"),
        ({"alerts_max": 0}, "alerts_max = 0: must be a whole number"),
        ({"group_by": "cluster"}, "must be a list of labels"),
        ({"routes": []}, "there is no key 'routes'; near it: route"),
        ({"route": {}}, "must be a list of tables, [[route]]"),
        ({"route": [{"receiver": "mail"}]}, "rule route 1: matchers: must be a list of matchers"),
        ({"inhibit": [{"source": ["a=~("], "target": ["a=1"]}]}, "the pattern '(' cannot be read"),
    ],
)
def test_a_fault_of_routing_names_its_place_and_what_to_do(keys: dict, said: str) -> None:
    document = {name: one for name, one in {**ROUTING, **keys}.items() if one is not None}
    checked = routing_of("routing.toml", document, ["mail", "pager"])
    assert checked.routing is None
    assert any(said in str(fault) for fault in checked.faults), list(map(str, checked.faults))
