"""Traces leave in the background and in batches; what becomes of them changes nothing for the
messages they are about.

Feature rows: D6.
"""

from __future__ import annotations

import asyncio

from engine.client.producer import Producer
from engine.client.sending.trace import FLUSH_MS
from engine.foundation.limits import TRACE_KEYS_BYTES_MAX, TRACES_WAITING_MAX
from engine.protocol.compression import decompress
from engine.protocol.message import Message
from engine.protocol.properties import decode_properties
from engine.protocol.trace import SentTrace, decode_traces
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.unit.client.scripted_cluster import ScriptedCluster, with_cluster

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TOPICS = {"T": {"broker-a": 1}, TRACE_TOPIC: {"broker-b": 1}}


async def traced(cluster: ScriptedCluster, runtime: Runtime) -> Producer:
    producer = Producer(runtime, cluster.config(enable_trace=True, trace_batch_max=4), "g")
    await producer.start()
    return producer


@run_by(with_cluster, topics=TOPICS)
async def test_a_full_batch_leaves_at_once_the_rest_after_five_seconds_or_at_the_stop(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    records = cluster.brokers["broker-b"].received
    producer = await traced(cluster, runtime)
    ids = [(await producer.send(Message("T", b"x", {"KEYS": "k"}))).message_id for _ in "12345"]
    await asyncio.sleep(0.1)
    assert len(records) == 1
    traces = decode_traces(bytes(records[0].body).decode())
    assert [trace.message_id for trace in traces] == ids[:4]
    assert all(isinstance(trace, SentTrace) and trace.success for trace in traces)
    assert decode_properties(records[0].fields["i"])["KEYS"].split() == [
        *(ids[0], "k", *ids[1:4]),
    ]
    assert records[0].fields["a"] == "_INNER_TRACE_PRODUCER-g-PRODUCE-1"
    await asyncio.sleep(FLUSH_MS / 1000)
    assert len(records) == 2
    await producer.send(Message("T", b"x"))
    await producer.stop()
    assert len(records) == 3


@run_by(with_cluster, topics=TOPICS)
async def test_sends_wait_for_no_trace_and_traces_that_cannot_leave_are_counted(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    cluster.brokers["broker-b"].script = [None] * 9
    producer = await traced(cluster, runtime)
    began_ms = runtime.clock.steady_ms()
    for _ in range(8):
        await producer.send(Message("T", b"x"))
    assert runtime.clock.steady_ms() - began_ms < 1000
    await asyncio.sleep(20)
    tracer = producer._tracer
    assert tracer is not None
    assert tracer.lost_count == 8
    trace = decode_traces(bytes(cluster.brokers["broker-b"].received[0].body).decode())[0]
    for _ in range(TRACES_WAITING_MAX + 5):
        tracer._append(trace)
    assert tracer.lost_count == 13
    await producer.stop()
    assert tracer.lost_count <= 13 + TRACES_WAITING_MAX


@run_by(with_cluster, topics=TOPICS)
async def test_long_keys_fill_a_record_and_cost_nobody_a_trace(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    records = cluster.brokers["broker-b"].received
    producer = await traced(cluster, runtime)
    long = TRACE_KEYS_BYTES_MAX - 100
    all_keys = ["k" * long, "l" * long, "short", f"{'m' * 28_000} {'n' * 2_000} last"]
    ids = [
        (await producer.send(Message("T", b"x", {"KEYS": keys}))).message_id for keys in all_keys
    ]
    await producer.stop()
    assert producer._tracer is not None
    assert producer._tracer.lost_count == 0
    assert [decode_properties(each.fields["i"])["KEYS"].split() for each in records] == [
        [ids[0], "k" * long],
        [ids[1], "l" * long, ids[2], "short"],
        [ids[3], "m" * 28_000, "last"],
    ]
    bodies = [decompress(bytes(each.body), int(each.fields["f"])) for each in records]
    traces = [one for body in bodies for one in decode_traces(body.decode())]
    assert [(one.message_id, one.keys) for one in traces] == list(zip(ids, all_keys, strict=True))
