"""A group on two queues of one broker, played second by second, and the causes of its lag."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pipelines.marts.declared import in_order
from pipelines.marts.lag_causes import MART as LAG_CAUSES
from tests.pipelines.gold_lake import SHORT
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze
from tests.pipelines.partition import run

STEPS = in_order([*JUDGES, LAG_CAUSES])
WHO = {"client_id": "c@1", "group": "g", "topic": "t"}
CALM = {
    "listeners": 20,
    "listeners_busy": 3,
    "listeners_queued": 0,
    "paused": False,
    "calls": 600,
    "consume_us_mean": 10_000,
    "consume_ms_p50": 9,
    "consume_ms_p99": 20,
    "consumed": 600,
    "failed": 0,
    "flow_count_ms": 0,
    "flow_bytes_ms": 0,
    "flow_span_ms": 0,
    "queues_held": 2,
    "topic_queues": 2,
    "group_members": 1,
}


class Story:
    """A group on two queues of one broker, played second by second."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.broker = Emitter(self.rows)
        self.broker.at(0)
        self.broker.boot()
        self.now = 0
        self.sent = {0: 0, 1: 0}
        self.done = {0: 0, 1: 0}
        self.retried: Counter[str] = Counter()
        self.members = 1

    def run(self, seconds: int, *, sent: tuple[int, int], done: tuple[int, int]) -> Story:
        """So many messages a second come to each queue, and are consumed of it."""
        for _ in range(seconds):
            self.now += 1
            self.broker.at(self.now)
            for queue, (came, went) in enumerate(zip(sent, done, strict=True)):
                self.sent[queue] += came
                self.done[queue] = min(self.done[queue] + went, self.sent[queue])
                self._watermark(queue, "t", self.sent[queue], self.done[queue])
            self.broker.ship()
        return self

    def _watermark(self, queue: int, topic: str, end: int, committed: int) -> None:
        self.broker.watermark(
            queue,
            topic=topic,
            committed=committed,
            persisted=committed,
            pulled=end,
            max_offset=end,
            members=self.members,
            committed_state="AT_END" if committed == end else "EXACT",
        )

    def retry(self, count: int, topic: str = "%RETRY%g") -> None:
        """So many messages came back, and were consumed again."""
        self.retried[topic] += count
        self._watermark(0, topic, self.retried[topic], self.retried[topic])

    def stats(self, client: str = "c@1", **values: Any) -> None:
        """What a member reports now."""
        self.broker.report("consume_stats", **{**WHO, **CALM, "client_id": client, **values})

    def cause_rows(self) -> list[dict[str, Any]]:
        """All rows of lag_causes."""
        return run(STEPS, bronze(self.rows), SHORT)["lag_causes"]

    def causes(self) -> dict[str, dict[str, Any]]:
        """The newest rows, by cause."""
        rows = self.cause_rows()
        last = max((row["observed_at"] for row in rows), default=None)
        return {row["cause"]: row for row in rows if row["observed_at"] == last}


def behind(**stats: Any) -> Story:
    """A group that kept up for 30 s and falls behind now, on both queues alike; its member reports
    these figures since then.
    """
    story = Story()
    story.stats()
    story.run(30, sent=(20, 20), done=(20, 20))
    story.run(10, sent=(20, 20), done=(5, 5))
    if stats:
        story.stats(**stats)
    return story.run(6, sent=(20, 20), done=(5, 5))
