"""Serves broker requests to a consumer, such as rebalance and running-info requests.

Place in the walk: the other direction of the wire. The running info (codes 307 and 221) has
RocketMQ's form, so that its own tools read it; each queue's entry carries more keys, which make a
frozen head and a duplicate risk visible from outside.

Invariant: a request for another group is answered with an error, never carried out. Absent on
purpose: deciding; each request is handed to the part it is about.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.consuming.concurrent_service import ConcurrentService
from engine.client.consuming.group_state import GroupState
from engine.client.consuming.listeners import LISTENER_TASK, ListenerOutcome
from engine.client.consuming.orderly_service import OrderlyService
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.rebalance import Rebalancer
from engine.foundation.errors import RequestRefused
from engine.foundation.units import MIB
from engine.protocol.bodies import (
    ConsumeStatus,
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
from engine.protocol.names import CLIENT_CLOCK_PROPERTY
from engine.remoting import Handlers, Peer, serves
from engine.runtime.clock import Clock

TOP_KEY_CHARS_MAX: Final = 128
"""Of the key that most held messages have; the rest is cut off."""


def queue_info(
    window: ProcessQueue, client_committed: int | None, *, offset_ms: int
) -> dict[str, Any]:
    """One queue's entry: RocketMQ's ProcessQueueInfo, then ours.

    Times in ms since 1970, by `offset_ms` later than the window's own; null is unknown or none.
    """
    waiting, taken = window.waiting_bounds(), window.taken_bounds()
    head = window.head()
    keys = Counter(window.keys_held())
    top_key, top_key_messages = keys.most_common(1)[0] if keys else (None, 0)
    return {
        "commitOffset": client_committed or 0,
        "cachedMsgMinOffset": waiting[0] if waiting else 0,
        "cachedMsgMaxOffset": waiting[1] if waiting else 0,
        "cachedMsgCount": window.count - window.taken_count,
        "cachedMsgSizeInMiB": window.held_bytes // MIB,
        "transactionMsgMinOffset": taken[0] if taken else 0,
        "transactionMsgMaxOffset": taken[1] if taken else 0,
        "transactionMsgCount": window.taken_count,
        "locked": window.locked,
        "tryUnlockTimes": window.try_unlock_count,
        "lastLockTimestamp": window.last_lock_ms + offset_ms,
        "droped": window.dropped,
        "lastPullTimestamp": window.last_pull_ms + offset_ms,
        "lastConsumeTimestamp": window.last_consume_ms + offset_ms,
        "heldBytes": window.held_bytes,
        "finishedCount": window.finished_count,
        "heldRanges": [list(held) for held in window.held_ranges()],
        "filteredCount": window.filtered_count,
        "headMessageId": head[0].message_id if head else None,
        "headSince": head[1] + offset_ms if head and head[1] is not None else None,
        "processedOffset": window.processed_offset,
        "localRetries": [list(retry) for retry in window.local_retries],
        "clientCommitted": client_committed,
        "topKey": top_key[:TOP_KEY_CHARS_MAX] if top_key else None,
        "topKeyMessages": top_key_messages,
        "keyedMessages": keys.total(),
        "resting": None if window.resting is None else window.resting.value,
    }


def queue_infos(
    state: GroupState, *, offset_ms: int, head_stacks: Mapping[MessageQueue, str] | None = None
) -> dict[MessageQueue, dict[str, Any]]:
    """The entries of all queues this member holds; `offset_ms` as in `queue_info`, `head_stacks`
    where they were asked for.
    """
    infos = {
        queue: queue_info(window, state.offsets.in_memory(queue), offset_ms=offset_ms)
        for queue, window in sorted(state.windows.items())
    }
    for queue, stack in (head_stacks or {}).items():
        if queue in infos:
            infos[queue]["headStack"] = stack
    return infos


def speeds_of(state: GroupState, *, now_ms: int) -> dict[str, ConsumeStatus]:
    """The reported rates of each topic, with how its queues were divided last."""
    rates = state.speeds.table([] if state.polls else list(state.subscriptions), now_ms=now_ms)
    for topic, status in rates.items():
        status.topic_queues, status.group_members = state.divided.get(topic, (None, None))
    return rates


def heads(state: GroupState) -> dict[MessageQueue, int]:
    """Queue offset of each window's head, where there is one."""
    found = {queue: window.head() for queue, window in state.windows.items()}
    return {queue: head[0].queue_offset for queue, head in found.items() if head is not None}


def properties(
    state: GroupState, started_ms: int, *, namesrv_addresses: str, now_ms: int
) -> dict[str, str]:
    """The settings RocketMQ's tools show of a consumer, and what its clock shows."""
    config = state.config
    return {
        "PROP_NAMESERVER_ADDR": namesrv_addresses,
        "PROP_CONSUME_TYPE": state.consume_type,
        "PROP_CONSUME_ORDERLY": str(config.orderly).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(config.consume_concurrency),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CLIENT_VERSION": "TIDEMARK",
        CLIENT_CLOCK_PROPERTY: str(now_ms),
        "consumerGroup": state.group,
        "messageModel": config.message_model.value,
        "consumeFromWhere": config.consume_from_where.value,
        "consumeMessageBatchMaxSize": str(config.consume_batch_max),
        "pullBatchSize": str(config.pull_batch_max),
        "consumeTimeout": str(config.consume_timeout_ms // 60_000),
        "allocateMessageQueueStrategy": config.allocation.name,
    }


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


class BrokerRequests(Handlers):
    """Handlers for the RPC client; they answer once `serve` said for whom."""

    def __init__(self) -> None:
        self._served: ServedConsumer | None = None

    def serve(self, consumer: ServedConsumer) -> None:
        """From here on requests reach `consumer`."""
        self._served = consumer

    def _consumer(self, group: str | None) -> ServedConsumer:
        if self._served is None or group != self._served.state.group:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"the consumer group {group!r} is not on this client"
            )
        return self._served

    @serves(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    def _on_members_changed(self, peer: Peer, request: RemotingCommand) -> None:
        """Another member came or went; one-way, so a wrong group is only logged."""
        group = request.fields.get("consumerGroup")
        if self._served is None or group != self._served.state.group:
            _log.warning("%s reports members of %r, a group not ours", peer.address, group)
            return
        self._served.rebalancer.wake()

    @serves(RequestCode.GET_CONSUMER_RUNNING_INFO)
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

    @serves(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
    def _on_show_offsets(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        del peer
        consumer = self._consumer(request.fields.get("group"))
        offsets = consumer.state.offsets.clone(request.fields.get("topic", ""))
        return request.respond(
            ResponseCode.SUCCESS, body=encode_object_keyed("messageQueueTable", offsets)
        )

    @serves(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
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

    @serves(RequestCode.CONSUME_MESSAGE_DIRECTLY)
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
