"""Sentences of the overview's changes, of checks, and of reports about a period."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.sentences import (
    alert_reasons,
    checks,
    groups,
    jobs,
    periods,
    pictures,
    recent_changes,
)

AT = datetime(2026, 3, 1, 19, 10, 3, tzinfo=UTC)
CLIENT = "192.0.2.2@4711#1234567890123"
WINDOW: dict[str, Any] = {
    "group": "shipping",
    "topic": "orders",
    "broker": "broker-a",
    "queue_id": 2,
    "rule": "STALLED",
    "closed_at": None,
    "unknown_reason": None,
    "headline": "Group shipping is stuck on queue 2 of orders on broker-a: a message is not "
    "finished.",
    "basis": "DEPARTURE",
    "cause": "CONSUMER_CRASH",
    "outcome": "CONFIRMED",
    "at_risk_messages": 29,
    "redelivered_messages": 12,
    "redelivered_unknown_reason": None,
}
MANY = [{**WINDOW, "queue_id": number} for number in range(8)]
CHANGE: dict[str, Any] = {
    "client_id": CLIENT,
    "group": "shipping",
    "kind": "JOINED",
    "members_before": 1,
    "members_after": 2,
}
FAIL_OVER: dict[str, Any] = {
    "cluster": "prod",
    "broker": "broker-a",
    "led_at": AT,
    "epoch": 7,
    "group": "shipping",
    "at_risk_messages": 0,
    "queues_unknown": 0,
}
LETTER: dict[str, Any] = {
    "group": "shipping",
    "message_id": "7F00A1",
    "origin_topic": "orders",
    "reconsume_times": 16,
}
OBJECTIVES = periods.Objectives(
    groups=4, missed=2, worst="shipping", behind_percent=12.5, worst_lag="1 min 30 s"
)
WITHHELD = "withheld: offsets_known failed at 2026-03-01 19:10:03 UTC: 3 of 40 break it"


def of_changes() -> Iterator[tuple[str, str]]:
    """(what of, sentence): what the overview lists."""
    yield "a stall", recent_changes.stalls_began([WINDOW])
    yield "a stall that is over", recent_changes.stalls_began([{**WINDOW, "closed_at": AT}])
    yield "stalls", recent_changes.stalls_began(MANY)
    yield "a stall ended", recent_changes.stalls_ended([WINDOW], 394_000)
    yield "stalls ended", recent_changes.stalls_ended(MANY[:2], 394_000)
    yield "a risk", recent_changes.risks_began([{**WINDOW, "at_risk_messages": 1}])
    yield "risks", recent_changes.risks_began(MANY)
    exposed = {**WINDOW, "basis": "EXPOSURE", "redelivered_messages": 0, "outcome": "PASSED"}
    yield "a risk that only could come true", recent_changes.risks_began([exposed])
    yield "a risk ended", recent_changes.risks_ended([WINDOW])
    yield "a risk ended, nothing came again", recent_changes.risks_ended([exposed])
    observed = {"redelivered_messages": 3, "redelivered_unknown_reason": "OBSERVED"}
    yield "a risk ended, watched from outside", recent_changes.risks_ended([{**WINDOW, **observed}])
    yield "members", recent_changes.of_members(CHANGE)
    yield "members, how many unknown", recent_changes.of_members({**CHANGE, "members_after": None})
    yield "a dead letter", recent_changes.dead_letter(LETTER)
    nothing = {"message_id": None, "origin_topic": None, "reconsume_times": 1}
    yield "a dead letter, unknown", recent_changes.dead_letter({**LETTER, **nothing})
    yield "a silent broker", recent_changes.broker_silent("broker-a", AT, None)
    until = AT + timedelta(minutes=2)
    yield "a broker that was silent", recent_changes.broker_silent("broker-a", AT, until)
    yield "a restart", recent_changes.broker_booted("broker-a", AT)
    yield (
        "a restart after a crash",
        recent_changes.broker_booted(
            "broker-a", AT, clean=False, detail="after SIGKILL", returned=[CHANGE, CHANGE]
        ),
    )
    yield "a restart after a stop", recent_changes.broker_booted("broker-a", AT, clean=True)
    yield (
        "a restart that an observer saw",
        recent_changes.broker_booted("broker-a", AT, up_since=AT),
    )
    yield (
        "a broker seen first",
        recent_changes.broker_booted("broker-a", AT, first_seen=True, up_since=AT),
    )
    yield (
        "a change of the leader",
        recent_changes.fail_over([{**FAIL_OVER, "at_risk_messages": 40}]),
    )
    yield "a change that costs nothing", recent_changes.fail_over([FAIL_OVER])
    yield (
        "a change of which little is known",
        recent_changes.fail_over([{**FAIL_OVER, "queues_unknown": 2}], names_cluster=True),
    )
    yield (
        "a broker's role",
        recent_changes.broker_event("broker-a", "ROLE_CHANGE", "slave to master"),
    )
    yield (
        "a topic's reader, lag unknown",
        groups.lag_unknown({**WINDOW, "unknown_reason": "NO_OFFSET"}),
    )
    yield "a topic's reader, lag and why unknown", groups.lag_unknown(WINDOW)
    yield "a topic's reader, well", groups.stands_nowhere("shipping", "orders")
    yield "checks, none", checks.NEVER_RAN
    yield "checks, nothing to check", checks.NOTHING_TO_CHECK
    yield "checks, too old", checks.too_old(905_000)
    yield "checks that hold", checks.hold(8, AT)
    yield "a check that holds", checks.hold(1, None)
    yield "checks that fail", checks.fail(["offsets_known", "lag_closes"], 8)
    yield "a check that fails", checks.fail(["offsets_known"], 8)


def of_periods() -> Iterator[tuple[str, str]]:
    """What a report says."""
    for name, given in (
        ("missed", OBJECTIVES),
        ("kept", periods.Objectives(4)),
        ("kept, one group", periods.Objectives(1)),
        ("kept, one unclear", periods.Objectives(4, unclear=1)),
        ("kept, all but one unclear", periods.Objectives(4, unclear=3)),
        ("all unclear", periods.Objectives(4, unclear=4)),
    ):
        yield f"headline, {name}", periods.headline(given, withheld=0, late=())
    late = [f"prod/broker-{name}/0" for name in "abcde"]
    yield "headline, withheld", periods.headline(OBJECTIVES, withheld=1, late=late[:1])
    yield "headline, much withheld", periods.headline(OBJECTIVES, withheld=3, late=late)
    yield "headline, nothing", periods.NO_GROUP
    moment = "01 Mar 2026 19:10 UTC"
    yield "an emitter not known to the end", periods.known_up_to(late[0], moment)
    yield "one more", periods.more_not_known(1)
    yield "more", periods.more_not_known(7)
    yield "reports missing", periods.reports_wrong(late[0], 12, 0)
    yield "reports missing, unknown", periods.reports_wrong(late[0], None, None)
    yield "lag is known later", periods.lag_known_from(moment)
    yield "a verdict withheld", periods.not_believed(["shipping"], WITHHELD)
    yield (
        "verdicts withheld",
        periods.not_believed(late, WITHHELD),
    )
    yield "one more withheld", periods.more_not_believed(1)
    yield "reports whole", periods.reports_whole(1, 2)
    yield "checks", periods.checks_held(8)
    yield "a check", periods.checks_held(1)
    yield "not checked", periods.NOT_CHECKED
    yield "laws", periods.laws(3, 1)
    yield "one law", periods.laws(1, None)
    yield "laws unknown", periods.LAWS_UNKNOWN
    yield "alerts", periods.alerts(3, 2, 1, 1)
    yield "alerts of one kind", periods.alerts_of("LagGrows", 3, 1) + "."
    yield "an alert that is open", periods.alert_open("2026-03-01 19:10 UTC", "Nobody consumes g.")
    yield "alerts, no history", periods.NO_HISTORY


def of_jobs() -> Iterator[tuple[str, str]]:
    """Runs of jobs, and jobs that nobody plans."""
    address = "http://192.0.2.9:9999"
    yield "failed", jobs.failed(address, 3, 500)
    yield "failed, executor and tries unknown", jobs.failed(None, 1, 500)
    yield "refused", jobs.refused(3)
    yield "lost", jobs.lost(address, 3)
    yield "lost, executor unknown", jobs.lost(None, 1)
    yield "result late", jobs.result_late(address, "success")
    yield "late", jobs.late()
    yield "not planned", jobs.not_planned(1, AT)
    yield "not planned, many", jobs.not_planned(12, AT)
    yield "stopped", jobs.stopped("no time of its rule is left")
    for name, more in (("missed", 0), ("missed, one more", 1), ("missed, more", 7)):
        done = "by DO_NOTHING no run makes up for it"
        yield name, jobs.missed(AT, done, more_jobs=more)


def of_alert_states() -> Iterator[tuple[str, str]]:
    """Alerts of which something is to be said beside their rule's texts."""
    for outcome in ("NO_DATA", "EVAL_ERROR", "WITHHELD"):
        yield outcome, alert_reasons.not_judged("LagGrows", outcome)
    silent = "prod/broker-a/0 has reported nothing since 19:10:03 UTC"
    yield "unknown", alert_reasons.unknown_now(silent)
    yield "flapping", alert_reasons.FLAPPING
    yield "resting", alert_reasons.RESTS
    yield "its subject is gone", alert_reasons.SUBJECT_GONE
    yield "its rule is gone", alert_reasons.RULE_GONE
    yield "in another notice", alert_reasons.ELSEWHERE
    yield "inhibited", alert_reasons.inhibited("ConsumersGone")
    yield "silenced", alert_reasons.silenced("kim", "we deploy")


def of_pictures() -> Iterator[tuple[str, str]]:
    """What figures show."""
    known = {"time_lag_ms": 40_000, "time_lag_at_least_ms": 40_000}
    part, nothing = {**known, "time_lag_ms": None}, dict.fromkeys(known)
    for name, row in (("", known), (", known in part", part), (", unknown", nothing)):
        yield f"groups{name}", pictures.heatmap(3, 1, "shipping", row)
        yield f"a group{name}", pictures.timeline("shipping", row, stalls=1, risks=2)
    yield "brokers", pictures.loss_window(2, "broker-a", 4096)
    yield "brokers, nothing known", pictures.loss_window(1, "", None)
    yield "a group, not judged", pictures.timeline("shipping", None, stalls=0, risks=0)
