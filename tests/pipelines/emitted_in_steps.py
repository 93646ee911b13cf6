"""A cluster that emits its facts step by step, and gold that follows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.base.settings import Evaluation
from pipelines.lake.lake import Lake
from pipelines.reading.incremental import Followed
from pipelines.reading.moment import last_complete
from pipelines.reading.reading import OpenTables, Reading
from pipelines.tm import connect
from tests.pipelines.bronze_lake import SECOND, START_US, BronzeWriter
from tests.pipelines.in_process import driver_of, run_to_the_end

Facts = dict[str, Any]


@dataclass
class Story:
    """Brokers of one cluster, played in steps of so many seconds."""

    lake: Path
    followed: Followed = field(default_factory=Followed)
    at_s: int = 0

    def broker(self, name: str) -> BronzeWriter:
        """One that has booted now and reported its snapshot."""
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
        run_to_the_end(driver_of(self.lake, evaluation=Evaluation(), buckets=1))
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


def report_marks(broker: BronzeWriter, group: str, *, topic: str = "t", **values: Any) -> None:
    """A group's marks on a queue."""
    marks: Facts = {"min_offset": 0, "processed": None, "persisted": 0, "reports": 1, "members": 1}
    marks |= {"message_model": "CLUSTERING", "last_puller": f"{group}-1", "queue_id": 0}
    broker.report("group_watermarks", group=group, topic=topic, **marks, **values)


def keeps_up(broker: BronzeWriter, group: str, offset: int, *, topic: str = "t") -> None:
    now_us = broker.now_us
    marks = {"committed": offset, "pulled": offset, "max_offset": offset}
    times = {"last_pull_time": now_us, "last_commit_time": now_us}
    ends = {"committed_state": "AT_END", "store_time_at_committed": None}
    report_marks(broker, group, topic=topic, **marks, **times, **ends)


def stands(broker: BronzeWriter, group: str, end: int, *, topic: str = "t") -> None:
    marks = {"committed": 5, "pulled": 5, "max_offset": end, "committed_state": "EXACT"}
    times = dict.fromkeys(("last_pull_time", "last_commit_time"), START_US)
    report_marks(
        broker, group, topic=topic, **marks, **times, store_time_at_committed=START_US + SECOND
    )
