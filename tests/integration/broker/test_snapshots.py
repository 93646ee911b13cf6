"""When a broker has reported every mark it has, it says so: from then on a reader knows what is
there, and that the rest is gone. It says so only when no row of it was lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from engine.broker.identity import BrokerNode
from engine.broker.reporting.watermarks import SNAPSHOT_TURNS_MIN, Watermarks
from engine.broker.state import BrokerState
from engine.foundation.chunked_work import in_steps
from engine.foundation.observing import Fact, GroupWatermark, LifecycleEvent, QueueWatermark
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    broker_config,
    cluster,
    eventually,
    watermarks_of,
)
from tests.integration.broker.spooled import picked, spooled, spooled_in_order
from tests.store_support import Listener

HOUR_MS = 3_600_000
INTERVAL_MS = 10_000


@dataclass
class Sampled:
    """The watermarks of a broker, sampled by hand; time is what the test says."""

    running: Cluster
    state: BrokerState
    listener: Listener
    watermarks: Watermarks
    now_ms: int = 0

    async def sample(self, *, after_ms: int = 1000) -> list[Fact]:
        """One sample; what it reported."""
        self.now_ms += after_ms
        begin = len(self.listener.facts)
        await in_steps(self.watermarks.sample(self.now_ms))
        return self.listener.facts[begin:]

    def commit(self, group: str, offset: int, queue_id: int = 0) -> None:
        self.state.offsets.commit(group, TOPIC, queue_id, offset, now_ms=self.now_ms)


@asynccontextmanager
async def sampled(folder: Path, *, snapshot_ms: int = INTERVAL_MS) -> AsyncIterator[Sampled]:
    """A broker with a message in each of four queues."""
    config = broker_config(
        folder,
        sample_interval_ms=HOUR_MS,
        full_sample_interval_ms=HOUR_MS,
        flush_consumer_offset_interval_ms=HOUR_MS,
    )
    async with cluster(config) as running:
        client = running.client()
        for queue_id in range(4):
            await client.send(queue_id=queue_id)
        listener = Listener()
        by_hand = replace(config, sample_interval_ms=1000, full_sample_interval_ms=snapshot_ms)
        state = replace(
            running.broker.state, observer=listener, node=BrokerNode(by_hand, boot_ms=0)
        )
        await state.store.flush()
        yield Sampled(running, state, listener, watermarks_of(state))


def snapshots(facts: list[Fact]) -> list[LifecycleEvent]:
    return [one for one in facts if isinstance(one, LifecycleEvent) and one.kind == "SNAPSHOT"]


def keys(facts: list[Fact]) -> list[str]:
    """What was reported of queues and of groups on them, sorted."""
    queues = [f"{one.queue_id}" for one in facts if isinstance(one, QueueWatermark)]
    pairs = [f"{one.group}:{one.queue_id}" for one in facts if isinstance(one, GroupWatermark)]
    return sorted(queues + pairs)


async def test_the_first_sample_of_a_small_broker_is_a_snapshot(tmp_path: Path) -> None:
    async with sampled(tmp_path) as broker:
        broker.commit("g", 1)
        facts = await broker.sample()
    assert keys(facts) == ["0", "1", "2", "3", "g:0"]
    (snapshot,) = snapshots(facts)
    assert facts[-1] is snapshot, "it comes behind all that it is about"
    assert snapshot.seq_from == 1
    assert snapshot.detail == "4 queues, 1 queues of groups"


async def test_between_snapshots_only_what_moves_is_reported_and_each_begins_in_its_interval(
    tmp_path: Path,
) -> None:
    async with sampled(tmp_path) as broker:
        broker.commit("g", 0)
        broker.commit("h", 1)
        await broker.sample()
        still = [await broker.sample() for _ in range(4)]
        broker.commit("g", 1)
        moved = await broker.sample()
        later = [await broker.sample() for _ in range(5)]
        after_next = [await broker.sample() for _ in range(9)]
    assert still == [[]] * 4
    assert keys(moved) == ["g:0"]
    assert [len(snapshots(one)) for one in later] == [0, 0, 0, 0, 1]
    assert keys(later[-1]) == ["0", "1", "2", "3", "g:0", "h:0"]
    assert after_next == [[]] * 9


async def test_a_long_snapshot_is_reported_in_many_samples_and_its_place_is_where_it_began(
    tmp_path: Path,
) -> None:
    count = 2 * SNAPSHOT_TURNS_MIN + 2
    async with sampled(tmp_path) as broker:
        for number in range(count):
            broker.commit(f"g{number}", 1)
        for _ in range(2):
            await broker.sample()
        before = len(broker.listener.facts)
        begun = await broker.sample(after_ms=INTERVAL_MS)
        broker.commit("late", 1)
        broker.commit(f"g{count - 1}", 0)
        middle = await broker.sample()
        ended = await broker.sample()
    assert len(keys(begun)) == SNAPSHOT_TURNS_MIN + 4
    assert not snapshots(begun)
    assert not snapshots(middle)
    (snapshot,) = snapshots(ended)
    assert snapshot.seq_from == before + 1
    reported = keys([*begun, *middle, *ended])
    assert len(reported) == len(set(reported)) == count + 5, "who moved meanwhile had its row"


async def test_what_went_has_no_row_in_the_next_snapshot(tmp_path: Path) -> None:
    async with sampled(tmp_path) as broker:
        broker.commit("g", 1)
        broker.commit("h", 1)
        await broker.sample()
        for _ in broker.state.offsets.forget_group("g"):
            pass
        facts = await broker.sample(after_ms=INTERVAL_MS)
    assert keys(facts) == ["0", "1", "2", "3", "h:0"]
    assert len(snapshots(facts)) == 1


async def test_when_rows_were_lost_a_snapshot_begins_at_once(tmp_path: Path) -> None:
    async with sampled(tmp_path) as broker:
        broker.commit("g", 1)
        await broker.sample()
        assert await broker.sample() == []
        broker.listener.losses += 3
        again = await broker.sample()
        assert await broker.sample() == []
    assert keys(again) == ["0", "1", "2", "3", "g:0"]
    assert len(snapshots(again)) == 1


async def test_a_snapshot_of_which_rows_were_lost_is_none_and_the_next_begins(
    tmp_path: Path,
) -> None:
    async with sampled(tmp_path) as broker:
        for number in range(SNAPSHOT_TURNS_MIN + 1):
            broker.commit(f"g{number}", 1)
        await broker.sample()
        begun = await broker.sample(after_ms=INTERVAL_MS)
        broker.listener.losses += 1
        ended, anew, reported = [await broker.sample() for _ in range(3)]
    assert not snapshots([*begun, *ended, *anew])
    assert len(keys(ended)) == 1
    assert len(snapshots(reported)) == 1
    assert len(set(keys([*anew, *reported]))) == SNAPSHOT_TURNS_MIN + 5


async def test_a_disk_that_fails_again_and_again_makes_no_broker_report_all_of_it_all_the_time(
    tmp_path: Path,
) -> None:
    async with sampled(tmp_path) as broker:
        broker.commit("g", 1)
        await broker.sample()
        counts = []
        for _ in range(8):
            broker.listener.losses += 1
            counts.append(len(snapshots(await broker.sample())))
        quiet = [len(snapshots(await broker.sample())) for _ in range(6)]
    assert counts == [1, 0, 0, 0, 0, 1, 0, 0], "at once, and then each five seconds"
    assert sum(quiet) == 1, "one behind the last loss, and no more"


async def test_after_a_loss_a_long_snapshot_is_reported_in_haste_and_else_over_its_interval(
    tmp_path: Path,
) -> None:
    """Until it ends everything is unknown: 30 s of samples, not ten minutes."""
    count = 40 * SNAPSHOT_TURNS_MIN
    async with sampled(tmp_path, snapshot_ms=600_000) as broker:
        for number in range(count):
            broker.commit(f"g{number}", 1)
        at_boot = 1
        while not snapshots(await broker.sample()):
            at_boot += 1
        broker.listener.losses += 1
        after_loss = 1
        while not snapshots(await broker.sample()):
            after_loss += 1
    assert at_boot <= 31
    assert after_loss <= 31


async def test_while_facts_are_lost_no_snapshot_begins(tmp_path: Path) -> None:
    async with sampled(tmp_path) as broker:
        broker.listener.is_losing = True
        assert not snapshots(await broker.sample())
        broker.listener.is_losing = False
        assert len(snapshots(await broker.sample())) == 1


async def test_in_the_spool_all_that_is_there_was_reported_since_a_snapshot_began(
    tmp_path: Path,
) -> None:
    settings = {"sample_interval_ms": 50, "full_sample_interval_ms": 600}
    async with cluster(broker_config(tmp_path, **settings)) as running:
        client = running.client()
        for queue_id in range(4):
            await client.send(queue_id=queue_id)
            await client.commit(1, queue_id=queue_id)

        async def reported_thrice() -> bool:
            rows = spooled(tmp_path / "store", "lifecycle")
            return [row["kind"] for row in rows].count("SNAPSHOT") >= 3

        await eventually(reported_thrice, "three snapshots are reported")
    rows = spooled_in_order(tmp_path / "store")
    ends = [(seq, row) for seq, table, row in rows if row.get("kind") == "SNAPSHOT"]
    assert rows[-1][2]["kind"] == "SHUTDOWN"
    assert ends[-1][0] == rows[-1][0] - 1, "the last one is reported at the stop"
    for seq_to, snapshot in ends[1:]:
        span = [one for one in rows if snapshot["seq_from"] <= one[0] < seq_to]
        fields = {
            (table, row.get("group"), row["queue_id"])
            for _, table, row in span
            if table in {"queue_watermarks", "group_watermarks"} and row["topic"] == TOPIC
        }
        assert fields == {("queue_watermarks", None, one) for one in range(4)} | {
            ("group_watermarks", GROUP, one) for one in range(4)
        }
    assert [picked(row, "clean", "group") for _, row in ends[:1]] == [(None, None)]
