"""Benchmark `sampling`: event-loop time to sample watermarks of 100,000 group-queue pairs.

A broker in this process, whose own timers rest: 100 topics of 10 queues with messages in them, read
by 100 groups. Before each sample a share of the pairs reports another offset; every topic's share
moves alike. Figures are CPU time of this thread from the start of a sample to the end of the write
of its rows into the spool, so that they include all of the cost of emitting; the median of several.
That the pairs whose marks a sample reads grow with those that moved, and not with those that exist,
is a test (tests/integration/broker/test_long_tables.py). Scaled, there are fewer groups.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.analytics.cost import Clock
from bench.analytics.figures import Figure
from bench.bars import SAMPLE_MOVING, SAMPLE_STILL
from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig
from engine.broker.reporting.watermarks import Watermarks
from engine.broker.service_groups import reporters
from engine.broker.state import BrokerState
from engine.foundation.limits import WATERMARKS_PER_SAMPLE_MAX
from engine.foundation.units import HOUR_MS
from engine.protocol.bodies import TopicConfig
from engine.runtime import system_runtime
from engine.store import StoreConfig
from engine.store.record_writing import MessageDraft

TOPICS, QUEUES, GROUPS = 100, 10, 100
MESSAGES = 8
"""In each queue."""
DISPATCH_LOOKS = 200
SAMPLES = 21
"""Of each share; the middle one counts."""
SHARES = {0.0: SAMPLE_STILL, 0.01: SAMPLE_MOVING}


def measure(folder: Path, scale: float) -> list[Figure]:
    """One figure a share of the pairs that moves."""
    clock = Clock()
    pairs, cpu_ms = asyncio.run(measured(folder, max(1, round(GROUPS * scale))))
    spent = clock.spent()
    return [
        Figure(
            f"sampling on the loop, {pairs:,} queues of groups, {share:.0%} moving",
            cpu_ms[share],
            "ms a second",
            bar,
            wall_s=spent.wall_s,
            cpu_s=spent.cpu_s,
            note=f"{min(int(pairs * share), WATERMARKS_PER_SAMPLE_MAX):,} emitted",
        )
        for share, bar in SHARES.items()
    ]


async def measured(folder: Path, groups: int) -> tuple[int, dict[float, float]]:
    """How many pairs there are; CPU ms of the loop's thread by the share that moves, the median."""
    config = BrokerConfig(
        store=StoreConfig(root=str(folder / "store")),
        port=0,
        sample_interval_ms=HOUR_MS,
        full_sample_interval_ms=100_000 * HOUR_MS,
        flush_consumer_offset_interval_ms=HOUR_MS,
    )
    broker = Broker(system_runtime(), config)
    await broker.start()
    try:
        state = broker.state
        await _fill(state)
        watermarks = reporters(state, broker.services.offsets).watermarks
        pairs = list(_pairs(groups))
        _report(state, pairs, 1)
        for _ in range(len(pairs) // WATERMARKS_PER_SAMPLE_MAX + 2):
            _cpu_of_sample(state, watermarks)
        found = {}
        for share in SHARES:
            count = int(len(pairs) * share)
            taken_ms = []
            for number in range(SAMPLES):
                begin = number * count % len(pairs)
                moving = [
                    *pairs[begin : begin + count],
                    *pairs[: max(0, begin + count - len(pairs))],
                ]
                _report(state, moving, 2 + number % (MESSAGES - 3))
                taken_ms.append(_cpu_of_sample(state, watermarks))
            found[share] = statistics.median(taken_ms)
        return len(pairs), found
    finally:
        await broker.stop()


async def _fill(state: BrokerState) -> None:
    for topic in _topics():
        state.topics.put(TopicConfig(topic, QUEUES, QUEUES))
        for queue_id in range(QUEUES):
            for _ in range(MESSAGES):
                state.store.put(_draft(topic, queue_id))
    await state.store.flush()  # A queue moves once more when what is in it is flushed.
    for _ in range(DISPATCH_LOOKS):
        if not state.store.dispatch_behind_bytes:
            break
        await asyncio.sleep(0.05)


def _draft(topic: str, queue_id: int) -> MessageDraft:
    return MessageDraft(
        topic=topic,
        queue_id=queue_id,
        body=b"x" * 100,
        properties="",
        born_timestamp_ms=1_700_000_000_000,
        born_host="10.0.0.1:5555",
        store_host="10.0.0.2:10911",
    )


def _topics() -> Iterator[str]:
    return (f"topic-{number:03}" for number in range(TOPICS))


def _pairs(groups: int) -> Iterator[tuple[str, str, int]]:
    for queue_id in range(QUEUES):
        for number in range(groups):
            for topic in _topics():
                yield f"group-{number:05}", topic, queue_id


def _report(state: BrokerState, pairs: list[tuple[str, str, int]], offset: int) -> None:
    now_ms = state.clock.steady_ms()
    for key in pairs:
        state.offsets.commit(*key, offset, now_ms=now_ms)


def _cpu_of_sample(state: BrokerState, watermarks: Watermarks) -> float:
    began_s = time.thread_time()
    for _ in watermarks.sample(state.clock.steady_ms()):
        state.observer.write_turn()  # type: ignore[attr-defined]
    state.observer.write_turn()  # type: ignore[attr-defined]
    return (time.thread_time() - began_s) * 1000
