"""Alerts of the story, as an alert process would have stored them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dashboards.models.alert_lines import AlertSource
from pipelines.alerting.alerts import Alert, State, fingerprint_of
from pipelines.alerting.board import AlertBoard, PastAlerts
from pipelines.alerting.matchers import matcher_of
from pipelines.alerting.rule_files import RulesRead
from pipelines.alerting.rule_status import JudgedRule
from pipelines.alerting.runner import LEASE_US
from pipelines.alerting.silence_rows import kept_silence
from pipelines.alerting.silences import Recurring, Silence
from pipelines.alerting.store import people, steps
from pipelines.base.settings import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from pipelines.base.time_units import micros
from pipelines.database import leads
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from tests.gold_lake import END

END_US = micros(END)
NOW_US = END_US + 8 * SECOND_US


def an_alert(rule: str, state: State = State.FIRING, **changed: Any) -> Alert:
    """One of shipping's queue that stands."""
    labels = changed.pop(
        "labels", {"cluster": "demo", "group": "shipping", "topic": "orders", "queue_id": "2"}
    )
    fields: dict[str, Any] = {
        "fingerprint": fingerprint_of(rule, labels),
        "rule": rule,
        "severity": "critical",
        "owner": "payments",
        "labels": labels,
        "annotations": {
            "summary": "orders 2 stands still, 867 messages wait",
            "evidence": "7 commits in 30 s, offset unchanged",
            "first_step": "Look at the stack of its listener.",
        },
        "figures": {"lag_messages": 867},
        "state": state,
        "reason": "",
        "active_at_us": END_US - 4 * MINUTE_US,
        "fired_at_us": END_US - 3 * MINUTE_US,
        "resolved_at_us": None,
        "last_true_us": END_US,
    }
    if state is State.PENDING:
        fields["fired_at_us"] = None
    return Alert(**fields | changed)


def of_the_story(cluster: str = "demo") -> list[Alert]:
    """One of each state, and the one that always fires."""
    ledger = {"cluster": cluster, "group": "ledger", "topic": "payments", "queue_id": "3"}
    billing = {"cluster": cluster, "group": "billing"}
    stuck = {"cluster": cluster, "group": "shipping", "topic": "orders", "queue_id": "2"}
    links = {
        "runbook_url": "https://wiki.example/runbooks/frozen",
        "notebook_url": "javascript:alert(1)",
    }
    frozen = an_alert("QueueFrozen", labels=stuck)
    return [
        an_alert("QueueFrozen", labels=stuck, annotations={**frozen.annotations, **links}),
        an_alert(
            "LagGrows",
            State.PENDING,
            severity="warning",
            owner="",
            labels={"cluster": cluster, "group": "shipping"},
            annotations={"summary": "shipping falls further behind each minute"},
        ),
        an_alert(
            "DuplicatesThreaten",
            State.RESOLVED,
            severity="warning",
            labels=ledger,
            annotations={"summary": "14 messages may come a second time"},
            fired_at_us=END_US - 9 * MINUTE_US,
            resolved_at_us=END_US - 6 * MINUTE_US,
        ),
        an_alert(
            "DeadLetters",
            State.WITHHELD,
            severity="error",
            labels={**billing, "outcome": "WITHHELD"},
            annotations={"summary": "Rule DeadLetters cannot be judged: withheld."},
            reason="withheld: rows_are_unique failed at 12:14:55 UTC",
        ),
        an_alert(
            "Watchdog",
            severity="info",
            owner="",
            labels={},
            annotations={"summary": "always fires: whoever does not hear of it knows"},
        ),
    ]


def store_alerts(
    database: Database, lake: str, alerts: Iterable[Alert], *, at: datetime = END, cycle: int = 7
) -> leads.Lead:
    """Store alerts as the leader would, a second after the end of data."""
    at_us = micros(at) + SECOND_US
    role = f"alerting of {lake}"
    lead = leads.acquire(database, role, "process 7 on alpha", now_us=at_us, lasts_us=LEASE_US)
    clock = f'{{"total_us": 1, "data_us": {micros(at)}, "now_us": {at_us}, "credit_us": 0}}'
    failed_us = at_us - 100 * SECOND_US
    judged = (
        JudgedRule("QueueFrozen", at_us, micros(at), "JUDGED", 3, "", at_us),
        JudgedRule(
            "DeadLetters", at_us, micros(at), "EVAL_ERROR", None, "no column lag", failed_us
        ),
    )
    step = steps.Step(list(alerts), cursor=steps.Cursor("run", cycle, clock), judged=judged)
    steps.take(database, lake, step, lead=lead, now_us=at_us)
    return lead


def say(database: Database, lake: str, alert: Alert) -> None:
    """Somebody acks an alert, and silences there are of each kind."""
    ack = people.Ack(alert.fingerprint, alert.active_at_us, "ada", "I look at it", NOW_US)
    people.acknowledge(database, lake, ack)
    nightly = Recurring(frozenset({5, 6}), 22 * 60, 8 * HOUR_US, "Europe/Berlin")
    for number, (matcher, begin_us, end_us, recurring) in enumerate(
        (
            ('group="shipping"', NOW_US - HOUR_US, NOW_US + HOUR_US, None),
            ('severity=~"warning|info"', NOW_US - DAY_US, NOW_US + 90 * DAY_US, nightly),
            ('group="billing"', NOW_US + DAY_US, NOW_US + 2 * DAY_US, None),
            ('group="ledger"', NOW_US - 3 * DAY_US, NOW_US - 2 * DAY_US, None),
        )
    ):
        made = Silence(
            f"silence{number}",
            (matcher_of(matcher),),
            begin_us,
            end_us,
            "ada",
            "deployment",
            recurring,
        )
        people.add_silence(database, lake, kept_silence(made, created_us=begin_us))


def source_of(file: Path, lake: str, *rules: Path) -> AlertSource:
    """Where pages learn of alerts, when they are in this file."""
    board, past = AlertBoard(lake, f"sqlite:///{file}"), PastAlerts(Lake.at(lake))
    said = f" --database sqlite:///{file}"
    return AlertSource(board.look, RulesRead(rules).read, past.within, board.judged, said)


def later(seconds: float) -> datetime:
    """After the end of data."""
    return END + timedelta(seconds=seconds)
