"""Serves the requests of brokers to a consumer: rebalance, running info, reset, consume.

Place in the walk: the other direction of the wire.

Invariant: a request for another group is answered with an error, never carried out. Absent on
purpose: deciding; each request is handed to the part it is about.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.consuming.concurrent_service import ConcurrentService
from engine.client.consuming.group_state import GroupState
from engine.client.consuming.listeners import LISTENER_TASK, ListenerOutcome
from engine.client.consuming.orderly_service import OrderlyService
from engine.client.consuming.rebalance import Rebalancer
from engine.client.consuming.running_info import heads, properties, queue_infos, speeds_of
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import (
    decode_offset_table,
    encode_direct_result,
    encode_object_keyed,
    encode_running_info,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.compression import decompress
from engine.protocol.message import MessageQueue
from engine.protocol.message_record import decode_record
from engine.remoting import Handler, Peer
from engine.runtime.clock import Clock

_log = logging.getLogger(__name__)


ListenerService = ConcurrentService | OrderlyService


@dataclass(slots=True)
class ServedConsumer:
    """The parts of one consumer that requests are about."""

    state: GroupState
    rebalancer: Rebalancer
    service: ListenerService | None
    """None for a consumer without listeners."""
    tasks: OwnedTasks
    clock: Clock
    started_ms: int
    namesrv_addresses: str


class BrokerRequests:
    """Handlers for the RPC client; they answer once `serve` said for whom."""

    def __init__(self) -> None:
        self._served: ServedConsumer | None = None

    def serve(self, consumer: ServedConsumer) -> None:
        """From here on requests reach `consumer`."""
        self._served = consumer

    def handlers(self) -> Mapping[int, Handler]:
        """The codes a consumer answers."""
        return {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._on_members_changed,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._on_show_yourself,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._on_reset,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._on_show_offsets,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._on_consume_directly,
        }

    def _consumer(self, group: str | None) -> ServedConsumer:
        if self._served is None or group != self._served.state.group:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"the consumer group {group!r} is not on this client"
            )
        return self._served

    def _on_members_changed(self, peer: Peer, request: RemotingCommand) -> None:
        """Another member came or went; one-way, so a wrong group is only logged."""
        group = request.fields.get("consumerGroup")
        if self._served is None or group != self._served.state.group:
            _log.warning("%s reports members of %r, a group not ours", peer.address, group)
            return
        self._served.rebalancer.wake()

    def _on_show_yourself(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        del peer
        consumer = self._consumer(request.fields.get("consumerGroup"))
        wants_stacks = request.fields.get("jstackEnable") == "true"
        stacks = consumer.tasks.stacks(LISTENER_TASK) if wants_stacks else None
        head_stacks = None
        if wants_stacks and consumer.service is not None:
            head_stacks = consumer.service.head_stacks(heads(consumer.state))
        clock = consumer.clock
        shown = properties(
            *(consumer.state, consumer.started_ms),
            namesrv_addresses=consumer.namesrv_addresses,
            now_ms=clock.steady_ms() + clock.offset_ms(),
        )
        body = encode_running_info(
            shown,
            [s.data for s in consumer.state.subscriptions.values()],
            queue_infos(
                consumer.state,
                offset_ms=clock.offset_ms(),
                head_stacks=head_stacks,
            ),
            speeds_of(consumer.state, now_ms=clock.steady_ms()),
            jstack=stacks,
            listener_pool=None if consumer.service is None else consumer.service.pool(),
        )
        return request.respond(ResponseCode.SUCCESS, body=body)

    def _on_show_offsets(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        del peer
        consumer = self._consumer(request.fields.get("group"))
        offsets = consumer.state.offsets.clone(request.fields.get("topic", ""))
        return request.respond(
            ResponseCode.SUCCESS, body=encode_object_keyed("messageQueueTable", offsets)
        )

    def _on_reset(self, peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        """The offsets to go on from, per queue."""
        del peer
        consumer = self._consumer(request.fields.get("group"))
        topic = request.fields.get("topic", "")
        offsets = {
            queue: offset
            for queue, offset in decode_offset_table(request.body).items()
            if queue.topic == topic
        }
        consumer.tasks.start(self._reset(consumer, offsets), f"reset {topic}")
        return None if request.is_oneway else request.respond(ResponseCode.SUCCESS)

    async def _reset(self, consumer: ServedConsumer, offsets: dict[MessageQueue, int]) -> None:
        """Freeze, report, give up, take up anew: listeners still at work belong to a dropped window
        and change nothing.
        """
        state = consumer.state
        for queue, offset in offsets.items():
            window = state.windows.get(queue)
            if window is None:
                continue
            _log.warning("%s is reset to offset %d", queue, offset)
            window.dropped = True
            window.clear()
            state.offsets.update_and_freeze(queue, offset)
            await consumer.rebalancer.give_up(queue, window)
        consumer.rebalancer.wake()

    async def _on_consume_directly(
        self, peer: Peer, request: RemotingCommand
    ) -> RemotingCommand | None:
        del peer
        consumer = self._consumer(request.fields.get("consumerGroup"))
        message = decode_record(request.body)
        message.body = decompress(message.body, message.sys_flag)
        queue = MessageQueue(message.topic, request.fields.get("brokerName", ""), message.queue_id)
        started_us = consumer.clock.steady_us()
        if consumer.service is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the consumer group {consumer.state.group} has no listener here: it polls",
            )
        outcome = await consumer.service.consume_directly(message, queue)
        spent_ms = (consumer.clock.steady_us() - started_us) // 1000
        body = encode_direct_result(
            direct_result(outcome), orderly=consumer.state.config.orderly, spent_ms=spent_ms
        )
        return request.respond(ResponseCode.SUCCESS, body=body)


def direct_result(outcome: ListenerOutcome) -> str:
    """RocketMQ's word for how a listener call ended."""
    if outcome.error is not None:
        return "CR_THROW_EXCEPTION"
    if outcome.answer is None:
        return "CR_RETURN_NULL"
    return "CR_SUCCESS" if outcome.succeeded else "CR_LATER"
