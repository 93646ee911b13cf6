"""Which queues of groups have ended, row by row: what was reported, the rows that come of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipelines.bronze_lake import START_US
from tests.pipelines.marts.reported_story import second
from tests.pipelines.marts.test_judges_row_by_row import Story

PLACES = (("g", "t", 0), ("g", "t", 1), ("g", "u", 0), ("h", "t", 0))
"""(group, topic, queue_id) of what is there."""
Place = tuple[str, str, int]


def report(story: Story, *places: Place) -> dict[Place, int]:
    """A row of each now; their seqs."""
    return {
        (group, topic, queue_id): story.broker.watermark(queue_id, group=group, topic=topic)
        for group, topic, queue_id in places
    }


def begun() -> tuple[Story, dict[Place, int]]:
    """A broker that has reported all that is there, and its last report of each by second 5."""
    story = Story()
    story.at(1)
    report(story, *PLACES)
    story.event("SNAPSHOT", seq_from=1)
    story.at(5)
    return story, report(story, *PLACES)


def ended(story: Story) -> list[dict[str, Any]]:
    rows = story.gold().get("ended_queues", [])
    return sorted(rows, key=lambda row: (row["seq"], row["group"], row["topic"], row["queue_id"]))


def places(rows: list[dict[str, Any]]) -> dict[Place, int]:
    """Place and last row of each life that has ended."""
    found = {(row["group"], row["topic"], row["queue_id"]): row["seq"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_row_has_the_queue_the_tick_behind_its_end_and_the_last_row_of_its_life() -> None:
    story, reported = begun()
    story.at(7)
    story.event("GROUP_GONE", group="h")
    story.at(20)
    [row] = ended(story)
    assert second(row.pop("observed_at")) == 8
    assert row == {
        "cluster": story.broker.cluster,
        "broker": story.broker.broker,
        "group": "h",
        "topic": "t",
        "queue_id": 0,
        "emitter": story.broker.emitter,
        "seq": reported["h", "t", 0],
        "observed_date": row["observed_date"],
    }
    assert row["observed_date"].toordinal() == 719_163 + START_US // 86_400_000_000


@pytest.mark.parametrize(
    ("ending", "gone"),
    [
        ({"kind": "GROUP_GONE", "group": "g"}, {("g", "t", 0), ("g", "t", 1), ("g", "u", 0)}),
        ({"kind": "TOPIC_GONE", "topic": "t"}, {("g", "t", 0), ("g", "t", 1), ("h", "t", 0)}),
        ({"kind": "SNAPSHOT", "seq_from": 10**9}, set(PLACES)),
    ],
    ids=["a group", "a topic", "a snapshot that has nothing"],
)
def test_an_end_takes_every_queue_that_it_is_about_and_no_other(
    ending: dict[str, Any], gone: set[Place]
) -> None:
    story, reported = begun()
    story.at(8)
    story.event(**ending)
    story.at(20)
    assert places(ended(story)) == {place: reported[place] for place in gone}


def test_a_snapshot_ends_what_it_leaves_out_alone() -> None:
    story, reported = begun()
    story.at(8)
    kept = report(story, ("g", "t", 1), ("h", "t", 0))
    story.event("SNAPSHOT", seq_from=min(kept.values()))
    story.at(20)
    assert places(ended(story)) == {
        place: reported[place] for place in [("g", "t", 0), ("g", "u", 0)]
    }


def test_each_life_under_one_name_ends_once_and_what_is_reported_behind_is_another_one() -> None:
    story, reported = begun()
    story.at(8)
    story.event("GROUP_GONE", group="h")
    story.at(12)
    again = report(story, ("h", "t", 0))
    story.at(20)
    rows = ended(story)
    assert [row["seq"] for row in rows] == [reported["h", "t", 0]]
    assert rows[0]["seq"] < again["h", "t", 0], "the row of the second life is not ended by it"
    story.event("GROUP_GONE", group="h")
    story.at(30)
    assert [row["seq"] for row in ended(story)] == [reported["h", "t", 0], again["h", "t", 0]]


def test_a_broker_that_falls_silent_or_loses_rows_ends_nothing() -> None:
    story, _ = begun()
    story.event("SPOOL_LOSS")
    story.at(90)
    assert ended(story) == []


def test_the_end_of_what_was_never_there_is_no_row() -> None:
    story, _ = begun()
    story.event("GROUP_GONE", group="nobody")
    story.event("TOPIC_GONE", topic="nothing")
    story.at(20)
    assert ended(story) == []
