"""Rules held against rows: where they hold, where nobody knows, and how much of it is reported."""

from __future__ import annotations

from datetime import timedelta

from pipelines.alerting.evaluating import EvalError, Looked, NoData, Signals, Withheld, evaluate
from pipelines.alerting.rules import Rule
from pipelines.reading.trust import Trust
from pipelines.reading.trust import Withheld as Failure
from tests.alert_stories import NOON, NOON_US, Story, behind, moment, rows, rule


def signals(made: Rule, looked: Looked) -> Signals:
    """The outcome of a rule that was judged."""
    outcome = evaluate([made], looked, {})[made.name]
    assert isinstance(outcome, Signals), outcome
    return outcome


def test_each_row_for_which_the_condition_holds_is_a_signal_the_worst_first() -> None:
    frame = rows("group_state", behind(61, group="a"), behind(3600, group="b"), behind(5))
    found = signals(rule(), Looked(NOON_US, {"group_state": frame}))
    assert [one.labels["group"] for one in found.holds] == ["b", "a"]
    assert found.holds[0].labels == {"cluster": "c", "broker": "b", "group": "b"}
    assert found.holds[0].figures["time_lag_ms"] == 3_600_000
    assert found.holds[0].figures["members"] is None


def test_rows_with_equal_labels_are_one_signal_since_the_oldest_with_the_worst_figures() -> None:
    windows = [
        {"topic": "t", "queue_id": queue, "rule": "STALLED", "time_lag_ms": lag,
         "opened_at": moment(-opened), "evidence": f"queue {queue}"}
        for queue, lag, opened in [(0, 5_000, 600), (1, 9_000, 60)]
    ]  # fmt: skip
    made = rule(
        table="stalled_windows", when="rule = 'STALLED'", labels=["group"], extra_labels={"a": "b"}
    )
    found = signals(made, Looked(NOON_US, {"stalled_windows": rows("stalled_windows", *windows)}))
    assert found.matched == 1
    [one] = found.holds
    assert one.labels == {"group": "orders", "a": "b"}
    assert one.evidence == "queue 1"
    assert one.since_us == NOON_US - 600_000_000
    assert one.figures["matched"] == 2


def test_a_rule_that_matches_too_much_reports_the_worst_and_how_many_there_were() -> None:
    frame = rows("group_state", *(behind(100 + n, group=f"g{n}") for n in range(50)))
    found = signals(rule(signals_max=3), Looked(NOON_US, {"group_state": frame}))
    assert [one.labels["group"] for one in found.holds] == ["g49", "g48", "g47"]
    assert found.matched == 50


def test_alerts_that_are_known_stay_when_worse_ones_crowd_them_out() -> None:
    story = Story(rule(signals_max=2))
    story.look(rows("group_state", behind(70, group="a")))
    crowd = (behind(1000 + n, group=f"g{n}") for n in range(9))
    story.look(rows("group_state", behind(70, group="a"), *crowd))
    assert story.states == ["FIRING", "FIRING"]
    assert "a" in {alert.labels["group"] for alert in story.alerts}


def test_a_group_whose_gold_is_unknown_neither_holds_nor_does_not() -> None:
    story = Story(rule(when="state = 'STALLED'"))
    story.look(rows("group_state", behind(90, state="STALLED")))
    for unknown in (behind(90, state="UNKNOWN"), behind(90, state="WITHHELD")):
        story.look(rows("group_state", unknown))
        assert story.state == "FIRING"
        assert "is unknown" in story.alerts[0].reason
    story.look(rows("group_state", behind(0)))
    assert story.state == "RESOLVED"


def test_a_figure_that_is_not_known_resolves_nothing() -> None:
    story = Story(rule())
    story.look(rows("group_state", behind(90)))
    assert story.look(rows("group_state", behind(None))).state == "FIRING"


def test_a_moment_among_the_labels_does_not_hide_that_nothing_is_known() -> None:
    story = Story(rule(labels=["group", "retained_until"]))
    story.look(rows("group_state", behind(90, retained_until=moment(60))))
    assert story.alerts[0].labels["retained_until"] == "2026-03-01T12:01:00.000Z"
    unknown, good = (behind(lag, retained_until=moment(60)) for lag in (None, 0))
    assert story.look(rows("group_state", unknown)).state == "FIRING"
    assert story.look(rows("group_state", good)).state == "RESOLVED"


def test_a_query_that_gold_gives_no_figures_resolves_nothing() -> None:
    asked = rule(
        tables=["group_state"],
        sql='select cluster, "group" from group_state where time_lag_ms > 60000',
        labels=["cluster", "group"],
    )
    story = Story(asked).look(rows("group_state", behind(90)))
    assert story.state == "FIRING"
    unknown = behind(None, state="UNKNOWN")
    assert story.look(rows("group_state", unknown, behind(0, group="b"))).state == "FIRING"
    assert story.look(rows("group_state", behind(0))).state == "RESOLVED"


def test_what_a_silent_emitter_reported_last_is_not_believed_and_resolves_nothing() -> None:
    story = Story(rule())
    silent = {"c/b/0": "nothing comes from c/b/0 any more"}
    assert story.look(rows("group_state", behind(90)), silent=silent).state == ""
    assert story.look(rows("group_state", behind(90))).state == "FIRING"
    assert story.look(rows("group_state"), silent=silent).state == "FIRING"
    assert "c/b/0" in story.alerts[0].reason
    assert story.look(rows("group_state"), silent={"c/other/0": "silent"}).state == "RESOLVED"


def failure(group: str | None, emitter: str | None) -> Trust:
    """A critical check that failed on the last minute's rows."""
    return Trust(
        (Failure("lag_adds_up", "group_state", NOON - timedelta(minutes=1), NOON, NOON,
                 "it does not", emitter, group),)
    )  # fmt: skip


def test_a_verdict_that_is_withheld_is_notified_as_such_and_of_its_group_alone() -> None:
    frame = rows("group_state", behind(90, group="a"), behind(90, group="b"))
    found = signals(rule(), Looked(NOON_US, {"group_state": frame}, trust=failure("a", "c/b/0")))
    assert [one.labels["group"] for one in found.holds] == ["b"]
    [(place, reason)] = found.withheld
    assert place == {"cluster": "c", "broker": "b", "group": "a"}
    assert "lag_adds_up" in reason


def test_when_a_check_of_everybody_fails_the_rule_is_withheld() -> None:
    looked = Looked(NOON_US, {"group_state": rows("group_state")}, trust=failure(None, None))
    assert isinstance(evaluate([rule()], looked, {})["Behind"], Withheld)


def test_the_alert_about_a_failed_check_is_not_withheld_by_it() -> None:
    made = rule(table="dq_results", when="not success", annotations={"summary": "x"})
    frame = rows("dq_results", {"expectation": "lag_adds_up", "success": False})
    trust = Trust(
        (Failure("lag_adds_up", "bronze", NOON - timedelta(minutes=1), NOON, NOON, "no"),)
    )
    looked = Looked(NOON_US, {"dq_results": frame}, silent={"c/b/0": "silent"}, trust=trust)
    [one] = signals(made, looked).holds
    assert one.labels == {"expectation": "lag_adds_up"}
    looked = Looked(NOON_US, {"group_state": rows("group_state")}, trust=trust)
    assert isinstance(evaluate([rule()], looked, {})["Behind"], Withheld)


def test_a_table_that_cannot_be_read_is_no_data_with_the_reason() -> None:
    looked = Looked(NOON_US, {}, unreadable={"group_state": "the lake does not answer"})
    assert evaluate([rule()], looked, {})["Behind"] == NoData("the lake does not answer")
    assert isinstance(evaluate([rule()], Looked(None, {"group_state": rows("group_state")}), {})
                      ["Behind"], NoData)  # fmt: skip


def test_one_rule_that_fails_is_reported_and_the_others_are_judged() -> None:
    frame = rows("group_state", behind(90)).drop("members")
    rules = [rule(), rule(name="Lonely", when="members = 0")]
    outcomes = evaluate(rules, Looked(NOON_US, {"group_state": frame}), {})
    assert isinstance(outcomes["Behind"], Signals)
    assert isinstance(outcomes["Lonely"], EvalError)


def test_events_count_for_as_long_as_the_rule_says() -> None:
    letters = rows("dead_letters", {"observed_at": moment(-601)}, {"observed_at": moment(-5)})
    made = rule(table="dead_letters", when="true", within="10m")
    [one] = signals(made, Looked(NOON_US, {"dead_letters": letters})).holds
    assert one.figures["matched"] == 1


def test_closed_intervals_count_only_for_a_rule_that_says_for_how_long() -> None:
    windows = rows(
        "duplicate_risk_windows",
        {"state": "CLOSED", "observed_at": moment(-60), "outcome": "CONFIRMED", "queue_id": 0},
        {"state": "OPEN", "observed_at": moment(-6000), "outcome": "CONFIRMED", "queue_id": 1},
    )
    looked = Looked(NOON_US, {"duplicate_risk_windows": windows})
    for within, queues in ((None, ["1"]), ("2m", ["0", "1"])):
        keys = {} if within is None else {"within": within}
        made = rule(table="duplicate_risk_windows", when="outcome = 'CONFIRMED'", **keys)
        found = signals(made, looked)
        assert sorted(one.labels["queue_id"] for one in found.holds) == queues


def test_a_query_over_events_counts_what_no_condition_of_one_row_could() -> None:
    made = rule(
        name="Storm", tables=["rebalances"], within="10m",
        sql="""SELECT cluster, "group", count(*) AS changes FROM rebalances
               GROUP BY cluster, "group" HAVING count(*) >= 3""",
        annotations={"summary": "{{ changes }} changes of {{ labels.group }}"},
    )  # fmt: skip
    events = [{"observed_at": moment(-at), "group": "flaps", "kind": "LEFT"} for at in (1, 2, 3)]
    old = [{"observed_at": moment(-at), "group": "calm", "kind": "LEFT"} for at in (1, 700, 800)]
    looked = Looked(NOON_US, {"rebalances": rows("rebalances", *events, *old)})
    [one] = signals(made, looked).holds
    assert one.labels == {"cluster": "c", "group": "flaps"}
    assert one.figures["changes"] == 3
    assert not signals(made, Looked(NOON_US, looked.rows, silent={"c/b/0": "silent"})).holds


def test_a_rule_without_labels_is_one_alert_of_all_its_rows() -> None:
    story = Story(rule(labels=[], annotations={"summary": "{{ matched }} groups"}))
    for _ in range(2):
        story.look(rows("group_state", behind(90, group="a"), behind(70, group="b")))
        assert story.alerts[0].figures["matched"] == 2
    assert story.look(rows("group_state", behind(None))).state == "FIRING"
    assert story.look(rows("group_state", behind(0))).state == "RESOLVED"


def test_hostile_names_are_labels_like_others() -> None:
    hostile = 'x{{ 7*7 }}</script>"\n'
    frame = rows("group_state", behind(90, group=hostile))
    story = Story(rule()).look(frame)
    assert story.alerts[0].labels["group"] == hostile
    assert story.alerts[0].annotations["summary"] == hostile
