"""What gold shows of an observed cluster's incidents: rows in, evidence or nothing out."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest

from demo.observed_looks import LOOKS
from demo.plan import BROKER_NAME, Incident, make_plan
from demo.verdict import judge
from tests.unit.demo.test_demo_verdict import check, rows

PLAN = make_plan(1, 120, incidents=LOOKS)
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
DEPARTED = NOON + dt.timedelta(seconds=40)
Rows = dict[str, list[dict[str, Any]]]


def scene_row(incident: Incident) -> dict[str, Any]:
    scene = PLAN.scene(incident)
    assert scene is not None
    place = {"group": scene.group.name, "topic": scene.group.topic, "queue_id": scene.queue_id}
    return place | {"broker": BROKER_NAME}


def victim() -> str:
    scene = PLAN.scene(Incident.CONSUMER_KILL)
    assert scene is not None
    return f"127.0.0.1@{scene.victim}"


def member(group: str, client: str, kind: str, generation: int, **more: Any) -> dict[str, Any]:
    """A change of membership; rows come in the order of seq."""
    fields = {"group": group, "client_id": client, "kind": kind, "generation": generation}
    return fields | {"broker": BROKER_NAME, "observed_at": NOON} | more


def observed_rows() -> Rows:
    """What an observer's rows became after every incident of the plan."""
    changes = [
        member("ledger", "127.0.0.1@ledger-1", "JOINED", 1),
        member("ledger", "127.0.0.1@ledger-2", "JOINED", 2),
        member("billing", "127.0.0.1@billing-1", "JOINED", 1, members_after=1),
        member("billing", "127.0.0.1@billing-2", "JOINED", 2, members_after=2),
        member("ledger", victim(), "LEFT", 3, reason="NOT_CONNECTED", observed_at=DEPARTED),
        member("billing", "127.0.0.1@billing-3", "JOINED", 3, members_before=2, members_after=3),
        member("billing", "127.0.0.1@billing-2", "JOINED", 1, members_after=1),
    ]
    return {
        "stalled_windows": [
            scene_row(Incident.FROZEN_HEAD)
            | {"rule": "STALLED", "kind": "FROZEN_HEAD", "evidence": "stood still"}
        ],
        "duplicate_risk_windows": [
            scene_row(Incident.CONSUMER_KILL)
            | {"client_id": victim(), "basis": "DEPARTURE", "cause": "HAND_OVER"}
            | {"opened_at": DEPARTED, "evidence": "left the queue with 9 messages"},
            scene_row(Incident.RESET)
            | {"queue_id": 2, "basis": "OFFSET_FALL", "cause": "REWIND", "evidence": "it fell"},
        ],
        "rebalances": [row | {"seq": seq} for seq, row in enumerate(changes)],
        "dead_letters": [
            {"group": "billing", "origin_topic": "orders", "message_id": "AB12"}
            | {"reconsume_times": 1}
        ],
        "dq_results": [check("offsets grow", success=True)],
    }


def found(given: Rows, *, skipped: tuple[Incident, ...] = ()) -> set[Incident]:
    """The incidents that gold shows, when `skipped` were left out."""
    gold: dict[str, pl.DataFrame] = rows(**given)
    verdict = judge(make_plan(1, 120, skipped, LOOKS), gold, LOOKS)
    return {finding.incident for finding in verdict.findings if finding.found}


def without(table: str, **values: Any) -> Rows:
    """What was reported, but for the rows of a table with these values."""
    given = observed_rows()
    given[table] = [row for row in given[table] if any(row.get(k) != v for k, v in values.items())]
    return given


def test_every_incident_that_left_its_trace_is_found() -> None:
    assert found(observed_rows()) == set(Incident)


def test_an_empty_gold_finds_nothing() -> None:
    assert found({}) == set()


@pytest.mark.parametrize("left_out", Incident)
def test_the_trace_of_an_incident_that_was_left_out_is_a_finding(left_out: Incident) -> None:
    assert left_out in found(observed_rows(), skipped=(left_out,))


@pytest.mark.parametrize(
    ("incident", "table", "trace"),
    [
        (Incident.CONSUMER_KILL, "rebalances", {"kind": "LEFT"}),
        (Incident.RESET, "duplicate_risk_windows", {"basis": "OFFSET_FALL"}),
        (Incident.BROKER_KILL, "rebalances", {"generation": 1, "client_id": "127.0.0.1@billing-2"}),
        (Incident.JOIN, "rebalances", {"client_id": "127.0.0.1@billing-3"}),
        (Incident.POISON, "dead_letters", {}),
        (Incident.FROZEN_HEAD, "stalled_windows", {}),
    ],
)
def test_without_its_trace_an_incident_is_not_found_whether_it_was_played_or_not(
    incident: Incident, table: str, trace: dict[str, Any]
) -> None:
    given = without(table, **trace)
    assert found(given) == set(Incident) - {incident}
    assert incident not in found(given, skipped=(incident,))


@pytest.mark.parametrize(
    "other",
    [
        {"opened_at": NOON},
        {"client_id": "127.0.0.1@billing-1"},
        {"queue_id": 99},
        {"basis": "EXPOSURE"},
    ],
    ids=["at another moment", "of another client", "of another queue", "not of a departure"],
)
def test_a_killed_consumer_is_known_by_what_it_left_uncommitted_when_it_went(
    other: dict[str, Any],
) -> None:
    given = observed_rows()
    given["duplicate_risk_windows"][0] |= other
    assert found(given) == set(Incident) - {Incident.CONSUMER_KILL}


def test_members_that_hand_queues_over_at_the_start_are_no_killed_consumer() -> None:
    """The first member reads all queues until the second one comes."""
    given = without("rebalances", kind="LEFT")
    assert Incident.CONSUMER_KILL not in found(given, skipped=(Incident.CONSUMER_KILL,))


def test_a_fall_in_another_group_is_not_the_reset_that_was_played() -> None:
    given = observed_rows()
    given["duplicate_risk_windows"][1]["group"] = "billing"
    assert Incident.RESET not in found(given)
    assert Incident.RESET in found(given, skipped=(Incident.RESET,))
