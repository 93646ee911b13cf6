"""Offsets in memory and at the broker, and where a queue begins (tests/cases/offset_store.json).

Feature rows: A1, A3, A6, A8.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from engine.client.consuming.offset_store import (
    BrokerOffsetStore,
    CommitTrigger,
    ControllableOffset,
    ReadOffset,
)
from engine.client.consuming.start_offset import (
    ConsumeFromWhere,
    StartOffsetAsk,
    StartRule,
    start_offset,
    start_rule,
)
from engine.foundation.errors import RequestTimedOut, TidemarkError
from engine.protocol.message import MessageQueue

CASES: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "cases" / "offset_store.json").read_text()
)
QUEUE = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("T", "broker-a", 1)
T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


class Broker:
    """A broker's offsets of one group, in a dict; `fails` makes it unreachable."""

    def __init__(
        self, offsets: dict[MessageQueue, int] | None = None, *, fails: bool = False
    ) -> None:
        self.offsets = offsets or {}
        self.fails = fails
        self.reports: list[tuple[MessageQueue, int, CommitTrigger]] = []

    async def fetch(self, queue: MessageQueue) -> int | None:
        if self.fails:
            raise RequestTimedOut("no answer")
        return self.offsets.get(queue)

    async def commit(self, queue: MessageQueue, offset: int, trigger: CommitTrigger) -> bool:
        if self.fails:
            raise RequestTimedOut("no answer")
        self.reports.append((queue, offset, trigger))
        return True


@pytest.mark.parametrize("trace", CASES["controllable_offset_traces"])
def test_a_frozen_offset_ignores_updates_as_in_rocketmq(trace: dict[str, Any]) -> None:
    offset = ControllableOffset(trace["initial"])
    for step in trace["steps"]:
        if step["op"] == "update":
            offset.update(step["value"], increase_only=step["increaseOnly"])
        else:
            offset.update_and_freeze(step["value"])
        assert offset.value == step["result"], step


@pytest.mark.parametrize(
    "case",
    [c for c in CASES["read_offset"] if c["store"] == "remote" and "mq" not in c],
    ids=lambda c: f"{c['type']} memory={c.get('memory')} broker={c.get('broker')}",
)
def test_reading_an_offset_looks_where_it_is_asked_to(case: dict[str, Any]) -> None:
    answer = case.get("broker")
    broker = Broker(
        {QUEUE: answer} if isinstance(answer, int) else {}, fails=answer == "any other error"
    )
    store = BrokerOffsetStore(broker)
    if case.get("memory") is not None:
        store.update(QUEUE, case["memory"], increase_only=False)
    how = ReadOffset[case["type"]]

    if case["expected"] == -2:
        with pytest.raises(TidemarkError):
            run(store.read(QUEUE, how))
        return
    offset = run(store.read(QUEUE, how))
    assert offset == (None if case["expected"] == -1 else case["expected"])
    if "memoryAfter" in case:
        assert store.in_memory(QUEUE) == case["memoryAfter"]


@pytest.mark.parametrize("case", CASES["compute_pull_from_where"])
def test_a_queue_begins_where_rocketmq_begins(case: dict[str, Any]) -> None:
    broker = case["broker"] or {}

    async def max_offset(queue: MessageQueue) -> int:
        return int(broker["max"])

    async def search_offset(queue: MessageQueue, timestamp_ms: int) -> int:
        assert timestamp_ms == 1234
        return int(broker["search"])

    async def begin() -> int:
        queue = MessageQueue(case["topic"], "broker-a", 0)
        unreachable = case["readFromStore"] == -2
        known = {} if case["readFromStore"] < 0 else {queue: case["readFromStore"]}
        store = BrokerOffsetStore(Broker(known, fails=unreachable))
        return await start_offset(
            queue,
            await store.read(queue, ReadOffset.READ_FROM_STORE),
            StartOffsetAsk(max_offset, search_offset),
            where=ConsumeFromWhere[
                {
                    "LAST": "CONSUME_FROM_LAST_OFFSET",
                    "FIRST": "CONSUME_FROM_FIRST_OFFSET",
                    "TIMESTAMP": "CONSUME_FROM_TIMESTAMP",
                }[case["consumeFromWhere"]]
            ],
            timestamp_ms=1234,
        )

    if isinstance(case["expected"], str):
        with pytest.raises(TidemarkError):
            run(begin())
    else:
        assert run(begin()) == case["expected"]


@pytest.mark.parametrize(
    "where",
    [
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST,
        ConsumeFromWhere.CONSUME_FROM_MIN_OFFSET,
        ConsumeFromWhere.CONSUME_FROM_MAX_OFFSET,
    ],
)
def test_the_deprecated_values_mean_last_offset(where: ConsumeFromWhere) -> None:
    assert start_rule(where, "T") is StartRule.MAX
    assert start_rule(where, "%RETRY%g") is StartRule.ZERO


def test_persisting_all_reports_the_queues_held_and_forgets_the_others() -> None:
    broker = Broker()
    answered: list[tuple[MessageQueue, int]] = []
    store = BrokerOffsetStore(broker, lambda queue, offset: answered.append((queue, offset)))
    store.update(QUEUE, 5, increase_only=True)
    store.update(OTHER, 9, increase_only=True)

    run(store.persist_all([QUEUE], CommitTrigger.TIMER))

    assert broker.reports == [(QUEUE, 5, CommitTrigger.TIMER)]
    assert answered == [(QUEUE, 5)]
    assert store.clone() == {QUEUE: 5}


def test_a_failed_report_is_kept_for_the_next_round() -> None:
    broker = Broker(fails=True)
    store = BrokerOffsetStore(broker)
    store.update(QUEUE, 5, increase_only=True)
    run(store.persist_all([QUEUE], CommitTrigger.TIMER))
    broker.fails = False
    run(store.persist_all([QUEUE], CommitTrigger.SHUTDOWN))
    assert broker.reports == [(QUEUE, 5, CommitTrigger.SHUTDOWN)]


def test_concurrent_reports_never_lower_an_offset_and_orderly_ones_may() -> None:
    store = BrokerOffsetStore(Broker())
    store.update(QUEUE, 8, increase_only=True)
    store.update(QUEUE, 3, increase_only=True)
    assert store.in_memory(QUEUE) == 8
    store.update(QUEUE, 3, increase_only=False)
    assert store.in_memory(QUEUE) == 3


def test_a_frozen_queue_moves_again_after_it_was_removed() -> None:
    store = BrokerOffsetStore(Broker())
    store.update(QUEUE, 8, increase_only=True)
    store.update_and_freeze(QUEUE, 2)
    store.update(QUEUE, 9, increase_only=True)
    assert store.in_memory(QUEUE) == 2
    store.remove(QUEUE)
    store.update(QUEUE, 9, increase_only=True)
    assert store.in_memory(QUEUE) == 9
