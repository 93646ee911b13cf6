"""What was open of a queue ends with the life of its topic, and when its group leaves the topic."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipelines.marts.reported_story import second
from tests.pipelines.marts.test_judges_row_by_row import Story


def windows(story: Story) -> list[tuple[Any, ...]]:
    rows = story.gold().get("stalled_windows", [])
    return [(second(row["observed_at"]), row["state"], row["rule"]) for row in rows]


def test_a_rewind_of_an_earlier_life_of_a_topic_stays_not_open() -> None:
    story = Story()
    story.event("SNAPSHOT", seq_from=1)
    broker = story.at(2)
    broker.watermark(committed=90, max_offset=100)
    broker = story.at(12)
    broker.report(
        "consume_offsets",
        group="g",
        topic="t",
        queue_id=0,
        offset=40,
        previous_offset=90,
        path="OBSERVED",
        trigger="UNKNOWN",
        accepted=True,
        min_offset=0,
        max_offset=100,
    )
    broker.watermark(committed=40, max_offset=100)
    broker = story.at(32)
    assert [rule for _, _, rule in windows(story)] == ["REWOUND"]
    for kind in ("TOPIC_GONE", "TOPIC_MADE_AGAIN"):
        story.event(kind, topic="t")
    broker.watermark(committed=4, max_offset=4, committed_state="AT_END")
    for at in range(40, 60, 10):
        story.at(at)
    assert [(state, rule) for _, state, rule in windows(story)][-1] == ("CLOSED", "REWOUND")
    assert story.gold()["group_state"][-1]["state"] == "OK"


def left_behind(*, comes_back_at: float | None = None, kind: str = "TOPIC_LEFT") -> Story:
    """A queue of topic u goes on; one of t stands with 50 waiting; the group leaves t at 32 s."""
    story = Story()
    story.event("SNAPSHOT", seq_from=1)
    for at in range(2, 92, 10):
        broker = story.at(at)
        broker.watermark(
            1, topic="u", committed=100 + at, max_offset=100 + at, committed_state="AT_END"
        )
        if at == 2:
            broker.watermark(max_offset=130, pulled=90, last_pull_time=broker.now_us)
        if at == 32:
            story.event(kind, topic="t", group="g")
        if at == comes_back_at:
            broker.watermark(max_offset=140, pulled=140, committed=138)
    story.at(92)
    return story


@pytest.mark.parametrize("kind", ["TOPIC_LEFT", "OFFSETS_DELETED"])
def test_a_topic_that_a_group_has_left_is_no_lag_of_it_and_no_window_stays_open(kind: str) -> None:
    story = left_behind(kind=kind)
    assert [(state, rule) for _, state, rule in windows(story)] == [
        ("OPEN", "STALLED"),
        ("CLOSED", "STALLED"),
    ]
    gold = story.gold()
    before, after = gold["group_state"][0], gold["group_state"][-1]
    assert (before["lag_messages"], before["queues"]) == (50, 2)
    assert (after["state"], after["lag_messages"], after["queues"]) == ("OK", 0, 1)
    assert [(row["topic"], row["queue_id"]) for row in gold["ended_queues"]] == [("t", 0)]


def test_a_group_that_subscribes_again_is_behind_on_the_topic_again() -> None:
    gold = left_behind(comes_back_at=62).gold()
    assert (gold["group_state"][-1]["lag_messages"], gold["group_state"][-1]["queues"]) == (2, 2)
