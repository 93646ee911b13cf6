"""Small random histories of brokers, played as bronze tables in memory.

A broker keeps the books of two groups on two queues each, and reports what a broker would report:
members that come and go, queues that change hands, marks, offset reports, pulls that go back,
stops clean and not, offsets files and logs that lose their ends. Every operation is one draw.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from engine.telemetry.tables import BY_NAME
from pipelines.staging.facts import FACT_TABLES
from tests.pipelines.bronze_lake import bronze_table

SECOND = 1_000_000
START_US = 1_772_366_400 * SECOND
CLIENTS = ("one", "two", "three")
GROUPS = ("orders", "bills")

Bronze = dict[str, pa.Table]
Operation = tuple[int, str, int, int]
"""Which broker, what, and two numbers to choose with."""


class MemoryWriter:
    """One emitter: reports rows, and says from time to time that they are shipped."""

    def __init__(self, cluster: str, broker: str) -> None:
        self.cluster, self.broker = cluster, broker
        self.emitter = f"{cluster}/{broker}/0"
        self.now_us = START_US
        self.epoch_us = START_US - 3600 * SECOND
        self.seq = self.shipped = self.shipments = 0
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in FACT_TABLES}

    def report(self, table: str, **values: Any) -> None:
        """One row of `table` now."""
        self.seq += 1
        self._add(table, self.emitter, self.seq, values)

    def ship(self) -> None:
        """The shipments row that promises what was reported."""
        self.shipments += 1
        promise = {"seq_from": self.shipped + 1, "seq_to": self.seq, "event_time_to": self.now_us}
        self._add("shipments", f"{self.emitter}/shipper", self.shipments, {**promise, "rows": []})
        self.shipped = self.seq

    def _add(self, table: str, emitter: str, seq: int, values: dict[str, Any]) -> None:
        unknown = set(values) - set(BY_NAME[table].own_names)
        assert not unknown, f"{table} has no columns {sorted(unknown)}"
        self.rows[table].append(
            {
                **dict.fromkeys(BY_NAME[table].own_names),
                **values,
                "cluster": self.cluster,
                "broker": self.broker,
                "broker_epoch": self.epoch_us,
                "emitter": emitter,
                "seq": seq,
                "event_time": self.now_us,
                "event_date": datetime.fromtimestamp(self.now_us / SECOND, UTC).date(),
            }
        )


@dataclass
class Queue:
    """A queue of a group."""

    group: str
    queue_id: int
    owner: str | None = None
    max_offset: int = 0
    pulled: int = 0
    committed: int = 0
    persisted: int = 0

    @property
    def name(self) -> dict[str, Any]:
        """Its key, without the broker."""
        return {"group": self.group, "topic": f"topic-{self.group}", "queue_id": self.queue_id}

    @property
    def owned(self) -> dict[str, Any]:
        """As events name it."""
        return {
            "topic": f"topic-{self.group}",
            "queue_id": self.queue_id,
            "committed": self.committed,
            "pulled": self.pulled,
        }


@dataclass
class Broker:
    """A broker whose history is played operation by operation."""

    writer: MemoryWriter
    queues: list[Queue] = field(
        default_factory=lambda: [Queue(group, number) for group in GROUPS for number in range(2)]
    )
    members: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in GROUPS})
    generation: int = 0

    def do(self, what: str, one: int, other: int) -> None:
        """Carry out an operation; `one` chooses a queue, `other` a client or an amount."""
        self.writer.now_us += (1 + other % 4) * SECOND
        queue = self.queues[one % len(self.queues)]
        getattr(self, what)(queue, CLIENTS[other % len(CLIENTS)], other)

    def work(self, queue: Queue, _: str, amount: int) -> None:
        """Messages come and are pulled; some are committed."""
        queue.max_offset += amount
        if queue.owner is not None:
            queue.pulled = queue.max_offset
            self._commit(queue, min(queue.committed + amount // 2, queue.pulled), queue.owner)
        self._report(queue)

    def persist(self, queue: Queue, _: str, amount: int) -> None:
        """The offsets file is written, and the log is flushed, not to its end."""
        self.writer.report(
            "queue_watermarks",
            topic=f"topic-{queue.group}",
            queue_id=queue.queue_id,
            min_offset=0,
            max_offset=queue.max_offset,
            flushed_offset=max(0, queue.max_offset - amount // 20),
            readable=True,
        )
        self.writer.report(
            "flush_checkpoints",
            component="COMMIT_LOG",
            action="FLUSH",
            cause="TIMER",
            written=1000 + amount,
            committed=1000,
            flushed=900,
            count=1,
            duration_us_sum=amount,
            duration_us_max=amount,
        )
        for one in self.queues:
            one.persisted = one.committed
        self._report(queue)

    def sample(self, queue: Queue, client: str, amount: int) -> None:
        """The broker has asked a client what it holds."""
        self.writer.report(
            "client_windows",
            **queue.name,
            client_id=client,
            held_count=amount % 5,
            held_bytes=0,
            finished_count=amount % 3 or None,
            client_committed=queue.committed + amount % 4,
            takes_all=(True, False, None)[amount % 3],
            held_ranges=(
                [
                    {
                        "from_offset": queue.committed + 1,
                        "to_offset": queue.committed + 1 + amount % 5,
                    }
                ]
                if amount % 2
                else None
            ),
            locked=False,
            dropped=amount % 11 == 0,
        )

    def ask(self, queue: Queue, client: str, amount: int) -> None:
        """A reader is answered where to begin; the answer may be stale."""
        self.writer.report(
            "offset_answers",
            **queue.name,
            client_id=client,
            told_offset=max(0, queue.committed - amount % 20) if amount % 6 else None,
            committed=queue.committed,
            pulled=queue.pulled,
            last_puller=queue.owner,
        )

    def take(self, queue: Queue, client: str, _: int) -> None:
        """A client pulls the queue for the first time, from the committed offset."""
        if client not in self.members[queue.group]:
            self._change(queue.group, client, "JOINED", [])
        if queue.owner not in (None, client):
            self._move(queue, queue.owner, "REVOKED")
        before, queue.owner = queue.owner, client
        self._move(queue, client, "ASSIGNED")
        if queue.committed < queue.pulled:
            self._redeliver(queue, queue.committed, queue.pulled, client, before)

    def leave(self, queue: Queue, client: str, amount: int) -> None:
        """A client goes."""
        if client not in self.members[queue.group]:
            return
        owned = [one for one in self.queues if (one.group, one.owner) == (queue.group, client)]
        kind = ("LEFT", "LEFT", "EXPIRED")[amount % 3]
        reason = ("UNREGISTERED", "CONNECTION_LOST", "HEARTBEAT_EXPIRED")[amount % 3]
        self._change(queue.group, client, kind, owned, reason)
        for one in owned:
            one.owner = None
            self._report(one)

    def reset(self, queue: Queue, _: str, amount: int) -> None:
        """An operator sets the offset back."""
        self._commit(queue, max(0, queue.committed - amount), None, path="RESET")

    def ghost(self, queue: Queue, client: str, amount: int) -> None:
        """Somebody reports an old offset."""
        self._commit(queue, max(0, queue.committed - amount), client)

    def again(self, queue: Queue, client: str, amount: int) -> None:
        """A pull goes back."""
        begin = max(0, queue.pulled - amount)
        if begin < queue.pulled:
            self._redeliver(queue, begin, queue.pulled, client, queue.owner)

    def fail(self, queue: Queue, _: str, amount: int) -> None:
        """A step of a failed message."""
        failed = ("SENT_BACK", "DELIVERED", "DEAD_LETTERED", "SENT_AGAIN", "SCHEDULED")
        steps = (*failed, "INVISIBLE_TIME_EXPIRED")
        self.writer.report(
            "retry_dlq_flow",
            message_id=f"MESSAGE-{amount % 2}" if amount % 7 else None,
            origin_topic=f"topic-{queue.group}",
            origin_queue_id=queue.queue_id,
            origin_offset=amount,
            group=queue.group,
            reconsume_times=1,
            step=steps[amount % len(steps)],
        )

    def stop(self, queue: Queue, _: str, amount: int) -> None:
        """The broker stops, cleanly or not, and boots; what it lost it says."""
        is_clean, is_damaged, is_cut = amount % 3 == 0, amount % 5 == 0, amount % 4 == 1
        if is_clean:
            for one in self.queues:
                one.persisted = one.committed
            self.writer.report("lifecycle", kind="SHUTDOWN", clean=True)
        if amount % 2:
            self.writer.ship()
        self.writer.now_us += 2 * SECOND
        self.writer.epoch_us = self.writer.now_us
        if is_cut:
            self._cut(amount)
        if is_damaged:
            self.writer.report("lifecycle", kind="DAMAGED_FILE", detail="consumerOffset.json")
            for one in self.queues:
                one.persisted = 0
        if amount % 7 == 0:
            self.writer.ship()
        self.writer.report("lifecycle", kind="BOOT", clean=is_clean)
        for one in self.queues:
            one.committed = one.persisted
        self._report(queue)

    def delete(self, queue: Queue, _: str, amount: int) -> None:
        """A topic or a group is deleted; what comes after it begins at offset 0."""
        if amount % 2:
            self.writer.report("lifecycle", kind="GROUP_GONE", group=queue.group)
        else:
            self.writer.report("lifecycle", kind="TOPIC_GONE", topic=f"topic-{queue.group}")
        for one in self.queues:
            if one.group == queue.group:
                one.committed = one.persisted = one.pulled = 0
                one.max_offset *= amount % 2

    def snapshot(self, queue: Queue, _: str, amount: int) -> None:
        """Every queue that is there is reported; those of one group may be gone unsaid."""
        begin = self.writer.seq + 1
        for one in self.queues:
            if amount % 3 or one.group != queue.group:
                self._report(one)
                if amount % 5 == 0:
                    self.writer.ship()
        self.writer.report("lifecycle", kind="SNAPSHOT", seq_from=begin)

    def ship(self, _: Queue, __: str, ___: int) -> None:
        """What was reported is shipped."""
        self.writer.ship()

    def _cut(self, amount: int) -> None:
        self.writer.report("lifecycle", kind="RECOVERY", truncated_from=1, truncated_to=2)
        if amount % 8 == 5:
            self.writer.ship()
        for one in self.queues:
            end = max(0, one.max_offset - amount)
            if end < one.pulled:
                one.max_offset = one.pulled = end
                one.persisted = min(one.persisted, end)
                self._report(one)
                if amount % 16 == 9:
                    self.writer.ship()

    def _commit(
        self, queue: Queue, offset: int, client: str | None, *, path: str = "COMMIT_RPC"
    ) -> None:
        self.writer.report(
            "consume_offsets",
            **queue.name,
            offset=offset,
            previous_offset=queue.committed,
            path=path,
            trigger="TIMER",
            client_id=client,
            accepted=True,
            min_offset=0,
            max_offset=queue.max_offset,
        )
        queue.committed = offset

    def _report(self, queue: Queue) -> None:
        self.writer.report(
            "group_watermarks",
            **queue.name,
            pulled=queue.pulled,
            committed=queue.committed,
            persisted=queue.persisted,
            committed_state="EXACT",
            min_offset=0,
            max_offset=queue.max_offset,
            last_puller=queue.owner,
            reports=1,
            message_model="CLUSTERING",
        )

    def _move(self, queue: Queue, client: str | None, kind: str) -> None:
        self.writer.report(
            "rebalance_events",
            group=queue.group,
            client_id=client,
            kind=kind,
            inferred=True,
            generation=self.generation,
            queues=[queue.owned],
        )

    def _change(
        self, group: str, client: str, kind: str, owned: list[Queue], reason: str | None = None
    ) -> None:
        before = list(self.members[group])
        (self.members[group].append if kind == "JOINED" else self.members[group].remove)(client)
        self.generation += 1
        self.writer.report(
            "rebalance_events",
            group=group,
            client_id=client,
            kind=kind,
            inferred=False,
            generation=self.generation,
            before=before,
            after=list(self.members[group]),
            queues=[one.owned for one in owned],
            reason=reason,
        )

    def _redeliver(
        self, queue: Queue, begin: int, end: int, client: str, before: str | None
    ) -> None:
        self.writer.report(
            "redeliveries",
            **queue.name,
            from_offset=begin,
            to_offset=end,
            client_id=client,
            previous_client_id=before,
            broker_epoch_before=self.writer.epoch_us,
        )


OPERATIONS = (
    *("work", "work", "work", "take", "take", "leave", "ship", "ship", "ship", "persist"),
    *("sample", "reset", "ghost", "again", "fail", "fail", "stop", "stop"),
    *("delete", "snapshot", "ask", "ask"),
)


def stories(brokers: int = 2) -> st.SearchStrategy[list[Operation]]:
    """Histories of `brokers` brokers."""
    return st.lists(
        st.tuples(
            st.integers(0, brokers - 1),
            st.sampled_from(OPERATIONS),
            st.integers(0, 3),
            st.integers(1, 60),
        ),
        min_size=20,
        max_size=80,
    )


def played(story: list[Operation], names: tuple[tuple[str, str], ...]) -> list[MemoryWriter]:
    """Play a story on brokers of these clusters and names; all they reported is shipped."""
    brokers = [Broker(MemoryWriter(*name)) for name in names]
    for which, what, one, other in story:
        brokers[which].do(what, one, other)
    for broker in brokers:
        broker.writer.ship()
    return [broker.writer for broker in brokers]


def bronze_of(*writers: MemoryWriter) -> Bronze:
    """What they reported, as bronze tables."""
    return {
        name: bronze_table(name, [row for writer in writers for row in writer.rows[name]])
        for name in FACT_TABLES
    }
