"""Requests in the other direction: a consumer shows itself, is reset, takes a message by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from engine.client.config import ConsumerConfig
from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.consuming.concurrent_service import ConcurrentService
from engine.client.consuming.consume_stats import FlowControl
from engine.client.consuming.inbound_requests import BrokerRequests, ServedConsumer
from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ListenerAnswer,
)
from engine.client.consuming.queue_locks import QueueLocks
from engine.client.consuming.rebalance import RebalanceHooks, Rebalancer
from engine.client.consuming.start_offset import StartOffsetAsk
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import ConsumerRunningInfo, decode_offset_table, encode_object_keyed
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.message_record import encode_record
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.simulation.world import World
from tests.simulation.world.world import EPOCH_MS
from tests.unit.client.consuming_parts import (
    Q0,
    Q1,
    Broker,
    group_state,
    in_virtual_time,
    window_of,
)
from tests.unit.client.messages import message_at

SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS


class Asked:
    """A consumer's parts, reached only through its handlers."""

    def __init__(self, runtime: Runtime, listener: Callable[..., object]) -> None:
        self.broker = Broker()
        self.state = group_state(self.broker, listener, ConsumerConfig())  # type: ignore[arg-type]
        self.tasks = OwnedTasks("test")
        self.taken_up: list[tuple[MessageQueue, int]] = []
        service = ConcurrentService(self.state, runtime.clock, self.tasks, self._send_back)
        self.rebalancer = Rebalancer(
            self.state,
            runtime.clock,
            self,
            locks=QueueLocks(self.state, runtime.clock, self.broker),
            ask=StartOffsetAsk(self._offset, self._offset_at),
            consume_timestamp_ms=0,
            hooks=RebalanceHooks(self._on_taken_up, self._on_changed, self._batch_ended),
        )
        requests = BrokerRequests()
        requests.serve(
            ServedConsumer(
                *(self.state, self.rebalancer, service, self.tasks, runtime.clock, 1, "ns:9876")
            )
        )
        self._handlers = requests.handlers()

    async def ask(self, code: RequestCode, body: bytes = b"", **fields: str) -> RemotingCommand:
        peer: Any = _Peer()
        answer = self._handlers[code](peer, RemotingCommand.request(code, fields, body))
        if isinstance(answer, Awaitable):
            answer = await answer
        assert answer is not None
        return answer

    def notify(self, code: RequestCode, **fields: str) -> None:
        peer: Any = _Peer()
        assert self._handlers[code](peer, RemotingCommand.request(code, fields)) is None

    async def queues(self, topic: str) -> Sequence[MessageQueue] | None:
        return [Q0, Q1]

    async def members(self, topic: str) -> Sequence[str] | None:
        return [self.state.client_id]

    async def _send_back(self, message: MessageExt, level: int, queue: MessageQueue) -> bool:
        return True

    async def _offset(self, queue: MessageQueue) -> int:
        return 0

    async def _offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return 0

    def _on_taken_up(self, queue: MessageQueue, window: object, offset: int) -> None:
        self.taken_up.append((queue, offset))

    async def _on_changed(self, topic: str, held: int) -> None:
        pass

    async def _batch_ended(self, queue: MessageQueue, wait_ms: int) -> bool:
        return True


@dataclass
class _Peer:
    """Who asks; handlers only name it in their log."""

    address: str = "10.0.0.3:1"


@run_by(in_virtual_time)
async def test_a_consumer_shows_its_windows_as_rocketmq_reads_them_and_more(
    world: World, runtime: Runtime
) -> None:
    asked = Asked(runtime, lambda _m, _c: SUCCESS)
    messages = [
        message_at(offset, 1000, properties={"UNIQ_KEY": f"K{offset}"}) for offset in range(5, 10)
    ]
    window = window_of(asked.state, Q0, messages)
    window.mark_started([5], 77)
    asked.state.offsets.update(Q0, 5, increase_only=True)
    window.remove([6, 7], 88)
    window.resting = FlowControl.SPAN

    answer = await asked.ask(
        RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="me"
    )
    info = ConsumerRunningInfo.decode(answer.body)
    shown = info.mq_table[Q0]

    assert (shown.commit_offset, shown.cached_msg_count) == (5, 3)
    assert (shown.cached_msg_min_offset, shown.cached_msg_max_offset) == (5, 9)
    assert (shown.last_consume_timestamp_ms, shown.dropped) == (EPOCH_MS + 88, False)
    assert (shown.finished_count, shown.resting) == (2, "SPAN")
    assert shown.held_ranges == [(5, 6), (8, 10)]
    assert (shown.head_message_id, shown.head_since_ms) == ("K5", EPOCH_MS + 77)
    assert (shown.processed_offset, shown.client_committed) == (8, 5)
    assert shown.held_bytes == 3000
    assert info.properties["PROP_NAMESERVER_ADDR"] == "ns:9876"
    assert info.properties["PROP_CLIENT_CLOCK"] == str(runtime.clock.now_ms())
    assert [data.topic for data in info.subscription_set] == ["T"]


@run_by(in_virtual_time)
async def test_an_empty_window_shows_unknown_as_null(world: World, runtime: Runtime) -> None:
    asked = Asked(runtime, lambda _m, _c: SUCCESS)
    window_of(asked.state, Q0, [])
    answer = await asked.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g")
    shown = ConsumerRunningInfo.decode(answer.body).mq_table[Q0]
    assert shown.head_message_id is shown.head_since_ms is shown.processed_offset is None
    assert shown.client_committed is None


@pytest.mark.parametrize(
    "code", [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY]
)
@run_by(in_virtual_time)
async def test_a_question_about_another_group_is_refused(
    world: World, runtime: Runtime, *, code: RequestCode
) -> None:
    asked = Asked(runtime, lambda _m, _c: SUCCESS)
    with pytest.raises(RequestRefused, match="'other' is not on this client"):
        await asked.ask(code, consumerGroup="other")


@run_by(in_virtual_time)
async def test_the_offsets_in_memory_are_shown_by_queue(world: World, runtime: Runtime) -> None:
    asked = Asked(runtime, lambda _m, _c: SUCCESS)
    asked.state.offsets.update(Q0, 5, increase_only=True)
    asked.state.offsets.update(MessageQueue("U", "b", 0), 9, increase_only=True)
    answer = await asked.ask(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, group="g", topic="T")
    renamed = bytes(answer.body).replace(b"messageQueueTable", b"offsetTable")
    assert decode_offset_table(renamed) == {Q0: 5}


@run_by(in_virtual_time)
async def test_a_reset_drops_the_queue_and_begins_again_at_the_ordered_offset(
    world: World, runtime: Runtime
) -> None:
    asked = Asked(runtime, lambda _m, _c: SUCCESS)
    old = window_of(asked.state, Q0, [message_at(50)])
    asked.state.offsets.update(Q0, 50, increase_only=True)
    rounds = asyncio.get_running_loop().create_task(asked.rebalancer.run())
    body = encode_object_keyed("offsetTable", {Q0: 10, MessageQueue("U", "b", 0): 3})
    answer = await asked.ask(
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET, body, group="g", topic="T", timestamp="1"
    )
    assert answer.code == ResponseCode.SUCCESS
    await world.until("taken up anew", lambda: (Q0, 10) in asked.taken_up, within_s=5)
    assert old.dropped
    assert old.count == 0
    assert ("commit HAND_OVER", (Q0, 10)) in asked.broker.calls
    rounds.cancel()


@run_by(in_virtual_time)
async def test_a_change_of_members_wakes_the_rebalance_of_that_group_only(
    world: World, runtime: Runtime
) -> None:
    asked = Asked(runtime, lambda _m, _c: SUCCESS)
    rounds = asyncio.get_running_loop().create_task(asked.rebalancer.run())
    asked.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="other")
    await asyncio.sleep(1)
    assert not asked.taken_up
    asked.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, consumerGroup="g")
    await world.until("a round", lambda: bool(asked.taken_up), within_s=1)
    rounds.cancel()


@pytest.mark.parametrize(
    ("behaviour", "word"),
    [
        (SUCCESS, "CR_SUCCESS"),
        (ConsumeConcurrentlyStatus.RECONSUME_LATER, "CR_LATER"),
        (None, "CR_RETURN_NULL"),
        (ValueError("no"), "CR_THROW_EXCEPTION"),
    ],
)
@run_by(in_virtual_time)
async def test_a_message_given_by_hand_is_answered_with_rocketmqs_word(
    world: World, runtime: Runtime, *, behaviour: ListenerAnswer | Exception, word: str
) -> None:
    got: list[bytes] = []

    async def listener(messages: Sequence[MessageExt], _: ConsumeContext) -> ListenerAnswer:
        got.append(bytes(messages[0].body))
        await asyncio.sleep(0.25)
        if isinstance(behaviour, Exception):
            raise behaviour
        return behaviour

    asked = Asked(runtime, listener)
    record = bytes(encode_record(message_at(3, 5)))
    answer = await asked.ask(
        RequestCode.CONSUME_MESSAGE_DIRECTLY, record, consumerGroup="g", brokerName="broker-a"
    )
    answer_body = json.loads(bytes(answer.body))
    assert got == [b"xxxxx"]
    assert (answer_body["consumeResult"], answer_body["spentTimeMills"]) == (word, 250)
    assert asked.state.offsets.clone() == {}
