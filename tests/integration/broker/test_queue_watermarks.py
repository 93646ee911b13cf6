"""What a broker reports of its queues, and of groups on them, each second: those that moved, with
a limit.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from engine.broker.reporting.mark_reader import are_waiting
from engine.foundation.chunked_work import in_steps
from engine.foundation.limits import WATERMARKS_PER_SAMPLE_MAX
from engine.foundation.observing import GroupWatermark, QueueWatermark
from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    broker_config,
    cluster,
    eventually,
    watermarks_of,
)
from tests.integration.broker.spooled import picked, spooled
from tests.store_support import Listener, draft

HOUR_MS = 3_600_000
MARKS = ("pulled", "processed", "committed")
ENDS = ("min_offset", "max_offset", "flushed_offset")


def reported_ends(folder: Path, queue_id: int) -> list[tuple[Any, ...]]:
    """(min, max, flushed) of each row about a queue of TOPIC."""
    rows = spooled(folder / "store", "queue_watermarks")
    return [picked(row, *ENDS) for row in rows if queue_of(row) == (TOPIC, queue_id)]


def queue_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return picked(row, "topic", "queue_id")


async def test_a_queue_is_reported_when_it_moves_and_once_more_when_that_is_flushed(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, sample_interval_ms=50, full_sample_interval_ms=HOUR_MS)
    store = replace(
        config.store,
        flush_interval_commit_log_ms=400,
        flush_commit_log_thorough_interval_ms=1,
    )
    config = replace(config, store=store)
    async with cluster(config) as running:
        client = running.client()
        await client.send()

        async def first_is_safe() -> bool:
            return (0, 1, 1) in reported_ends(tmp_path, 0)

        await eventually(first_is_safe, "the first message is reported as flushed")
        assert (0, 1, 0) in reported_ends(tmp_path, 0), "it was reported before, as not flushed"
        rows_before = len(reported_ends(tmp_path, 0))
        await client.send(queue_id=1)

        async def second_is_safe() -> bool:
            return (0, 1, 1) in reported_ends(tmp_path, 1)

        await eventually(second_is_safe, "the other queue's message is reported as flushed")
        assert len(reported_ends(tmp_path, 0)) == rows_before, (
            "what stands still is not reported again"
        )


async def test_what_retention_took_and_a_topic_that_went_are_reported(tmp_path: Path) -> None:
    config = broker_config(
        tmp_path, log_bytes=16 * 1024, sample_interval_ms=50, full_sample_interval_ms=HOUR_MS
    )
    async with cluster(config) as running:
        client = running.client()
        for _ in range(40):
            assert (await client.send(bytes(1000))).code == ResponseCode.SUCCESS

        async def all_are_reported() -> bool:
            return (0, 40, 40) in reported_ends(tmp_path, 0)

        await eventually(all_are_reported, "forty messages are reported as flushed")
        for path in (tmp_path / "store/commitlog").iterdir():
            os.utime(path, (1, 1))
        await client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)

        async def first_offset_moved() -> bool:
            return any(minimum > 0 for minimum, _, _ in reported_ends(tmp_path, 0))

        await eventually(first_offset_moved, "the queue's first offset is reported")
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        rows_before = reported_ends(tmp_path, 0)
        await client.send(topic="other")

        async def other_is_reported() -> bool:
            return queue_of(spooled(tmp_path / "store", "queue_watermarks")[-1]) == ("other", 0)

        await eventually(other_is_reported, "the other topic's message is reported")
        assert reported_ends(tmp_path, 0) == rows_before, "a topic that went is not reported"
        await client.send()

        async def begins_anew() -> bool:
            return reported_ends(tmp_path, 0)[-1][:2] == (0, 1)

        await eventually(begins_anew, "the topic made again begins at 0")


async def test_of_very_many_that_move_those_reported_longest_ago_come_first(tmp_path: Path) -> None:
    config = broker_config(
        tmp_path, sample_interval_ms=HOUR_MS, full_sample_interval_ms=1000 * HOUR_MS
    )
    count = WATERMARKS_PER_SAMPLE_MAX + 100

    reported_queues: list[int] = []
    async with cluster(config) as running:
        listener = Listener()
        state = replace(running.broker.state, observer=listener)
        watermarks = watermarks_of(state)
        for queue_id in range(count):
            state.store.put(draft(b"x", topic=TOPIC, queue_id=queue_id))

        async def all_are_visible() -> bool:
            return state.store.dispatch_behind_bytes == 0

        await eventually(all_are_visible, "all is dispatched")
        for _ in range(2):
            await in_steps(watermarks.sample(state.clock.now_ms()))
        rows = [fact for fact in listener.facts if isinstance(fact, QueueWatermark)]
        reported_queues.extend(row.queue_id for row in rows)
    first = reported_queues[:WATERMARKS_PER_SAMPLE_MAX]
    assert len(set(first)) == WATERMARKS_PER_SAMPLE_MAX, "one sample reports no more"
    assert set(reported_queues) == set(range(count)), "the next one begins with the others"


async def test_of_very_many_queues_of_groups_each_has_its_turn(tmp_path: Path) -> None:
    config = broker_config(
        tmp_path, sample_interval_ms=HOUR_MS, full_sample_interval_ms=1000 * HOUR_MS
    )
    count = WATERMARKS_PER_SAMPLE_MAX + 100
    listener = Listener()

    def reported_queues() -> list[int]:
        rows = [fact for fact in listener.facts if isinstance(fact, GroupWatermark)]
        return [row.queue_id for row in rows]

    async with cluster(config) as running:
        state = replace(running.broker.state, observer=listener)
        watermarks = watermarks_of(state)
        for queue_id in range(count):
            state.offsets.commit(GROUP, TOPIC, queue_id, 1, now_ms=state.clock.now_ms())
        await in_steps(watermarks.sample(state.clock.now_ms()))
        assert len(reported_queues()) == WATERMARKS_PER_SAMPLE_MAX, "one sample reports no more"
        await in_steps(watermarks.sample(state.clock.now_ms()))
        assert set(reported_queues()) == set(range(count)), "the next one goes on from there"
        reported_before = len(reported_queues())
        state.offsets.commit(GROUP, TOPIC, 7, 2, now_ms=state.clock.now_ms())
        await in_steps(watermarks.sample(state.clock.now_ms()))
        await in_steps(watermarks.sample(state.clock.now_ms()))
        assert reported_queues()[reported_before:].count(7) == 1, (
            "what moved is reported when its turn comes"
        )


def marks_of_group(folder: Path, *names: str) -> list[tuple[Any, ...]]:
    """Columns of each row of GROUP on queue 0 of TOPIC, repeats left out."""
    rows = spooled(folder / "store", "group_watermarks")
    found = [picked(row, *names) for row in rows if queue_of(row) == (TOPIC, 0)]
    return [one for one, _ in groupby(found)]


async def test_a_group_that_pulls_and_finishes_is_reported_though_it_commits_nothing(
    tmp_path: Path,
) -> None:
    """One that commits each twenty minutes makes progress all the same."""
    settings = {"sample_interval_ms": 50, "window_sample_interval_ms": 50}
    config = broker_config(tmp_path, full_sample_interval_ms=HOUR_MS, **settings)
    async with cluster(config) as running:
        client = running.client("c1")
        for _ in range(4):
            await client.send()
        await client.heartbeat()
        for pulled in (2, 4):
            await client.pull(pulled - 2, maxMsgNums=2)
            for processed in (pulled - 1, pulled):
                client.running_info = {
                    f'{{"brokerName":"broker-a","queueId":0,"topic":"{TOPIC}"}}': {
                        "processedOffset": processed, "heldRanges": [],
                    }
                }  # fmt: skip

                async def is_reported(mark: tuple[int, int] = (pulled, processed)) -> bool:
                    return (*mark, None) in marks_of_group(tmp_path, *MARKS)

                await eventually(is_reported, f"that {pulled} are pulled and {processed} finished")
        assert marks_of_group(tmp_path, "pulled")[-2:] == [(2,), (4,)]


async def test_nothing_is_reported_of_a_group_that_pulls_and_reports_at_the_end_of_its_queue(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, sample_interval_ms=50, full_sample_interval_ms=HOUR_MS)
    async with cluster(config) as running:
        client = running.client("c1")
        await client.send()
        await client.heartbeat()
        await client.pull(0)
        await client.commit(1)

        async def rests() -> bool:
            return marks_of_group(tmp_path, "committed", "persisted")[-1:] == [(1, 1)]

        await eventually(rests, "its offset is reported as persisted")
        rows_before = len(spooled(tmp_path / "store", "group_watermarks"))
        for _ in range(10):
            await client.pull(1)
            await client.commit(1)
            await asyncio.sleep(0.06)
        assert len(spooled(tmp_path / "store", "group_watermarks")) == rows_before
        await client.send()

        async def waits() -> bool:
            return marks_of_group(tmp_path, "max_offset")[-1] == (2,)

        await eventually(waits, "that a message waits is reported")
        row = spooled(tmp_path / "store", "group_watermarks")[-1]
        assert row["reports"] == 10, "none of them is left out"
        rows_before = len(spooled(tmp_path / "store", "group_watermarks"))
        await client.commit(1)

        async def is_heard() -> bool:
            return len(spooled(tmp_path / "store", "group_watermarks")) > rows_before

        await eventually(is_heard, "while it is behind, each report is news")


async def test_a_broadcasting_group_stays_one_when_its_members_have_left(tmp_path: Path) -> None:
    config = broker_config(tmp_path, sample_interval_ms=50, full_sample_interval_ms=HOUR_MS)
    names = ("message_model", "members")
    async with cluster(config) as running:
        client = running.client("c1")
        await client.send()
        await client.pull(0)  # Before its first heartbeat nobody knows that it broadcasts.

        async def is_known() -> bool:
            return marks_of_group(tmp_path, *names)[-1:] == [(None, 0)]

        await eventually(is_known, "that it reads is reported")
        await client.heartbeat(model="BROADCASTING")

        async def broadcasts() -> bool:
            return marks_of_group(tmp_path, *names)[-1] == ("BROADCASTING", 1)

        await eventually(broadcasts, "that it broadcasts is reported")
        await client.ask(RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup=GROUP)

        async def has_left() -> bool:
            return marks_of_group(tmp_path, *names)[-1] == ("BROADCASTING", 0)

        await eventually(has_left, "without members it is the same group")


async def test_where_a_group_without_an_offset_began_is_reported_until_it_has_one(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, sample_interval_ms=50, full_sample_interval_ms=HOUR_MS)
    names = ("committed", "began", "pulled", "max_offset")
    async with cluster(config) as running:
        client = running.client("c1")
        await client.heartbeat()
        await client.send()
        await client.send()
        await client.pull(1)

        async def has_begun() -> bool:
            return marks_of_group(tmp_path, *names)[-1:] == [(None, 1, 2, 2)]

        await eventually(has_begun, "that it began at 1 is reported")
        stored = spooled(tmp_path / "store", "group_watermarks")[-1]["store_time_at_committed"]
        assert stored is not None
        await client.commit(2)

        async def has_offset() -> bool:
            return marks_of_group(tmp_path, *names)[-1] == (2, None, 2, 2)

        await eventually(has_offset, "from then on its consume offset says where it is")


@pytest.mark.parametrize(
    ("committed", "pulled", "maximum", "waiting"),
    [
        (5, 5, 5, False),
        (4, 5, 5, True),
        (7, None, 5, False),
        (None, 5, 5, False),
        (None, 4, 5, True),
        (None, None, 0, True),
    ],
)
def test_messages_wait_for_a_group_below_the_end_of_the_queue(
    committed: int | None, pulled: int | None, maximum: int, *, waiting: bool
) -> None:
    assert are_waiting(committed, pulled, maximum) is waiting


async def test_nothing_is_reported_of_a_group_that_never_commits_and_has_pulled_all(
    tmp_path: Path,
) -> None:
    config = broker_config(tmp_path, sample_interval_ms=50, full_sample_interval_ms=HOUR_MS)
    async with cluster(config) as running:
        client = running.client("c1")
        await client.send()
        await client.heartbeat()
        await client.pull(0)

        async def is_reported() -> bool:
            return marks_of_group(tmp_path, "pulled")[-1:] == [(1,)]

        await eventually(is_reported, "that it has pulled all")
        rows_before = len(spooled(tmp_path / "store", "group_watermarks"))
        for _ in range(5):
            await client.pull(1)
            await asyncio.sleep(0.06)
        assert len(spooled(tmp_path / "store", "group_watermarks")) == rows_before
