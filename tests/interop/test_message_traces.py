"""Row D6: RocketMQ's codec and mqadmin read our clients' traces, and we read Java's."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.admin import Admin
from engine.client import ClientConfig, Producer, PushConsumer
from engine.client.transaction_producer import TransactionProducer, TransactionState
from engine.protocol.trace import (
    ConsumedTrace,
    ConsumeEnd,
    ConsumingTrace,
    EndTransactionTrace,
    SentTrace,
    Trace,
    TracedKind,
    decode_traces,
    encode_trace,
)
from engine.runtime import system_runtime
from tests.integration.client.cluster_users import (
    Seen,
    client_config,
    consumer_config,
    eventually,
    text,
)
from tests.integration.client.stories import make_topic
from tests.interop.java_clients import CHECK_TIMEOUT_S, JavaChecks
from tests.interop.mqadmin import said_by_mqadmin
from tests.interop.our_engine import OurEngine
from tests.unit.protocol.test_traces import TRACES

TOPIC = "traced"


def test_the_official_codec_reads_our_traces_and_we_read_its(java_checks: JavaChecks) -> None:
    ours = "".join(encode_trace(trace) for trace, _ in TRACES)
    verdict = java_checks.run("TraceCodec", "none", ours.encode().hex())
    assert verdict.startswith("PASS TraceCodec "), verdict
    its = bytes.fromhex(verdict.split()[2]).decode()
    traces = decode_traces(its)
    assert "".join(encode_trace(trace) for trace in traces) == its
    kinds = [SentTrace, ConsumingTrace, ConsumingTrace, ConsumedTrace, ConsumedTrace]
    assert [type(trace) for trace in traces] == [*kinds, EndTransactionTrace]


async def traces_of(engine: OurEngine, message_id: str, count: int) -> list[Trace]:
    async with Admin(system_runtime(), client_config(engine.name_server)) as admin:
        found: list[Trace] = []

        async def all_there() -> bool:
            found[:] = await admin.messages.traces(message_id)
            return len(found) >= count

        await eventually(all_there, f"{count} traces of {message_id}")
        return found


async def send_and_consume(engine: OurEngine) -> str:
    """One traced message by our clients; its id."""
    config = ClientConfig(namesrv_addresses=(engine.name_server,), enable_trace=True)
    await make_topic(engine, TOPIC, queues=1)
    seen = Seen()
    consumer = PushConsumer(
        system_runtime(), config, "traced_c", consumer=consumer_config(consume_timeout_ms=60_000)
    )
    consumer.subscribe(TOPIC, "*", seen)
    producer = Producer(system_runtime(), config, "traced_p")
    await producer.start()
    await consumer.start()
    sent = await producer.send(text(TOPIC, "body", TAGS="A", KEYS="order-7 pay-9"))
    await eventually(lambda: seen.messages, "the message")
    await consumer.stop()
    await producer.stop()
    return sent.message_id


@pytest.mark.timeout(120)
def test_mqadmin_reads_the_traces_of_our_clients(
    engine_process: OurEngine, java_checks: JavaChecks, tmp_path: Path
) -> None:
    message_id = asyncio.run(send_and_consume(engine_process))
    traces = asyncio.run(traces_of(engine_process, message_id, 3))
    by_type = {type(trace): trace for trace in traces}
    sent, consuming, consumed = (
        by_type[kind] for kind in (SentTrace, ConsumingTrace, ConsumedTrace)
    )
    assert isinstance(sent, SentTrace)
    assert (sent.topic, sent.tags, sent.keys, sent.group) == (
        *(TOPIC, "A", "order-7 pay-9", "traced_p"),
    )
    assert (sent.store_host, sent.kind) == (engine_process.broker, TracedKind.NORMAL)
    assert isinstance(consuming, ConsumingTrace)
    assert isinstance(consumed, ConsumedTrace)
    assert consumed.request_id == consuming.request_id
    assert (consumed.end, consumed.group) == (ConsumeEnd.SUCCESS, "traced_c")
    words = ("queryMsgTraceById", "-n", engine_process.name_server, "-i", message_id)
    output = said_by_mqadmin(java_checks, tmp_path, *words)
    assert "traced_p" in output, output
    assert "traced_c" in output, output
    assert output.count("success") == 2, output


async def test_a_transaction_is_traced_with_its_decision(engine_process: OurEngine) -> None:
    config = ClientConfig(namesrv_addresses=(engine_process.name_server,), enable_trace=True)
    producer = TransactionProducer(
        *(system_runtime(), config, "traced_tx"),
        execute=lambda _message, _argument: TransactionState.ROLLBACK,
        check=lambda _message: TransactionState.UNKNOWN,
    )
    await producer.start()
    sent = await producer.send_in_transaction(text("tracedTx", "half", KEYS="k"))
    await producer.stop()
    half, end = await traces_of(engine_process, sent.half.message_id, 2)
    assert isinstance(half, SentTrace)
    assert half.kind is TracedKind.TRANSACTION_HALF
    assert isinstance(end, EndTransactionTrace)
    assert (end.state.value, end.from_check, end.keys) == ("ROLLBACK_MESSAGE", False, "k")
    assert end.store_host == engine_process.broker


@pytest.mark.timeout(CHECK_TIMEOUT_S + 60)
def test_we_read_the_traces_of_java_clients(
    engine_process: OurEngine, java_checks: JavaChecks
) -> None:
    verdict = java_checks.run("TracedSend", engine_process.name_server)
    assert verdict.startswith("PASS TracedSend "), verdict
    traces = asyncio.run(traces_of(engine_process, verdict.split()[2], 3))
    kinds = sorted(type(trace).__name__ for trace in traces)
    assert kinds == ["ConsumedTrace", "ConsumingTrace", "SentTrace"]
    assert {trace.keys for trace in traces} == {"key1 key2"}
    assert {trace.success for trace in traces if isinstance(trace, SentTrace)} == {True}
