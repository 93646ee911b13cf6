"""Windows of duplicate risk in words: what was predicted, and what came again beyond it."""

from __future__ import annotations

import pytest

from pipelines.sentences.duplicates import evidence

AGAIN_BY_C2 = "55 repeated deliveries of [100, 155) went to c2"


@pytest.mark.parametrize(
    ("redelivered_to", "ending"),
    [
        (140, "40 repeated deliveries of [100, 140) went to c2"),
        (155, f"{AGAIN_BY_C2}. Those from 140 on had been pulled after the event"),
    ],
)
def test_a_risk_says_why_more_came_again_than_was_predicted(
    redelivered_to: int, ending: str
) -> None:
    window = {
        "broker": "b",
        "group": "g",
        "topic": "t",
        "queue_id": 0,
        "opened_us": 43_200_000_000,
        "basis": "RESTART",
        "cause": "BROKER_CRASH",
        "client_id": "c1",
        "next_client_id": "c2",
        "from_offset": 100,
        "to_offset": 140,
        "message_id": "m",
        "state": "OPEN",
        "redelivered_from": 100,
        "redelivered_to": redelivered_to,
        "told_by": "AGAIN",
        "redelivered": redelivered_to - 100,
        "emitter": "c/b/0",
    }
    assert evidence(window) == (
        "Group g risks a second delivery of 40 messages of queue 0 of t on b, [100, 140), since "
        "12:00:00 UTC: the broker died when the group was at 140, and readers are given 100. "
        f"{ending}. See whether its listeners take a message twice without harm."
    )
