"""Risks of double consumption, as an observer sees them: what it cannot see is not denied."""

from __future__ import annotations

import pytest

from tests.pipelines.marts.literal_facts import only
from tests.pipelines.marts.test_duplicate_risks_row_by_row import gone, risks, watermark


@pytest.mark.parametrize(
    ("emitter", "outcome", "again", "end"),
    [
        ("c/b/0", "PASSED", (0, None), " Nothing came again."),
        (
            "c/b/observer",
            "POSSIBLE",
            (None, "OBSERVED"),
            " Whether anything came again is unknown: an observer sees only what members hold.",
        ),
    ],
    ids=["our broker", "observed"],
)
def test_that_nothing_came_again_is_said_only_where_redeliveries_are_reported(
    emitter: str, outcome: str, again: tuple[int | None, str | None], end: str
) -> None:
    rows, _ = risks(
        rebalance_events=[gone(1, "a", "LEFT", emitter=emitter)],
        group_watermarks=[
            watermark(2, emitter=emitter, seq=2, pulled=95, committed=95, last_puller="b")
        ],
    )
    assert only(rows, "state", "outcome") == [("OPEN", "POSSIBLE"), ("CLOSED", outcome)]
    assert only(rows, "redelivered_messages", "redelivered_unknown_reason") == [again, again]
    assert rows[-1]["evidence"].endswith(end)


def test_what_an_observer_saw_come_again_is_the_least_that_did() -> None:
    watched = {"emitter": "c/b/observer"}
    again = {"at": 5, "seq": 6, "from_offset": 80, "to_offset": 84, **watched}
    fields = {"client_id": "b", "previous_client_id": "a", "broker_epoch_before": 1}
    rows, _ = risks(
        rebalance_events=[gone(1, "a", "EXPIRED", **watched)], redeliveries=[{**again, **fields}]
    )
    assert only(rows, "outcome", "redelivered_messages", "redelivered_unknown_reason") == [
        ("POSSIBLE", None, "OBSERVED"),
        ("CONFIRMED", 4, "OBSERVED"),
    ]
    assert " At least 4 repeated deliveries of [80, 84) went to b." in rows[-1]["evidence"]
