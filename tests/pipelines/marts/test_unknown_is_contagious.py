"""With one queue of a group unknown its lag is unknown; what is known of the others is a bound."""

from __future__ import annotations

from typing import Any

from tests.pipelines.bronze_lake import SECOND
from tests.pipelines.marts.reported_story import Emitter
from tests.pipelines.marts.test_judges_row_by_row import Story

BEHIND = (
    *("lag_messages", "lag_at_least_messages", "time_lag_ms", "time_lag_at_least_ms"),
    *("queues", "queues_known", "unfinished_messages", "unknown_reason"),
)


def snapshot(story: Story, *marks: dict[str, Any], at: float = 2) -> Story:
    """A queue each of group g, reported in a snapshot."""
    broker = story.at(at)
    begin = broker.seq + 1
    for queue_id, values in enumerate(marks):
        broker.watermark(queue_id, **values)
    story.event("SNAPSHOT", seq_from=begin)
    return story


def behind(story: Story) -> list[tuple[Any, ...]]:
    """What the group was reported to be behind, each thing once."""
    rows = [tuple(row[name] for name in BEHIND) for row in story.gold()["group_state"]]
    return list(dict.fromkeys(rows))


def unread(broker: Emitter, **values: Any) -> dict[str, Any]:
    """A queue with a message of which no consume offset is known."""
    none = {"committed": None, "committed_state": "NONE", "pulled": None, "persisted": None}
    return {**none, "max_offset": 1, "last_pull_time": broker.now_us, **values}


READ: dict[str, Any] = {"committed": 0, "committed_state": "AT_END", "pulled": 0, "max_offset": 0}


def test_the_sum_of_some_queues_is_not_the_lag_of_the_group_but_a_lower_bound() -> None:
    story = Story()
    story = snapshot(story, READ, *(unread(story.broker) for _ in range(3)))
    story.at(11)
    assert behind(story) == [(None, 0, None, 0, 4, 1, None, "NO_OFFSET")]
    last = story.gold()["group_state"][-1]
    assert last["state"] == "UNKNOWN"
    assert last["reason"] == (
        "Group g has no offset on queue 3 of t on broker-a. It is an unknown number of messages "
        "behind, 0 on the 1 of 4 queues whose lag is known."
    )


def test_a_queue_without_an_offset_is_behind_from_where_the_group_began_to_read_it() -> None:
    story = Story()
    broker = story.broker
    at = {"store_time_at_committed": broker.now_us + SECOND}
    began = [
        unread(broker, began=0, **at),
        unread(broker, began=7, max_offset=7),
        unread(broker, began=3, min_offset=5, max_offset=9),
        unread(broker, min_offset=9, max_offset=9),
        unread(broker, began=0, message_model="BROADCASTING"),
    ]
    snapshot(story, *began)
    story.at(3)
    names = ("lag_messages", "time_lag_ms", "provenance", "unknown_reason", "began")
    assert [tuple(row[name] for name in names) for row in story.gold()["consumer_lag"]] == [
        (1, 1000, "EXACT", None, 0),
        (0, 0, "EXACT", None, 7),
        (4, None, "UNKNOWN", "STORE_TIME_NOT_TOLD", 3),
        (0, 0, "EXACT", None, None),
        (None, None, "UNKNOWN", "BROADCAST", 0),
    ]


def test_four_queues_of_which_three_were_pulled_from_0_and_never_committed_are_three_behind() -> (
    None
):
    story = Story()
    at = {"began": 0, "store_time_at_committed": story.broker.now_us + SECOND, "pulled": 1}
    snapshot(story, READ, *(unread(story.broker, **at) for _ in range(3)))
    story.at(11)
    assert behind(story) == [(3, 3, 9000, 9000, 4, 4, 3, None)]
    last = story.gold()["group_state"][-1]
    assert last["state"] == "OK"
    assert last["reason"] == "Group g is 3 messages behind on 3 of 4 queues."


def test_a_reason_says_on_how_many_queues_a_group_is_behind_and_not_how_many_are_known() -> None:
    story = snapshot(Story(), {"committed": 93}, *({"committed": 100} for _ in range(4)))
    story.at(11)
    said = "Group g is 7 messages behind on 1 of 5 queues."
    assert story.gold()["group_state"][-1]["reason"] == said


def test_a_group_whose_queues_are_all_known_is_behind_by_their_sum() -> None:
    story = snapshot(Story(), {"committed": 99}, {"committed": 93})
    story.at(11)
    assert behind(story) == [(8, 8, 9000, 9000, 2, 2, 8, None)]


def test_a_group_with_an_unknown_time_lag_has_waited_for_the_longest_that_is_known() -> None:
    """What was stored ahead of the clock has no age."""
    story = Story()
    ahead = story.broker.now_us + 60 * SECOND
    snapshot(story, {"committed": 93}, {"committed": 93, "store_time_at_committed": ahead})
    story.at(11)
    assert behind(story) == [(14, 14, None, 9000, 2, 2, 14, None)]


def test_queues_beyond_their_end_and_broadcasting_groups_say_why_they_are_unknown() -> None:
    beyond = snapshot(Story(), {"committed": 99}, {"committed": 120})
    broadcast = snapshot(Story(), {"message_model": "BROADCASTING"})
    found: list[tuple[Any, ...]] = []
    for story in (beyond, broadcast):
        story.at(11)
        found += dict.fromkeys((row[0], row[1], row[-1]) for row in behind(story))
    assert found == [(None, 1, "BEYOND_END"), (None, None, "BROADCAST")]


def test_a_group_of_which_nothing_is_known_has_no_bound_either() -> None:
    story = snapshot(Story(), {"committed": 99})
    story.at(12)
    story.event("SPOOL_LOSS")
    story.at(20)
    assert [row[:2] + row[-1:] for row in behind(story)] == [
        (1, 1, None),
        (None, None, "SPOOL_LOSS"),
    ]
