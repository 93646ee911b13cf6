"""Sends nobody waits for are bounded; a message that may be stored goes to no other broker.

Feature rows: D1, D2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from engine.client.producer import Producer
from engine.client.sending.queue_choice import select_by_index
from engine.client.sending.send_result import SendResult, SendStatus
from engine.foundation.errors import (
    ClusterError,
    ConnectionLost,
    RequestRefused,
    RequestTimedOut,
    TidemarkError,
    Unreachable,
)
from engine.protocol.codes import ResponseCode
from engine.protocol.message import Message, MessageQueue
from engine.protocol.names import DEDUPLICATION_FLAG
from engine.protocol.properties import decode_properties
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.unit.client.scripted_cluster import ScriptedCluster, with_cluster
from tests.unit.client.test_sending import ONE_BROKER, TWO_BROKERS, started


@run_by(with_cluster, topics=ONE_BROKER)
async def test_sends_beyond_the_window_are_refused_or_wait_for_room(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    broker = cluster.brokers["broker-a"]
    broker.script = [None, None]
    producer = await started(cluster, runtime, async_sends_max=2, async_bytes_max=10, retry_times=0)
    heard: list[SendResult | TidemarkError] = []
    for _ in range(2):
        producer.send_async(Message("T", b"abc"), heard.append, timeout_ms=1000)
    with pytest.raises(ClusterError, match="2 sends with 6 bytes are under way"):
        producer.send_async(Message("T", b"x"), heard.append)
    with pytest.raises(ClusterError, match="no room for one more send within 500 ms"):
        await producer.begin_send(Message("T", b"x"), heard.append, timeout_ms=500)
    assert len(broker.received) == 2, "nothing was sent without room"

    began_ms = runtime.clock.steady_ms()
    await producer.begin_send(Message("T", b"waited"), heard.append)
    assert runtime.clock.steady_ms() - began_ms >= 400, "until the first two had timed out"
    await cluster.world.until("all are answered", lambda: len(heard) == 3, within_s=5)
    assert [type(end) for end in heard] == [RequestTimedOut, RequestTimedOut, SendResult]
    big = Message("T", b"more than the window")
    await producer.begin_send(big, heard.append)
    with pytest.raises(ClusterError, match="20 bytes"):
        producer.send_async(Message("T", b"x"), heard.append)
    await cluster.world.until("the big one", lambda: len(heard) == 4, within_s=5)
    await producer.stop()


BY_SETTING, BY_ATTRIBUTE = "resend_to_same_broker", "message.deduplication"
staying = pytest.mark.parametrize("because", [BY_SETTING, BY_ATTRIBUTE])


async def started_staying(cluster: ScriptedCluster, runtime: Runtime, because: str) -> Producer:
    """A producer that keeps a message on the broker that may have it, by its own setting or because
    the topic's route says that the broker knows it again.
    """
    if because == BY_ATTRIBUTE:
        cluster.topic_sys_flag = DEDUPLICATION_FLAG
        return await started(cluster, runtime)
    return await started(cluster, runtime, resend_to_same_broker=True)


@staying
@run_by(with_cluster, topics={"T": {"broker-a": 2, "broker-b": 2}})
async def test_a_message_that_may_be_stored_is_sent_again_to_the_same_broker_only(
    cluster: ScriptedCluster, runtime: Runtime, *, because: str
) -> None:
    producer = await started_staying(cluster, runtime, because)
    message = Message("T", b"x")
    for broker in cluster.brokers.values():
        broker.script = [None]
    with pytest.raises(RequestTimedOut):
        await producer.send(message, timeout_ms=300)
    first = next(b for b in cluster.brokers.values() if b.received)
    other = next(b for b in cluster.brokers.values() if b is not first)
    other.script = []
    del cluster.topics["T"][first.name]
    await producer._connection.routes.refresh("T")
    with pytest.raises(RequestRefused, match=f"may be stored on {first.name}"):
        await producer.send(message)
    assert not other.received
    another = await producer.send(Message("T", b"another"))
    assert another.queue.broker_name == other.name
    cluster.topics["T"][first.name] = 2
    await producer._connection.routes.refresh("T")
    assert (await producer.send(message)).queue.broker_name == first.name
    keys = {decode_properties(r.fields["i"])["UNIQ_KEY"] for r in first.received}
    assert keys == {message.properties["UNIQ_KEY"]}
    await producer.stop()


@pytest.mark.parametrize(("flag", "names"), [(DEDUPLICATION_FLAG | 3, 1), (3, 2)])
@run_by(with_cluster, topics=TWO_BROKERS)
async def test_a_message_that_is_stored_but_not_safe_is_tried_where_it_is_known_again(
    cluster: ScriptedCluster, runtime: Runtime, *, flag: int, names: int
) -> None:
    """Elsewhere another broker is preferred, as in RocketMQ: the setting asks for duplicates."""
    cluster.topic_sys_flag = flag
    settings = {"retry_another_broker_when_not_stored_ok": True}
    producer = await started(cluster, runtime, **settings)
    for broker in cluster.brokers.values():
        broker.script = [ResponseCode.FLUSH_DISK_TIMEOUT]
    result = await producer.send(Message("T", b"x"))
    assert result.status is (SendStatus.SEND_OK if names == 1 else result.status)
    assert sum(bool(broker.received) for broker in cluster.brokers.values()) == names
    await producer.stop()


@staying
@run_by(with_cluster, topics=TWO_BROKERS)
async def test_a_message_of_a_batch_that_may_be_stored_is_sent_alone_to_the_same_broker(
    cluster: ScriptedCluster, runtime: Runtime, *, because: str
) -> None:
    producer = await started_staying(cluster, runtime, because)
    batch = [Message("T", b"x"), Message("T", b"y")]
    for broker in cluster.brokers.values():
        broker.script = [None]
    with pytest.raises(RequestTimedOut):
        await producer.send_batch(batch, timeout_ms=300)
    first = next(b for b in cluster.brokers.values() if b.received)
    alone = [await producer.send(message) for message in batch]  # Else two brokers take turns.
    assert {result.queue.broker_name for result in alone} == {first.name}
    await producer.stop()


@staying
@run_by(with_cluster, topics=TWO_BROKERS)
async def test_tries_after_a_lost_connection_stay_on_the_broker_that_may_have_the_message(
    cluster: ScriptedCluster, runtime: Runtime, *, because: str
) -> None:
    producer = await started_staying(cluster, runtime, because)
    for broker in cluster.brokers.values():
        broker.script = [None]
    sending = asyncio.ensure_future(producer.send(Message("T", b"x")))
    await cluster.world.until(
        "one broker has it",
        lambda: any(broker.received for broker in cluster.brokers.values()),
        within_s=2,
    )
    first = next(b for b in cluster.brokers.values() if b.received)
    cluster.world.node(first.host).crash(power_cut=False)
    with pytest.raises(Unreachable):
        await sending
    assert sum(len(broker.received) for broker in cluster.brokers.values()) == 1
    await producer.stop()


@run_by(with_cluster, topics=ONE_BROKER)
async def test_an_earlier_try_that_stored_it_counts_more_than_later_refusals(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    codes = [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.MESSAGE_ILLEGAL]
    cluster.brokers["broker-a"].script = [*codes]
    producer = await started(cluster, runtime, retry_another_broker_when_not_stored_ok=True)
    result = await producer.send(Message("T", b"x"))
    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert len(cluster.brokers["broker-a"].received) == 2
    await producer.stop()


@run_by(with_cluster, topics=TWO_BROKERS)
async def test_what_may_be_stored_is_not_shown_as_refused(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime, send_timeout_ms=20_000)
    for broker in cluster.brokers.values():
        broker.script = [None, ResponseCode.MESSAGE_ILLEGAL]
    sending = asyncio.ensure_future(producer.send(Message("T", b"x")))
    await cluster.world.until(
        "one broker has it",
        lambda: any(broker.received for broker in cluster.brokers.values()),
        within_s=2,
    )
    first = next(b for b in cluster.brokers.values() if b.received)
    other = next(b for b in cluster.brokers.values() if b is not first)
    other.script = [ResponseCode.MESSAGE_ILLEGAL]
    cluster.world.node(first.host).crash(power_cut=False)
    with pytest.raises(ConnectionLost) as lost:
        await sending
    assert isinstance(lost.value.__cause__, RequestRefused), "what the last try heard"
    await producer.stop()


def by_no_queue(
    queues: Sequence[MessageQueue], _message: Message, _argument: object
) -> MessageQueue:
    return queues[9]


@run_by(with_cluster, topics=ONE_BROKER)
async def test_a_send_in_the_background_goes_where_its_selector_says(
    cluster: ScriptedCluster, runtime: Runtime
) -> None:
    producer = await started(cluster, runtime)
    ends: list[SendResult | TidemarkError] = []
    for number in range(4):
        message = Message("T", b"x")
        await producer.begin_send(message, ends.append, selector=select_by_index, argument=number)
    producer.send_async(Message("T", b"x"), ends.append, selector=select_by_index, argument=2)
    producer.send_async(Message("T", b"x"), ends.append, selector=by_no_queue)
    await cluster.world.until("all ended", lambda: len(ends) == 6, within_s=2)
    (error,) = [end for end in ends if isinstance(end, TidemarkError)]
    assert "IndexError" in str(error)
    received = cluster.brokers["broker-a"].received
    assert sorted(request.fields["e"] for request in received) == ["0", "1", "2", "2", "3"]
    await producer.stop()
