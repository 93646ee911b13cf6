"""What a group left unread in a topic that it no longer reads is no cause of its lag."""

from __future__ import annotations

import pytest

from tests.pipelines.marts.lagging_group import behind


@pytest.mark.parametrize("kind", ["TOPIC_LEFT", "OFFSETS_DELETED"])
def test_a_topic_that_a_group_has_left_is_out_of_its_causes(kind: str) -> None:
    story = behind()
    story.broker.watermark(0, topic="stays", committed=7, pulled=9, max_offset=9, members=1)
    story.broker.report("lifecycle", kind=kind, group="g", topic="t")
    for _ in range(90):
        story.now += 1
        story.broker.at(story.now)
        story.broker.watermark(0, topic="stays", committed=7, pulled=9, max_offset=9, members=1)
        story.broker.ship()
    last = max(story.cause_rows(), key=lambda row: row["observed_at"])
    assert (last["cause"], last["lag_messages"]) == ("NONE", 2)


def test_what_another_group_has_left_stays_in_the_causes_of_this_one() -> None:
    story = behind()
    story.broker.report("lifecycle", kind="TOPIC_LEFT", group="other", topic="t")
    story.run(90, sent=(20, 20), done=(5, 5))
    last = max(story.cause_rows(), key=lambda row: row["observed_at"])
    assert last["cause"] != "NONE"
    assert last["lag_messages"] > 1_000
