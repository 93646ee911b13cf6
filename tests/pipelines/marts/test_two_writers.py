"""Two writers that take turns on a queue are a finding, never an explained hand-over: only the
queue's own hand-over explains a queue's fall.
"""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.base.settings import Evaluation
from pipelines.marts.computing import beginning
from pipelines.marts.duplicate_risk_windows import MART as RISKS
from pipelines.marts.mart import Given
from pipelines.marts.offset_violations import MART
from pipelines.staging.facts import no_facts
from tests.pipelines.marts.literal_facts import Row, computed, facts, only


def report(seq: int, client: str | None, offset: int, previous: int | None, **values: Any) -> Row:
    """An accepted report in second `seq`."""
    known = {"path": "COMMIT_RPC", "trigger": "TIMER", "accepted": True}
    bounds = {"min_offset": 0, "max_offset": 1000, "offset": offset, "previous_offset": previous}
    return {"at": seq, "seq": seq, "client_id": client, **known, **bounds, **values}


def moved(seq: int, kind: str, client: str, *, queue_id: int = 0, **values: Any) -> Row:
    """A reader lost or gained a queue in second `seq`."""
    queue = {"topic": "t", "queue_id": queue_id, "committed": 0, "pulled": 0}
    known = {"kind": kind, "client_id": client, "inferred": True, "generation": 3}
    return {"at": seq, "seq": seq, "queues": [queue], **known, **values}


def causes(reports: list[Row], events: list[Row] | None = None) -> list[tuple[Any, ...]]:
    """(seq, cause, explained, client, other) of all violations; the same with a cut before each
    row.
    """
    events = events or []
    given = {
        "consume_offsets": facts("consume_offsets", *reports),
        "rebalance_events": facts("rebalance_events", *events),
    }
    rows, _ = computed(MART, given)
    state, parts = None, []
    for seq in sorted({row["seq"] for row in (*reports, *events)}):
        cut = {
            "consume_offsets": facts(
                "consume_offsets", *(row for row in reports if row["seq"] == seq)
            ),
            "rebalance_events": facts(
                "rebalance_events", *(row for row in events if row["seq"] == seq)
            ),
        }
        made, state = computed(MART, cut, state)
        parts += made
    assert parts == rows
    return only(rows, "seq", "cause", "explained", "client_id", "other_client_id")


def test_two_clients_that_report_in_turn_are_a_finding_with_both_names() -> None:
    reports = [
        report(1, "a", 100, None),
        report(2, "b", 50, 100),
        report(3, "a", 110, 50),
        report(4, "b", 60, 110),
    ]
    assert causes(reports) == [
        (2, "TWO_WRITERS", False, "b", "a"),
        (4, "TWO_WRITERS", False, "b", "a"),
    ]


def test_pulls_that_change_back_within_an_unchanged_group_are_no_hand_over() -> None:
    """The first changes may be a rebalance of which one member hears later, and explain; those
    that go on are two readers.
    """
    events = [
        moved(2, "REVOKED", "a"),
        moved(3, "ASSIGNED", "b"),
        moved(5, "REVOKED", "b"),
        moved(6, "ASSIGNED", "a"),
        moved(23, "REVOKED", "a"),
        moved(24, "ASSIGNED", "b"),
    ]
    reports = [
        report(1, "a", 100, None),
        report(4, "b", 50, 100),
        report(7, "a", 40, 50),
        report(25, "b", 30, 40),
    ]
    assert causes(reports, events) == [
        (4, "HAND_OVER", True, "b", "a"),
        (7, "HAND_OVER", True, "a", "b"),
        (25, "TWO_WRITERS", False, "b", "a"),
    ]


def test_only_the_queue_s_own_hand_over_explains_its_fall() -> None:
    reports = [report(1, "a", 100, None), report(4, "b", 50, 100)]
    own = [moved(2, "REVOKED", "a"), moved(3, "ASSIGNED", "b")]
    of_another = [moved(2, "REVOKED", "a", queue_id=1), moved(3, "ASSIGNED", "b", queue_id=1)]
    assert causes(reports, own) == [(4, "HAND_OVER", True, "b", "a")]
    assert causes(reports, of_another) == [(4, "TWO_WRITERS", False, "b", "a")]


def test_a_hand_over_does_not_explain_a_third_client() -> None:
    events = [moved(2, "REVOKED", "a"), moved(3, "ASSIGNED", "b")]
    reports = [report(1, "a", 100, None), report(4, "ghost", 50, 100)]
    assert causes(reports, events) == [(4, "TWO_WRITERS", False, "ghost", "a")]


@pytest.mark.parametrize("first", ["REVOKED", "ASSIGNED"])
def test_loss_and_gain_of_a_hand_over_may_be_reported_in_either_order(first: str) -> None:
    loss, gain = (2, 3) if first == "REVOKED" else (3, 2)
    events = [moved(loss, "REVOKED", "a"), moved(gain, "ASSIGNED", "b")]
    events.sort(key=lambda event: event["at"])
    reports = [
        report(1, "a", 100, None),
        report(4, "b", 120, 100),
        report(5, "a", 110, 120),
        report(50, "b", 105, 110),
    ]
    assert causes(reports, events) == [
        (5, "HAND_OVER", True, "a", "b"),
        (50, "HAND_OVER", True, "b", "a"),
    ]


def test_a_client_that_says_itself_that_it_hands_over_is_believed() -> None:
    reports = [report(1, "b", 100, None), report(2, "a", 50, 100, trigger="HAND_OVER")]
    assert causes(reports) == [(2, "HAND_OVER", True, "a", "b")]


def test_two_processes_under_one_client_id_are_a_finding() -> None:
    """One writes 100, 110, 120, the other 50, 60, 70."""
    offsets = [100, 50, 110, 60, 120, 70]
    reports = [
        report(number, "twin", offset, offsets[number - 2] if number > 1 else None)
        for number, offset in enumerate(offsets, start=1)
    ]
    assert causes(reports) == [
        (2, "UNEXPLAINED", False, "twin", "twin"),
        (4, "TWO_WRITERS", False, "twin", "twin"),
        (6, "TWO_WRITERS", False, "twin", "twin"),
    ]


def test_a_client_that_goes_back_twice_to_the_same_place_is_one_writer() -> None:
    reports = [
        report(1, "a", 100, None),
        report(2, "a", 50, 100),
        report(9, "a", 130, 50),
        report(10, "a", 50, 130),
    ]
    assert [cause for _, cause, *_ in causes(reports)] == ["UNEXPLAINED", "UNEXPLAINED"]


def test_a_writer_of_long_ago_takes_no_turn() -> None:
    reports = [report(1, "a", 100, None), report(90, "b", 50, 100)]
    assert causes(reports) == [(90, "UNEXPLAINED", False, "b", None)]


def test_what_two_writers_take_back_is_at_risk_of_coming_again() -> None:
    given = {
        "consume_offsets": facts(
            "consume_offsets", report(1, "a", 100, None), report(2, "b", 50, 100)
        ),
        "rebalance_events": no_facts("rebalance_events"),
        "redeliveries": no_facts("redeliveries"),
        "lifecycle": no_facts("lifecycle"),
    }
    violations = MART.compute(Given(given, beginning(MART), Evaluation())).rows
    risks, _ = computed(RISKS, {"offset_violations": violations})
    assert only(risks, "cause", "from_offset", "to_offset") == [("REWIND", 50, 100)]
