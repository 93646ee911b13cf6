"""A small cluster played second by second: queues that fill, clients that pull, finish and commit.

It keeps the books a broker and its clients would keep (max, pulled, committed, persisted offsets)
and reports what they would report. Incidents are methods; everything else goes on by itself.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.pipelines.bronze_lake import SECOND, START_US, BronzeWriter

COMMIT_PERIOD_S = 5
PERSIST_PERIOD_S = 5
REPORT_PERIOD_S = 30
LISTENERS = 20


@dataclass
class Queue:
    """One queue as one group sees it."""

    group: str
    topic: str
    queue_id: int
    rate: int
    owner: str | None = None
    max_offset: int = 0
    pulled: int | None = None
    committed: int | None = None
    persisted: int | None = None
    finished: int = 0
    frozen_at: int | None = None
    """A listener holds this offset and never returns."""
    frozen_us: int | None = None
    """Since when."""
    is_pulled: bool = True
    is_forgotten: bool = False
    """Not even the client asks for it any more."""
    last_puller: str | None = None
    last_pull_us: int | None = None
    last_commit_us: int | None = None
    reports: int = 0
    reported: tuple[object, ...] = ()
    message_model: str = "CLUSTERING"

    @property
    def safe(self) -> int:
        """The offset a client may commit: nothing unfinished below it."""
        return self.finished if self.frozen_at is None else min(self.finished, self.frozen_at)


class ClusterStory:
    """Tells the story; `second` is now, in seconds after the start."""

    def __init__(
        self,
        lake: Path,
        *,
        seed: int = 1,
        cluster: str = "cluster-1",
        broker: str = "broker-a",
    ) -> None:
        self.writer = BronzeWriter(lake, cluster=cluster, broker=broker)
        self.random = random.Random(seed)
        self.second = 0
        self.members: dict[str, list[str]] = {}
        self.generation = 0
        self.queues: list[Queue] = []
        self.writer.at(0)
        self.writer.report("lifecycle", kind="BOOT", clean=True)

    def group(self, name: str, clients: list[str], *, queues: int = 2, rate: int = 10) -> None:
        """A group on a topic of its own, its queues dealt out to its clients in turn."""
        for client in clients:
            self._join(name, client)
        for queue_id in range(queues):
            queue = Queue(name, f"topic-{name}", queue_id, rate)
            self.queues.append(queue)
            self.assign(queue, clients[queue_id % len(clients)])

    def queue(self, group: str, queue_id: int) -> Queue:
        """One of the queues."""
        return next(q for q in self.queues if (q.group, q.queue_id) == (group, queue_id))

    def run(self, seconds: int, *, ship_every: int = 4) -> None:
        """Let time pass."""
        for _ in range(seconds):
            self.second += 1
            self.writer.at(self.second)
            for queue in self.queues:
                self._live(queue)
            for queue in self.queues:
                self._report_queue(queue, always=self.second % REPORT_PERIOD_S == 0)
            self._sample()
            self._flush()
            if self.second % ship_every == 0:
                self.writer.ship()

    def assign(self, queue: Queue, client: str) -> None:
        """`client` pulls the queue for the first time; its last reader is reported as revoked."""
        queues = [_owned(queue)]
        if queue.owner is not None:
            self._rebalance(queue.group, queue.owner, "REVOKED", queues=queues, inferred=True)
        queue.owner = client
        self._rebalance(queue.group, client, "ASSIGNED", queues=queues, inferred=True)
        begin = queue.committed or 0
        mark = queue.pulled or 0
        if begin < mark:
            self._redeliver(queue, begin, mark, client)
        queue.finished = begin

    def lose(self, group: str, client: str, *, kind: str = "LEFT", reason: str) -> list[Queue]:
        """`client` goes away; returns the queues it read."""
        owned = [q for q in self.queues if q.group == group and q.owner == client]
        before = list(self.members[group])
        self.members[group].remove(client)
        queues = [_owned(q) for q in owned]
        self._report_members(group, client, kind, before=before, queues=queues, reason=reason)
        for queue in owned:
            queue.owner = None
            queue.frozen_at = None
            self._report_queue(queue, always=True)
        return owned

    def join(self, group: str, client: str) -> None:
        """One more member."""
        self._join(group, client)

    def freeze(self, queue: Queue) -> int:
        """The listener of the next message never returns; that message's offset."""
        queue.frozen_at = queue.finished + 3
        queue.frozen_us = self.writer.now_us
        return queue.frozen_at

    def crash_broker(self, *, down_s: int) -> None:
        """SIGKILL: memory is lost, the offsets file is as old as its last persist."""
        self._boot(down_s, clean=False)
        for queue in self.queues:
            queue.committed = queue.persisted

    def restart_broker(self, *, down_s: int) -> None:
        """A stop that writes what memory knows, and the boot after it."""
        for queue in self.queues:
            queue.persisted = queue.committed
        self._boot(down_s, clean=True)

    def commit(self, queue: Queue, offset: int, *, path: str, client: str | None) -> None:
        """An offset report that is accepted."""
        previous = queue.committed
        queue.committed = offset
        queue.last_commit_us = self.writer.now_us
        queue.reports += 1
        if previous == offset:
            return
        self.writer.report(
            "consume_offsets",
            group=queue.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=offset,
            previous_offset=previous,
            path=path,
            trigger="TIMER",
            client_id=client,
            accepted=True,
            min_offset=0,
            max_offset=queue.max_offset,
        )

    def fail(self, queue: Queue, *, message_id: str, times: int) -> None:
        """A message fails `times` times, two seconds apart, and goes to the dead letters."""
        place = {
            "message_id": message_id,
            "origin_topic": queue.topic,
            "origin_queue_id": queue.queue_id,
            "origin_offset": queue.finished,
            "group": queue.group,
        }
        for tried in range(1, times + 1):
            fields = {**place, "reconsume_times": tried}
            self.writer.report("retry_dlq_flow", **fields, step="SENT_BACK")
            self.writer.report("retry_dlq_flow", **fields, step="SCHEDULED", delay_ms=2_000)
            self.run(2)
            self.writer.report("retry_dlq_flow", **fields, step="DELIVERED", delay_ms=2_000)
        self.writer.report(
            "retry_dlq_flow", **place, reconsume_times=times, step="DEAD_LETTERED", reason="tries"
        )

    def pop(self, queue: Queue, *, message_id: str, out: int) -> None:
        """The group reads the queue by POP: so many are handed out, and one comes back in vain."""
        self.writer.report(
            "pop_watermarks",
            group=queue.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            popped=queue.max_offset,
            max_offset=queue.max_offset,
            unacknowledged=out,
            unacknowledged_ranges=[
                {"from_offset": queue.max_offset - out, "to_offset": queue.max_offset}
            ],
            handed_out_since=self.writer.now_us - 5 * SECOND,
            invisible_ms=15_000,
            acknowledged=0,
            expired=1,
        )
        self.writer.report(
            "retry_dlq_flow",
            message_id=message_id,
            origin_topic=queue.topic,
            origin_queue_id=queue.queue_id,
            origin_offset=1,
            group=queue.group,
            reconsume_times=1,
            step="INVISIBLE_TIME_EXPIRED",
        )

    def send_again(self, queue: Queue, *, message_id: str) -> int:
        """The group is handed the newest message, which is a copy of an earlier one; its offset."""
        offset = queue.max_offset - 1
        self.writer.report(
            "retry_dlq_flow",
            message_id=message_id,
            origin_topic=queue.topic,
            origin_queue_id=queue.queue_id,
            origin_offset=offset,
            group=queue.group,
            reconsume_times=0,
            step="SENT_AGAIN",
        )
        return offset

    def reuse(self, queue: Queue, *, before: str | None, now: str | None) -> None:
        """The log has lost the newest messages of the queue, and others have their offsets."""
        self.writer.report(
            "reused_offsets",
            group=queue.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=queue.max_offset - 1,
            queue_end=queue.max_offset - 5,
            message_id_before=before,
            message_id=now,
            client_id=queue.last_puller,
        )

    def delete_unread(self, queue: Queue, count: int) -> None:
        """Retention takes messages that the group has not read."""
        begin = queue.committed or 0
        self.writer.report(
            "unread_deletions",
            group=queue.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            from_offset=begin,
            to_offset=begin + count,
            unread=count,
        )

    def delete_topic(self, topic: str) -> None:
        """It is gone, and so is what groups had on its queues."""
        self.queues = [queue for queue in self.queues if queue.topic != topic]
        self.writer.report("lifecycle", kind="TOPIC_GONE", topic=topic, detail=f"topic {topic}")

    def make_again(self, group: str, topic: str, client: str) -> Queue:
        """The topic has another life, at whose beginning the broker places the group."""
        self.writer.report("lifecycle", kind="TOPIC_MADE_AGAIN", topic=topic, detail=topic)
        queue = Queue(group, topic, 0, 0, owner=client)
        self.queues.append(queue)
        self.commit(queue, 0, path="NEW_LIFE", client=None)
        self.writer.report(
            "consume_offsets",
            group=group,
            topic=topic,
            queue_id=0,
            offset=0,
            path="PULL",
            trigger="UNKNOWN",
            client_id=None,
            accepted=False,
            min_offset=0,
            max_offset=0,
        )
        return queue

    def _boot(self, down_s: int, *, clean: bool) -> None:
        self.writer.ship()
        self.second += down_s
        self.writer.at(self.second)
        self.writer.epoch_us = self.writer.now_us
        self.writer.report("lifecycle", kind="BOOT", clean=clean)
        for queue in self.queues:
            queue.reported = ()

    def _join(self, group: str, client: str) -> None:
        before = list(self.members.setdefault(group, []))
        self.members[group].append(client)
        self._report_members(group, client, "JOINED", before=before)

    def _report_members(self, group: str, client: str, kind: str, **more: object) -> None:
        """The members are others now."""
        self.generation += 1
        after = list(self.members[group])
        self._rebalance(group, client, kind, inferred=False, after=after, **more)

    def _rebalance(self, group: str, client: str, kind: str, **more: object) -> None:
        self.writer.report(
            "rebalance_events",
            group=group,
            client_id=client,
            kind=kind,
            generation=self.generation,
            **more,
        )

    def _redeliver(self, queue: Queue, begin: int, mark: int, client: str) -> None:
        for start in range(begin, mark, 32):
            end = min(start + 32, mark)
            self.writer.report(
                "redeliveries",
                group=queue.group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                from_offset=start,
                to_offset=end,
                client_id=client,
                previous_client_id=queue.last_puller,
                broker_epoch_before=self.writer.epoch_us,
                delivered_count=end - start,
            )

    def _live(self, queue: Queue) -> None:
        produced = queue.rate + (self.random.randrange(3) if queue.rate else 0)
        queue.max_offset += produced
        if queue.owner is None:
            return
        if queue.is_pulled:
            queue.pulled = max(queue.pulled or 0, queue.max_offset)
            queue.last_puller, queue.last_pull_us = queue.owner, self.writer.now_us
            queue.finished = max(queue.finished, queue.pulled - queue.rate)
        is_time = self.second % COMMIT_PERIOD_S == queue.queue_id % COMMIT_PERIOD_S
        if is_time and queue.pulled:
            self.commit(queue, max(queue.safe, 0), path="COMMIT_RPC", client=queue.owner)
        if self.second % PERSIST_PERIOD_S == 0:
            queue.persisted = queue.committed

    def _report_queue(self, queue: Queue, *, always: bool) -> None:
        state = (queue.pulled, queue.committed, queue.persisted, queue.max_offset)
        if state == queue.reported and not always:
            return
        queue.reported = state
        committed, end = queue.committed, queue.max_offset
        word = "NONE" if committed is None else "AT_END" if committed >= end else "EXACT"
        waiting_s = 0 if word != "EXACT" else (end - (committed or 0)) // max(queue.rate, 1)
        reports, queue.reports = queue.reports, 0
        self.writer.report(
            "group_watermarks",
            group=queue.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            pulled=queue.pulled,
            committed=committed,
            persisted=queue.persisted,
            committed_state=word,
            store_time_at_committed=(
                self.writer.now_us - waiting_s * SECOND if word == "EXACT" else None
            ),
            min_offset=0,
            max_offset=end,
            last_store_time=self.writer.now_us if end else None,
            last_puller=queue.last_puller,
            last_pull_time=queue.last_pull_us,
            last_commit_time=queue.last_commit_us,
            reports=reports,
            message_model=queue.message_model,
            members=len(self.members[queue.group]),
        )

    def _flush(self) -> None:
        """Every five seconds the commit log is flushed, and what came meanwhile is not."""
        if self.second % PERSIST_PERIOD_S:
            return
        for queue in self.queues:
            self.writer.report(
                "queue_watermarks",
                topic=queue.topic,
                queue_id=queue.queue_id,
                min_offset=0,
                max_offset=queue.max_offset,
                flushed_offset=queue.max_offset - queue.rate,
                replicated_offset=queue.max_offset - queue.rate,
                readable=True,
            )
        stored = 100 * sum(queue.max_offset for queue in self.queues)
        flushed = 100 * sum(queue.max_offset - queue.rate for queue in self.queues)
        self.writer.report(
            "flush_checkpoints",
            component="COMMIT_LOG",
            action="FLUSH",
            cause="TIMER",
            written=stored,
            committed=stored,
            flushed=flushed,
            count=10,
            duration_us_sum=9_000,
            duration_us_max=2_000,
            at_risk_bytes_max=stored - flushed,
        )
        self.writer.report(
            "flush_checkpoints",
            component="REPLICA",
            action="REPLICATE",
            cause="SYNC_MASTER",
            written=stored,
            flushed=flushed,
            count=0,
            duration_us_sum=0,
            duration_us_max=0,
            at_risk_bytes_max=stored - flushed,
            replica="192.0.2.9:40000",
        )

    def _sample(self) -> None:
        """Every five seconds the broker asks each client what it holds."""
        if self.second % 5:
            return
        for queue in self.queues:
            if queue.owner is None:
                continue
            held = 1 if queue.frozen_at is not None else 0
            self.writer.report(
                "client_windows",
                client_id=queue.owner,
                group=queue.group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                first_held=queue.frozen_at,
                held_count=held,
                held_bytes=held * 100,
                finished_count=max(0, queue.finished - queue.safe - held),
                head_message_id=f"MSG-{queue.frozen_at}" if held else None,
                head_since=queue.frozen_us if held else None,
                client_committed=queue.safe,
                locked=False,
                dropped=False,
                last_pull_time=queue.last_pull_us if queue.is_forgotten else self.writer.now_us,
                last_consume_time=self.writer.now_us if queue.is_pulled else queue.last_pull_us,
            )
            if queue.queue_id < len(self.members[queue.group]):
                self._report_work(queue)

    def _report_work(self, queue: Queue) -> None:
        """How its owner works, as it says: quickly, and in many listeners."""
        self.writer.report(
            "consume_stats",
            client_id=queue.owner,
            group=queue.group,
            topic=queue.topic,
            listeners=LISTENERS,
            calls=60 * queue.rate,
            consume_us_mean=20_000,
            consume_ms_p50=19,
            consume_ms_p99=39,
            consumed=60 * queue.rate,
            queues_held=1,
        )


def _owned(queue: Queue) -> dict[str, object]:
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "committed": queue.committed,
        "pulled": queue.pulled,
    }


def moment(second: int) -> int:
    """µs of a second of the story."""
    return START_US + second * SECOND
