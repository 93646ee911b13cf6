"""What readers say long after a broker fell silent, and after a group or topic was deleted.

The broker that died is unknown for as long as it is kept, not only within the look-back; what was
deleted is gone at once, and what is made again under its name is another life.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipelines.followed import Followed
from pipelines.lake import Lake
from pipelines.moment import last_complete
from pipelines.reading import OpenTables, Reading
from pipelines.settings import Evaluation
from pipelines.tm import connect
from tests.pipelines.bronze_lake import SECOND, START_US, BronzeWriter
from tests.pipelines.in_process import driver_of, run_to_the_end

Facts = dict[str, Any]


@dataclass
class Story:
    """Brokers of one cluster, told in steps of so many seconds."""

    lake: Path
    followed: Followed = field(default_factory=Followed)
    at_s: int = 0

    def broker(self, name: str) -> BronzeWriter:
        """One that has booted now and told its snapshot."""
        writer = BronzeWriter(self.lake, broker=name)
        writer.at(self.at_s)
        writer.report("lifecycle", kind="BOOT", clean=False)
        writer.report("lifecycle", kind="SNAPSHOT", seq_from=1)
        return writer

    def steps(self, until_s: int, *brokers: BronzeWriter, step_s: int = 5) -> Iterator[int]:
        """Go on; what is reported in a step is shipped at its end."""
        while self.at_s < until_s:
            self.at_s += step_s
            for broker in brokers:
                broker.at(self.at_s)
            yield self.at_s
            for broker in brokers:
                broker.ship()

    def judge(self) -> None:
        """Compute what is new; page and reader look as they do between two cycles."""
        run_to_the_end(driver_of(self.lake, evaluation=Evaluation()))
        reading = self.reading()
        for table in ("group_state", "consumer_lag"):
            followed, anew = self.followed.newest(table, reading), reading.newest(table)
            assert followed.sort(followed.columns).equals(anew.sort(anew.columns)), table

    def reading(self) -> Reading:
        """The lake at its last cycle."""
        lake = Lake.at(str(self.lake))
        moment = last_complete(lake)
        assert moment is not None
        return Reading(OpenTables(lake), moment)

    def states(self) -> dict[tuple[str, str], str]:
        """What the reader is shown: state by group and broker."""
        rows = connect(self.lake).groups().df.to_dict("records")
        return {(row["group"], row["broker"]): row["state"] for row in rows}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path / "lake")


def tell(broker: BronzeWriter, group: str, *, topic: str = "t", **values: Any) -> None:
    """A group's marks on a queue."""
    marks: Facts = {"min_offset": 0, "processed": None, "persisted": 0, "reports": 1, "members": 1}
    marks |= {"message_model": "CLUSTERING", "last_puller": f"{group}-1", "queue_id": 0}
    broker.report("group_watermarks", group=group, topic=topic, **marks, **values)


def keeps_up(broker: BronzeWriter, group: str, offset: int, *, topic: str = "t") -> None:
    now_us = broker.now_us
    marks = {"committed": offset, "pulled": offset, "max_offset": offset}
    times = {"last_pull_time": now_us, "last_commit_time": now_us}
    ends = {"committed_state": "AT_END", "store_time_at_committed": None}
    tell(broker, group, topic=topic, **marks, **times, **ends)


def stands(broker: BronzeWriter, group: str, end: int, *, topic: str = "t") -> None:
    marks = {"committed": 5, "pulled": 5, "max_offset": end, "committed_state": "EXACT"}
    times = dict.fromkeys(("last_pull_time", "last_commit_time"), START_US)
    tell(broker, group, topic=topic, **marks, **times, store_time_at_committed=START_US + SECOND)


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
        assert "on 1 of 2 queues; the lag of 1 queue is unknown" in lag.verdict


def test_a_broker_that_is_silent_for_longer_than_it_is_kept_is_not_listed(story: Story) -> None:
    """Eight days later another one is there, and only the table of emitters tells of the first."""
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
