"""The producer against brokers that refuse, stay silent or go away: when it tries again, where, and
what it says.

Feature rows: D1.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter

import pytest

from engine.client.config import ProducerConfig
from engine.client.producer import Producer
from engine.client.sending.queue_choice import select_by_hash
from engine.client.sending.send_result import SendResult, SendStatus
from engine.foundation.errors import (
    ClusterError,
    ConfigError,
    LocalProtocolError,
    RequestRefused,
    RequestTimedOut,
    TidemarkError,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.compression import CompressionType, decompress
from engine.protocol.message import Message, MessageQueue
from engine.protocol.properties import decode_properties
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.unit.client.scripted_cluster import ScriptedCluster, with_cluster

TWO_BROKERS = {"T": {"broker-a": 2, "broker-b": 2}}
ONE_BROKER = {"T": {"broker-a": 4}}


async def started(cluster: ScriptedCluster, runtime: Runtime, **settings: object) -> Producer:
    producer = Producer(
        runtime,
        cluster.config(),
        "g",
        producer=ProducerConfig(**settings),  # type: ignore[arg-type]
    )
    await producer.start()
    return producer


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_messages_go_round_all_queues_of_all_brokers(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    queues = Counter([(await producer.send(Message("T", b"x"))).queue for _ in range(8)])
    assert set(queues.values()) == {2}
    assert len(queues) == 4
    await producer.stop()


@run_by(with_cluster, topics={"T": {"broker-a": 4}, "U": {"broker-a": 4}})
async def test_topics_that_are_sent_to_in_turns_each_go_round_all_their_queues(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    sent = [(await producer.send(Message(topic, b"x"))).queue for _ in range(8) for topic in "TU"]
    assert {(queue.topic, queue.queue_id) for queue in sent} == {
        (topic, queue_id) for topic in "TU" for queue_id in range(4)
    }
    await producer.stop()


@pytest.mark.parametrize(
    "code",
    [
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.GO_AWAY,
    ],
)
@run_by(with_cluster, topics=TWO_BROKERS)
async def test_a_refusal_that_another_broker_may_not_share_is_tried_there(
    cluster: ScriptedCluster, runtime: Runtime, *, code: ResponseCode
) -> None:
    cluster.brokers["broker-a"].script = [code] * 9
    producer = await started(cluster, runtime)
    for _ in range(4):
        result = await producer.send(Message("T", b"x"))
        assert result.queue.broker_name == "broker-b"
    refused = Counter(
        decode_properties(request.fields["i"])["UNIQ_KEY"]
        for request in cluster.brokers["broker-a"].received
    )
    assert set(refused.values()) == {1}, "the next try goes elsewhere at once"
    await producer.stop()


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_a_refusal_of_the_message_itself_is_final(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    for broker in cluster.brokers.values():
        broker.script = [ResponseCode.MESSAGE_ILLEGAL]
    producer = await started(cluster, runtime)
    with pytest.raises(RequestRefused, match="by script") as refused:
        await producer.send(Message("T", b"x"))
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert sum(len(broker.received) for broker in cluster.brokers.values()) == 1
    await producer.stop()


@run_by(with_cluster, topics=ONE_BROKER)
async def test_after_three_tries_the_last_refusal_passes_and_all_tries_carry_one_key(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    broker = cluster.brokers["broker-a"]
    broker.script = [ResponseCode.SYSTEM_BUSY] * 3
    producer = await started(cluster, runtime)
    message = Message("T", b"x")
    with pytest.raises(RequestRefused):
        await producer.send(message)
    result = await producer.send(message)
    keys = {decode_properties(request.fields["i"])["UNIQ_KEY"] for request in broker.received}
    assert len(broker.received) == 4
    assert keys == {result.message_id}
    await producer.stop()


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_silence_is_reported_as_unknown_within_the_time_allowed(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    for broker in cluster.brokers.values():
        broker.script = [None] * 9
    producer = await started(cluster, runtime)
    began_ms = runtime.clock.steady_ms()
    with pytest.raises(RequestTimedOut):
        await producer.send(Message("T", b"x"), timeout_ms=700)
    assert 700 <= runtime.clock.steady_ms() - began_ms <= 900
    await producer.stop()


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_a_broker_that_went_away_is_avoided(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    for _ in range(4):
        await producer.send(Message("T", b"x"))
    cluster.world.node(cluster.brokers["broker-a"].host).crash(power_cut=False)
    for _ in range(4):
        result = await producer.send(Message("T", b"x"))
        assert result.queue.broker_name == "broker-b"
    await producer.stop()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, SendStatus.SEND_OK),
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
@run_by(with_cluster, topics=ONE_BROKER)
async def test_a_stored_message_is_not_sent_again_whatever_its_status(
    cluster: ScriptedCluster, runtime: Runtime, *, code: ResponseCode, status: SendStatus
) -> None:
    cluster.brokers["broker-a"].script = [code]
    producer = await started(cluster, runtime)
    result = await producer.send(Message("T", b"x"))
    assert result.status is status
    assert len(cluster.brokers["broker-a"].received) == 1
    await producer.stop()


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_a_wish_for_a_better_status_elsewhere_sends_again(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    for broker in cluster.brokers.values():
        broker.script = [ResponseCode.FLUSH_DISK_TIMEOUT]
    producer = await started(cluster, runtime, retry_another_broker_when_not_stored_ok=True)
    result = await producer.send(Message("T", b"x"))
    assert result.status is SendStatus.SEND_OK
    assert sum(len(broker.received) for broker in cluster.brokers.values()) == 3
    await producer.stop()


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_a_selected_queue_is_the_only_one_tried(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    message = Message("T", b"x")
    chosen = (await producer.send(message, selector=select_by_hash, argument="k")).queue
    cluster.brokers[chosen.broker_name].script = [ResponseCode.SYSTEM_BUSY]
    with pytest.raises(RequestRefused):
        await producer.send(message, selector=select_by_hash, argument="k")
    cluster.brokers[chosen.broker_name].script = []
    assert (await producer.send(message, queue=chosen)).queue == chosen
    with pytest.raises(LocalProtocolError, match="not a queue of the message's topic"):
        await producer.send(message, queue=MessageQueue("U", "broker-a", 0))
    with pytest.raises(ConfigError, match="not both"):
        await producer.send(message, queue=chosen, selector=select_by_hash)
    await producer.stop()


@run_by(with_cluster, topics=ONE_BROKER)
async def test_a_long_body_travels_compressed_and_the_message_keeps_its_own(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    message = Message("T", b"abcd" * 1024)
    await producer.send(message)
    await producer.send(Message("T", b"x" * 4095))
    long, short = cluster.brokers["broker-a"].received
    assert message.body == b"abcd" * 1024
    assert zlib.decompress(long.body) == message.body
    assert int(long.fields["f"]) == 0x301
    assert (len(short.body), short.fields["f"]) == (4095, "0")
    await producer.stop()


@pytest.mark.parametrize("kind", list(CompressionType))
@run_by(with_cluster, topics=ONE_BROKER)
async def test_a_body_compressed_in_any_kind_comes_back(
    cluster: ScriptedCluster, runtime: Runtime, *, kind: CompressionType
) -> None:
    producer = await started(cluster, runtime, compress_type=kind, compress_over_bytes=100)
    await producer.send(Message("T", b"abc" * 2000))
    (request,) = cluster.brokers["broker-a"].received
    bits = {"LZ4": 0x101, "ZSTD": 0x201, "ZLIB": 0x301}[kind.value]
    assert int(request.fields["f"]) == bits
    assert len(request.body) < 1000
    assert decompress(request.body, bits) == b"abc" * 2000
    await producer.stop()


@run_by(with_cluster, topics=ONE_BROKER)
async def test_a_batch_is_one_request_with_one_key_per_message(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    messages = [Message("T", b"1"), Message("T", b"2")]
    result = await producer.send_batch(messages)
    (request,) = cluster.brokers["broker-a"].received
    assert request.code == RequestCode.SEND_BATCH_MESSAGE
    assert request.fields["m"] == "true"
    assert result.message_id == ",".join(m.properties["UNIQ_KEY"] for m in messages)
    await producer.stop()


@pytest.mark.parametrize(
    ("messages", "rule"),
    [
        ([], "1 to"),
        ([Message("T", b"1"), Message("U", b"2")], "of one topic"),
        ([Message("T", b"1", {"DELAY": "3"})], "delivered at once"),
        ([Message("T", b"1", {"WAIT": "false"}), Message("T", b"2")], "alike"),
        ([Message("%RETRY%g", b"1")], "cannot be sent as a batch"),
    ],
)
@run_by(with_cluster, topics=ONE_BROKER)
async def test_what_is_no_batch_is_refused_before_it_is_sent(
    cluster: ScriptedCluster, runtime: Runtime, *, messages: list[Message], rule: str
) -> None:
    producer = await started(cluster, runtime)
    with pytest.raises(LocalProtocolError, match=rule):
        await producer.send_batch(messages)
    assert not cluster.brokers["broker-a"].received
    await producer.stop()


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        (Message("T", b""), "empty"),
        (Message("T", b"x" * ((4 << 20) + 1)), "at most 4194304"),
        (Message("no good", b"x"), "topic"),
        (Message("", b"x"), "topic"),
        (Message("T", b"x", {"k": "v" * 32_767}), "at most 32767"),
    ],
)
@run_by(with_cluster, topics=ONE_BROKER)
async def test_an_illegal_message_is_refused_before_it_is_sent(
    cluster: ScriptedCluster, runtime: Runtime, *, message: Message, rule: str
) -> None:
    producer = await started(cluster, runtime)
    with pytest.raises(RequestRefused, match=rule):
        await producer.send(message)
    await producer.stop()


@run_by(with_cluster, topics={"TBW102": {"broker-a": 8}})
async def test_an_unknown_topic_is_sent_to_where_the_broker_would_make_it(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    queues = {(await producer.send(Message("New", b"x"))).queue.queue_id for _ in range(8)}
    assert queues == {0, 1, 2, 3}, "four queues, though the template has eight"
    await producer.stop()


@run_by(with_cluster, topics=ONE_BROKER)
async def test_an_unknown_topic_without_a_template_is_refused(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    with pytest.raises(RequestRefused, match="no broker takes messages of topic New"):
        await producer.send(Message("New", b"x"))
    await producer.stop()


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_callbacks_hear_the_result_or_the_error_and_retries_stay_on_one_broker(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    for broker in cluster.brokers.values():
        broker.script = [ResponseCode.SYSTEM_BUSY]
    producer = await started(cluster, runtime)
    heard: list[SendResult | TidemarkError] = []
    producer.send_async(Message("T", b"x"), heard.append)
    await cluster.world.until("an answer", lambda: bool(heard), within_s=5)
    assert isinstance(heard[0], SendResult)
    assert sorted(len(broker.received) for broker in cluster.brokers.values()) == [0, 2]

    producer.send_async(Message("no good", b"x"), heard.append)
    await cluster.world.until("an error", lambda: len(heard) == 2, within_s=5)
    assert isinstance(heard[1], RequestRefused)
    await producer.stop()


@run_by(with_cluster, topics=ONE_BROKER)
async def test_one_way_messages_arrive_without_an_answer(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    broker = cluster.brokers["broker-a"]
    await producer.send_oneway(Message("T", b"x"))
    await producer.send_oneway(Message("T", b"y"), selector=select_by_hash, argument="k")
    await cluster.world.until("both", lambda: len(broker.received) == 2, within_s=5)
    assert all(request.is_oneway for request in broker.received)
    await producer.stop()


@run_by(with_cluster, topics=ONE_BROKER)
async def test_a_one_way_message_is_lost_without_a_word(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    broker = cluster.brokers["broker-a"]
    broker.script = [ResponseCode.SYSTEM_BUSY]
    await producer.send_oneway(Message("T", b"x"))
    await asyncio.sleep(5)
    assert len(broker.received) == 1, "nobody hears of the refusal, so nobody tries again"
    await producer.stop()


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_heartbeats_go_to_every_broker_and_stop_takes_leave_once(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    await producer.start()
    await producer.send(Message("T", b"x"))
    await asyncio.sleep(70)
    await producer.stop()
    await producer.stop()
    for broker in cluster.brokers.values():
        assert broker.heartbeats == 3
        assert broker.left == [{"clientID": producer.client_id, "producerGroup": "g"}]
    with pytest.raises(ClusterError, match="not running"):
        await producer.send(Message("T", b"x"))


@run_by(with_cluster, topics=ONE_BROKER)
async def test_stopping_what_never_started_does_nothing(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = Producer(runtime, cluster.config(), "g")
    await producer.stop()
    assert not any(broker.left for broker in cluster.brokers.values())


@run_by(with_cluster, topics=ONE_BROKER)
async def test_two_producers_of_a_host_have_ids_of_their_own(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    one, two = (Producer(runtime, cluster.config(), "g") for _ in range(2))
    assert one.client_id != two.client_id
    named = Producer(runtime, cluster.config(instance_name="mine"), "g")
    assert named.client_id.endswith("@mine")
