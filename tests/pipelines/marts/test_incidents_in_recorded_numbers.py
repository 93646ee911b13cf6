"""Incidents bound to versions or outages, from the numbers that were recorded of them, and the same
with other numbers.
"""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.marts.duplicate_risk_windows import MART as RISKS
from pipelines.marts.offset_violations import MART as VIOLATIONS
from tests.pipelines.marts.literal_facts import NOON, SECOND, Row, computed, facts, only

NEXT_LIFE = NOON + 300 * SECOND


def report(seq: int, client: str | None, offset: int, previous: int, end: int) -> Row:
    """An accepted report in second `seq`, of a queue that ends at `end`."""
    known = {"path": "COMMIT_RPC", "trigger": "TIMER", "accepted": True, "min_offset": 0}
    fields = {"offset": offset, "previous_offset": previous, "max_offset": end}
    return {"at": seq, "seq": seq, "client_id": client, **known, **fields}


def violations(*reports: Row) -> list[Row]:
    return computed(VIOLATIONS, {"consume_offsets": facts("consume_offsets", *reports)})[0]


@pytest.mark.parametrize(
    ("ghost", "end", "owner"), [(2_611_518, 2_678_900, 2_678_704), (17, 90, 52)]
)
def test_a_dead_consumer_that_commits_for_ever_risks_what_lies_between(
    ghost: int, end: int, owner: int
) -> None:
    """The owner at one offset, a dead consumer of the same process at another, in turn."""
    rows = violations(
        report(1, "owner", owner - 1, ghost, end),
        report(2, "dead", ghost, owner - 1, end),
        report(3, "owner", owner, ghost, end),
        report(4, "dead", ghost, owner, end),
    )
    assert (
        only(rows, "cause", "client_id", "other_client_id")
        == [("TWO_WRITERS", "dead", "owner")] * 2
    )
    assert rows[-1]["delta"] == owner - ghost  # 67 186 in the numbers recorded.


@pytest.mark.parametrize(("asked", "end"), [(30_266, 30_265), (15_619, 7_358), (101_254, 7_157)])
def test_an_offset_beyond_the_end_and_the_fall_to_0_after_it_are_two_findings(
    asked: int, end: int
) -> None:
    """After a fail-over to a shorter log; brokers up to 4.9.3 answer 0 then."""
    rows = violations(report(1, "c", asked, asked - 9, end), report(2, "c", 0, asked, end))
    assert only(rows, "law", "cause", "delta") == [
        ("AT_MOST_MAX", "UNEXPLAINED", asked - end),
        ("MONOTONIC", "UNEXPLAINED", asked),
    ]


@pytest.mark.parametrize(("rate", "outage_s"), [(40, 300), (7, 43)])
def test_a_master_with_an_old_table_takes_all_queues_of_all_groups_back(
    rate: int, outage_s: int
) -> None:
    """Two groups, four queues each; during the outage offsets were stored elsewhere."""
    again = rate * outage_s
    place = [(group, queue) for group in ("g1", "g2") for queue in range(4)]
    rows, _ = computed(
        RISKS,
        {
            "redeliveries": facts(
                "redeliveries",
                *(
                    {
                        "at": 301, "seq": number, "group": group, "queue_id": queue,
                        "from_offset": 1000, "to_offset": 1000 + again, "client_id": "c",
                        "previous_client_id": "c", "broker_epoch": NEXT_LIFE,
                        "broker_epoch_before": NOON, "delivered_count": again,
                    }
                    for number, (group, queue) in enumerate(place, 1)
                ),
            )
        },
    )  # fmt: skip
    assert sorted(only(rows, "group", "queue_id", "redelivered_messages")) == [
        (group, queue, again) for group, queue in place
    ]
    assert {row["outcome"] for row in rows} == {"CONFIRMED"}


@pytest.mark.parametrize("delivered", [7, 3])
def test_a_transaction_that_was_answered_often_is_one_message_with_many_copies(
    delivered: int,
) -> None:
    """A broker of version 5.3.3 delivered one committed message seven times; its copies bear one
    transaction id, which is the UNIQ_KEY of the half message.
    """
    key = "7F00000100002A139A55000000000000"
    copies: list[dict[str, Any]] = [
        {"at": number, "seq": number, "step": "SENT_AGAIN", "message_id": key,
         "origin_topic": "t", "origin_queue_id": 0, "origin_offset": 100 + number,
         "reconsume_times": 0}
        for number in range(1, delivered)
    ]  # fmt: skip
    rows, _ = computed(RISKS, {"retry_dlq_flow": facts("retry_dlq_flow", *copies)})
    assert {row["message_id"] for row in rows} == {key}
    assert only(rows, "cause", "outcome", "redelivered_messages") == [
        ("SEND_RETRY", "CONFIRMED", 1)
    ] * (delivered - 1)
