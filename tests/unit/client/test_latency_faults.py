"""Slow and refusing brokers are left alone for RocketMQ's times, and never all of them at once.

Feature rows: D1.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from engine.client.config import ProducerConfig
from engine.client.producer import Producer
from engine.client.sending.queue_choice import LatencyFaults, not_available_ms
from engine.foundation.errors import RequestTimedOut
from engine.protocol.message import Message
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.unit.client.scripted_cluster import ScriptedCluster, with_cluster

TWO_BROKERS = {"T": {"broker-a": 2, "broker-b": 2}}


@pytest.mark.parametrize(
    ("latency_ms", "rest_ms"),
    [
        *((0, 0), (49, 0), (50, 0), (100, 0), (549, 0)),
        *((550, 2000), (1799, 2000), (1800, 5000), (2999, 5000), (3000, 6000), (4999, 6000)),
        *((5000, 10_000), (14_999, 10_000), (15_000, 30_000), (90_000, 30_000)),
    ],
)
def test_the_rest_grows_with_the_latency_in_rocketmqs_classes(
    latency_ms: int, rest_ms: int
) -> None:
    assert not_available_ms(latency_ms) == rest_ms


def test_a_slow_broker_is_available_again_after_its_rest_and_a_quick_answer_ends_it_at_once() -> (
    None
):
    faults = LatencyFaults()
    assert faults.is_available("b", 0), "unknown brokers are fine"
    faults.answered("b", 600, now_ms=1000)
    assert not faults.is_available("b", 2999)
    assert faults.is_available("b", 3000)
    faults.answered("b", 20_000, now_ms=1000)
    faults.answered("b", 3, now_ms=1001)
    assert faults.is_available("b", 1001)


def test_a_refusal_makes_a_broker_unreachable_until_it_takes_a_message() -> None:
    faults = LatencyFaults()
    faults.refused("b", now_ms=0)
    assert not faults.is_reachable("b")
    assert not faults.is_available("b", 9999)
    assert faults.is_available("b", 10_000)
    faults.answered("b", 1, now_ms=10_000)
    assert faults.is_reachable("b")
    faults.unanswered("b", now_ms=20_000)
    assert faults.is_reachable("b")
    assert not faults.is_available("b", 29_999)


async def producer_with_faults(
    cluster: ScriptedCluster, runtime: Runtime, **settings: object
) -> Producer:
    config = ProducerConfig(send_latency_fault_enable=True, **settings)  # type: ignore[arg-type]
    producer = Producer(runtime, cluster.config(), "g", producer=config)
    await producer.start()
    return producer


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_a_silent_broker_is_left_alone_for_ten_seconds_then_asked_again(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    silent, other = cluster.brokers["broker-a"], cluster.brokers["broker-b"]
    producer = await producer_with_faults(cluster, runtime, retry_times=0)
    silent.script = [None]
    while not silent.received:
        with suppress(RequestTimedOut):
            await producer.send(Message("T", b"x"), timeout_ms=500)
    asked = len(silent.received)
    for _ in range(9):
        result = await producer.send(Message("T", b"x"))
        assert result.queue.broker_name == "broker-b"
    assert len(silent.received) == asked
    assert {r.fields["e"] for r in other.received} == {"0", "1"}, "still round its queues"

    await asyncio.sleep(10)
    brokers = {(await producer.send(Message("T", b"x"))).queue.broker_name for _ in range(4)}
    assert brokers == {"broker-a", "broker-b"}
    await producer.stop()


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_when_all_brokers_rest_one_that_answers_is_still_asked(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await producer_with_faults(cluster, runtime)
    faults = producer._sender._faults
    assert faults is not None
    faults.refused("broker-a", now_ms=runtime.clock.steady_ms())
    faults.unanswered("broker-b", now_ms=runtime.clock.steady_ms())
    brokers = [(await producer.send(Message("T", b"x"))).queue.broker_name for _ in range(3)]
    assert brokers == ["broker-b"] * 3, "it did not say no"
    await producer.stop()
