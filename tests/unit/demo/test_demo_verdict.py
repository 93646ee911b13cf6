"""The verdict: gold rows in, found or not found out; what the stage knows plays no part."""

from __future__ import annotations

import datetime as dt
from io import StringIO
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from demo.looks import LOOKS
from demo.plan import BROKER_NAME, OWN_INCIDENTS, Incident, Plan, make_plan
from demo.report import print_verdict
from demo.verdict import READ_TABLES, Verdict, judge
from pipelines.reading.catalogue import BY_NAME
from pipelines.sentences.duplicates import CameAgain

PLAN = make_plan(1, 120)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def rows(**tables: list[dict[str, Any]]) -> dict[str, pl.DataFrame]:
    """Gold with the given rows; every other table is empty, as before its first row."""
    gold: dict[str, pl.DataFrame] = {}
    for name in READ_TABLES:
        columns = BY_NAME[name].column_names
        given = [dict.fromkeys(columns) | row for row in tables.get(name, [])]
        gold[name] = (
            pl.DataFrame(given) if given else pl.DataFrame(schema=dict.fromkeys(columns, pl.Null))
        )
    return gold


def scene_row(incident: Incident) -> dict[str, Any]:
    scene = PLAN.scene(incident)
    assert scene is not None
    return {"group": scene.group.name, "topic": scene.group.topic, "queue_id": scene.queue_id}


def client_of(incident: Incident) -> str:
    scene = PLAN.scene(incident)
    assert scene is not None
    return f"127.0.0.1@{scene.victim}"


def full_gold() -> dict[str, pl.DataFrame]:
    """Every incident of the plan has left its trace, and the checks held."""
    killed = scene_row(Incident.CONSUMER_KILL)
    return rows(
        stalled_windows=[
            scene_row(Incident.FROZEN_HEAD)
            | {"rule": "STALLED", "kind": "FROZEN_HEAD", "evidence": "stood still"}
        ],
        duplicate_risk_windows=[
            killed
            | {
                "client_id": client_of(Incident.CONSUMER_KILL),
                "cause": "CONSUMER_CRASH",
                "outcome": "CONFIRMED",
                "at_risk_messages": 5,
                "redelivered_messages": 3,
                "evidence": "three came again",
            },
            killed
            | {
                "broker": BROKER_NAME,
                "basis": "RESTART",
                "cause": "BROKER_CRASH",
                "outcome": "PASSED",
                "at_risk_messages": 2,
                "redelivered_messages": 0,
                "evidence": "two could have",
            },
        ],
        rebalances=[
            {
                "group": "billing",
                "kind": "JOINED",
                "client_id": "127.0.0.1@billing-3",
                "members_before": 2,
                "members_after": 3,
            }
        ],
        dead_letters=[
            {
                "group": "billing",
                "origin_topic": "orders",
                "message_id": "AB12",
                "reconsume_times": 1,
            }
        ],
        dq_results=[check("offsets grow", success=True)],
        consumer_lag=[
            lag("shipping", 0, lag_messages=40, time_lag_ms=9000),
            lag("shipping", 1, lag_messages=2, time_lag_ms=100),
        ],
    )


def check(name: str, *, success: bool, severity: str = "CRITICAL") -> dict[str, Any]:
    return {
        "run_id": "r1",
        "expectation": name,
        "table": "offset_violations",
        "severity": severity,
        "success": success,
        "started_at": NOON,
    }


def lag(group: str, queue_id: int, **figures: int | None) -> dict[str, Any]:
    place = {"group": group, "broker": "broker-a", "topic": "orders", "queue_id": queue_id}
    return place | {"observed_at": NOON, "seq": queue_id} | figures


def judged(plan: Plan, gold: dict[str, pl.DataFrame]) -> Verdict:
    return judge(plan, gold, LOOKS)


def test_a_run_whose_every_incident_left_its_trace_is_a_success() -> None:
    verdict = judged(PLAN, full_gold())
    assert [finding.found for finding in verdict.findings] == [True] * len(LOOKS)
    assert verdict.success


def test_an_empty_gold_finds_nothing_and_is_no_success() -> None:
    verdict = judged(PLAN, rows())
    assert [finding.found for finding in verdict.findings] == [False] * len(LOOKS)
    assert verdict.failed_checks == ("no check has run",)
    assert not verdict.success


def test_a_frozen_head_on_another_queue_than_the_one_played_does_not_count() -> None:
    gold = full_gold()
    gold["stalled_windows"] = gold["stalled_windows"].with_columns(queue_id=pl.lit(99))
    verdict = judged(PLAN, gold)
    assert [f.incident for f in verdict.findings if not f.as_expected] == [Incident.FROZEN_HEAD]


@pytest.mark.parametrize(
    ("incident", "table"),
    [
        (Incident.JOIN, "rebalances"),
        (Incident.CONSUMER_KILL, "duplicate_risk_windows"),
    ],
)
def test_what_another_client_did_does_not_count(incident: Incident, table: str) -> None:
    gold = full_gold()
    gold[table] = gold[table].with_columns(client_id=pl.lit("127.0.0.1@billing-1"))
    verdict = judged(PLAN, gold)
    assert [f.incident for f in verdict.findings if not f.as_expected] == [incident]


@pytest.mark.parametrize(
    "other",
    [{"basis": "REDELIVERY"}, {"outcome": "POSSIBLE"}, {"broker": "broker-b"}],
    ids=["restarted cleanly", "not decided", "another broker"],
)
def test_a_broker_kill_counts_when_its_unclean_boot_is_reported_with_an_outcome(
    other: dict[str, str],
) -> None:
    crash = {"cause": "BROKER_CRASH", "basis": "RESTART", "outcome": "PASSED", "evidence": "died"}
    scene = scene_row(Incident.BROKER_KILL) | crash | {"broker": BROKER_NAME}
    for row, found in ((scene, True), (scene | other, False)):
        gold = full_gold() | {
            "duplicate_risk_windows": rows(duplicate_risk_windows=[row])["duplicate_risk_windows"]
        }
        assert judged(PLAN, gold).findings[-1].found is found
        left_out = judged(make_plan(1, 120, [Incident.BROKER_KILL]), gold).findings[-1]
        assert left_out.found, "the least trace counts when it was not played"


@pytest.mark.parametrize("left_out", OWN_INCIDENTS)
def test_an_incident_that_was_left_out_must_leave_no_trace(left_out: Incident) -> None:
    verdict = judged(make_plan(1, 120, [left_out]), full_gold())
    wrong = [finding.incident for finding in verdict.findings if not finding.as_expected]
    assert wrong == [left_out]
    assert not verdict.success


def test_a_failed_critical_check_is_named_and_fails_the_run() -> None:
    gold = full_gold()
    gold["dq_results"] = rows(dq_results=[check("offsets grow", success=False)])["dq_results"]
    verdict = judged(PLAN, gold)
    assert verdict.failed_checks == ("offset_violations: offsets grow",)
    assert not verdict.success


def test_lag_is_summed_over_queues_and_time_lag_is_the_largest() -> None:
    shipping = judged(PLAN, full_gold()).groups[1]
    assert (shipping.group, shipping.lag_messages, shipping.time_lag_ms) == ("shipping", 42, 9000)


def test_a_group_nobody_measured_has_an_unknown_lag_not_zero() -> None:
    billing = judged(PLAN, full_gold()).groups[0]
    assert (billing.group, billing.lag_messages, billing.time_lag_ms) == ("billing", None, None)


def test_predicted_and_observed_duplicates_are_distinguished() -> None:
    ledger = judged(PLAN, full_gold()).groups[2]
    assert (ledger.risk_windows, ledger.predicted_duplicates, ledger.observed_duplicates) == (
        2,
        7,
        CameAgain(3),
    )


def test_what_came_again_of_an_observed_broker_is_unknown_and_no_number() -> None:
    gold = rows(consumer_lag=[{"group": "ledger", "emitter": "c/b/watcher", "queue_id": 0}])
    shown = Console(width=150, record=True, file=StringIO())
    print_verdict(judged(PLAN, gold), shown)
    [line] = [line for line in shown.export_text().splitlines() if line.startswith("│ ledger")]
    assert "unknown: an" in line
