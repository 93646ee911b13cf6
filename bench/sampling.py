"""Measures the event-loop time for sampling watermarks of 100,000 group-queue pairs.

Run by `python -m bench --only sampling`.

A broker in this process, whose own timers rest: 100 topics of 10 queues with messages in them, read
by 100 groups. Before each sample a share of the pairs reports another offset; every topic's share
moves alike. Figures are CPU time of this thread from the start of a sample to the end of the write
of its rows into the spool, so that they include all of the cost of emitting; the median of several.
That the pairs whose marks a sample reads grow with those that moved, and not with those that exist,
is a test (tests/integration/broker/test_long_tables.py).

    python -m bench.sampling [PAIRS_PER_QUEUE]     as many groups
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from bench.bars import SAMPLE_MOVING, SAMPLE_STILL, Bar
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
SHARES: tuple[tuple[float, Bar | None], ...] = (
    (0.0, SAMPLE_STILL),
    (0.01, SAMPLE_MOVING),
    (1, None),
)


@dataclass(frozen=True, slots=True)
class Taken:
    """What one share of the pairs takes."""

    share: float
    bar: Bar | None
    pairs: int
    emitted: int
    cpu_ms: float
    """Of the loop's thread, in the middle one of the samples."""


async def measured(folder: Path, groups: int = GROUPS) -> list[Taken]:
    """The figures, one a share."""
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
        found = []
        for share, bar in SHARES:
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
            emitted = min(count, WATERMARKS_PER_SAMPLE_MAX)
            found.append(Taken(share, bar, len(pairs), emitted, statistics.median(taken_ms)))
        return found
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


def main(groups: int = GROUPS) -> None:
    """Measure, and print."""
    with TemporaryDirectory(prefix="tidemark-sampling-") as work:
        found = asyncio.run(measured(Path(work), groups))
    table = Table(title=f"One sample of {found[0].pairs:,} queues of groups")
    for column in ("moving", "CPU of the loop, ms", "bar", "emitted"):
        table.add_column(column, justify="right")
    for one in found:
        bar = "" if one.bar is None else str(one.bar)
        table.add_row(f"{one.share:.0%}", f"{one.cpu_ms:.2f}", bar, f"{one.emitted:,}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else GROUPS)
