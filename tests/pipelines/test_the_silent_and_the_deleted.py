"""What readers say long after a broker fell silent, and after a group or topic was deleted.

The broker that died is unknown for as long as it is kept, not only within the look-back; what was
deleted is gone at once, and what is made again under its name is another life.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.tm import connect
from tests.pipelines.emitted_in_steps import Story, keeps_up, stands


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path / "lake")


def test_a_broker_that_died_is_unknown_a_quarter_of_an_hour_later_too(story: Story) -> None:
    """Broker b says nothing behind 12:01; b alone knows `only_b`, both know `both`."""
    a, b = story.broker("broker-a"), story.broker("broker-b")
    for at_s in story.steps(60, a, b):
        keeps_up(a, "both", 10 * at_s)
        keeps_up(b, "both", 10 * at_s)
        keeps_up(b, "only_b", 10 * at_s)
    story.judge()
    for until_s in (100, 840):
        for at_s in story.steps(until_s, a, step_s=20):
            keeps_up(a, "both", 10 * at_s)
            if at_s % 600 == 0:
                a.report("lifecycle", kind="SNAPSHOT", seq_from=a.seq)
        story.judge()
        assert story.states() == {
            ("both", "broker-a"): "OK",
            ("both", "broker-b"): "UNKNOWN",
            ("only_b", "broker-b"): "UNKNOWN",
        }, until_s
        lag = connect(story.lake).lag("both")
        assert "0 on the 1 of 2 queues whose lag is known" in lag.verdict


def test_a_broker_that_is_silent_for_longer_than_it_is_kept_is_not_listed(story: Story) -> None:
    """Eight days later another one is there, and only the table of emitters knows the first."""
    a = story.broker("broker-a")
    for at_s in story.steps(30, a):
        keeps_up(a, "both", at_s)
    story.judge()
    story.at_s = 8 * 24 * 3600
    b = story.broker("broker-b")
    for at_s in story.steps(story.at_s + 30, b):
        keeps_up(b, "both", at_s)
    story.judge()
    assert story.states() == {("both", "broker-b"): "OK"}
    assert "cluster-1/broker-a/0" in connect(story.lake).emitters().verdict


def test_what_is_deleted_is_gone_at_once_and_what_comes_after_is_another_life(
    story: Story,
) -> None:
    """Two groups and two topics are deleted; one of each is made again."""
    a = story.broker("broker-a")
    for at_s in story.steps(60, a):
        for group in ("deleted", "made_again"):
            stands(a, group, 100 + at_s)
        stands(a, "reads_u", 100 + at_s, topic="u")
        stands(a, "reads_v", 100 + at_s, topic="v")
        stands(a, "reads_both", 100 + at_s, topic="u")
        keeps_up(a, "reads_both", 90)
    story.judge()
    assert set(story.states().values()) == {"STOPPED"}

    a.at(62)
    for group in ("deleted", "made_again"):
        a.report("lifecycle", kind="GROUP_GONE", group=group)
    for topic in ("u", "v"):
        a.report("lifecycle", kind="TOPIC_GONE", topic=topic)
    a.ship()
    for at_s in story.steps(85, a):
        keeps_up(a, "made_again", at_s)
        keeps_up(a, "reads_v", at_s, topic="v")
        keeps_up(a, "reads_both", 90)
    story.judge()
    there = {("made_again", "broker-a"), ("reads_v", "broker-a"), ("reads_both", "broker-a")}
    assert story.states() == dict.fromkeys(there, "OK")
    assert connect(story.lake).groups().df["lag_messages"].tolist() == [0, 0, 0]
    lag = story.reading().newest("consumer_lag").select("group", "topic").rows()
    assert sorted(lag) == [("made_again", "t"), ("reads_both", "t"), ("reads_v", "v")]


def test_what_a_complete_snapshot_leaves_out_is_gone(story: Story) -> None:
    a = story.broker("broker-a")
    for at_s in story.steps(60, a):
        keeps_up(a, "stays", at_s)
        stands(a, "left_out", 100 + at_s)
    story.judge()
    assert ("left_out", "broker-a") in story.states()
    for at_s in story.steps(65, a):
        first = a.seq + 1
        keeps_up(a, "stays", at_s)
        a.report("lifecycle", kind="SNAPSHOT", seq_from=first)
    for at_s in story.steps(80, a):
        keeps_up(a, "stays", at_s)
    story.judge()
    assert story.states() == {("stays", "broker-a"): "OK"}
    ended = story.reading().rows("ended_queues").select("group", "topic", "queue_id").rows()
    assert ended == [("left_out", "t", 0)]
