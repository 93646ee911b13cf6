"""Messages whose invisible time ran out crowd out new ones, and nothing of them has failed."""

from __future__ import annotations

from tests.pipelines.marts.lagging_group import behind


def test_messages_that_a_pop_group_gets_again_are_no_failures() -> None:
    for topic in ("%RETRY%g_t", "%RETRY%g+t"):
        story = behind()
        for _ in range(15):
            story.retry(10, topic)
            story.run(1, sent=(20, 20), done=(5, 5))
        causes = story.causes()
        assert "RETRIES" not in causes, topic
        row = causes["INVISIBLE_TIMES_RUN_OUT"]
        assert row["share_percent"] >= 30
        assert "came back unacknowledged" in row["evidence"]
        assert "fail" not in row["evidence"]


def test_failures_and_messages_that_came_back_unacknowledged_are_counted_apart() -> None:
    story = behind()
    for _ in range(15):
        story.retry(20, "%RETRY%g")
        story.retry(20, "%RETRY%g_t")
        story.run(1, sent=(20, 20), done=(5, 5))
    causes = story.causes()
    failed, came_back = causes["RETRIES"], causes["INVISIBLE_TIMES_RUN_OUT"]
    assert failed["measured"] == came_back["measured"]
    assert failed["share_percent"] <= 50, "a share of all that was consumed"
