"""Group membership shared by all consumer types: connection, offsets and queues.

Place in the walk: beside the second half.

The push consumer, the lite pull consumer and the pull consumer differ in who asks for messages and
who says that they are consumed. Connection, heartbeats, offsets on a timer and the rebalancer are
the same and live here.

Invariant: brokers know a subscription before a rebalance or a pull acts on it. Absent on purpose:
pulls and listeners.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from engine.client.config import ClientConfig, ConsumerConfig, MessageModel
from engine.client.connection.connection import ClusterConnection
from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.consuming.broker_api import BrokerSide
from engine.client.consuming.group_state import GroupState, Subscription
from engine.client.consuming.inbound_requests import BrokerRequests, ListenerService, ServedConsumer
from engine.client.consuming.listeners import MessageListener
from engine.client.consuming.message_selector import MessageSelector
from engine.client.consuming.offset_store import (
    BrokerOffsetStore,
    CommitTrigger,
    LocalOffsetStore,
    OffsetStore,
    ReadOffset,
)
from engine.client.consuming.queue_locks import QueueLocks
from engine.client.consuming.rebalance import RebalanceHooks, Rebalancer
from engine.client.consuming.start_offset import StartOffsetAsk, start_offset
from engine.foundation.errors import TidemarkError
from engine.foundation.units import MINUTE_MS
from engine.protocol.bodies import ConsumerData, HeartbeatData
from engine.protocol.message import MessageQueue
from engine.protocol.names import check_group, check_no_own_dead_letters, check_topic
from engine.runtime import Runtime

_log = logging.getLogger(__name__)

CONSUME_TIMESTAMP_AGE_MS = 30 * MINUTE_MS
"""CONSUME_FROM_TIMESTAMP without a timestamp begins this long before the start."""


class GroupMember:
    """One member of a consumer group."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfig,
        group: str,
        consumer: ConsumerConfig,
        *,
        consume_type: str,
        on_commit_answered: Callable[[MessageQueue, int], None] | None = None,
    ) -> None:
        """`consume_type` is what heartbeats carry: CONSUME_PASSIVELY or CONSUME_ACTIVELY."""
        check_group(group)
        self._runtime = runtime
        self._consumer = consumer
        self._namesrv_addresses = ";".join(config.namesrv_addresses)
        self.requests = BrokerRequests()
        """What brokers ask; answered once `serve` was called."""
        self.connection = ClusterConnection(
            runtime,
            config,
            describe=self._describe,
            handlers=self.requests.handlers(),
            keeps_default_instance=consumer.message_model is MessageModel.BROADCASTING,
        )
        self.broker = BrokerSide(self.connection, group, consumer)
        self.state = GroupState(
            group,
            self.connection.client_id,
            consumer,
            self._offset_store(group, on_commit_answered),
            consume_type=consume_type,
        )
        self.tasks = OwnedTasks(f"consumer {group} {self.connection.client_id}")
        self.locks = QueueLocks(self.state, runtime.clock, self.broker)
        self.started_ms = runtime.clock.now_ms()

    @property
    def consume_timestamp_ms(self) -> int:
        """Where CONSUME_FROM_TIMESTAMP begins."""
        timestamp_ms = self._consumer.consume_timestamp_ms
        return self.started_ms - CONSUME_TIMESTAMP_AGE_MS if timestamp_ms is None else timestamp_ms

    @property
    def start_ask(self) -> StartOffsetAsk:
        """The questions a start without a stored offset may need."""
        return StartOffsetAsk(
            self.broker.queue_offsets.max_offset, self.broker.queue_offsets.search_offset
        )

    def rebalancer(self, hooks: RebalanceHooks, ask: StartOffsetAsk | None = None) -> Rebalancer:
        """A rebalancer of this member; `ask` stands in for the broker's answers about a start."""
        return Rebalancer(
            self.state,
            self._runtime.clock,
            self.broker,
            locks=self.locks,
            ask=ask or self.start_ask,
            consume_timestamp_ms=self.consume_timestamp_ms,
            hooks=hooks,
        )

    def serve(self, rebalancer: Rebalancer, service: ListenerService | None = None) -> None:
        """Answer what brokers ask from now on; without `service`, as one that has no listeners."""
        self.requests.serve(
            ServedConsumer(
                state=self.state,
                rebalancer=rebalancer,
                service=service,
                tasks=self.tasks,
                clock=self._runtime.clock,
                started_ms=self.started_ms,
                namesrv_addresses=self._namesrv_addresses,
            )
        )

    def want(
        self, topic: str, selector: str | MessageSelector, listener: MessageListener | None = None
    ) -> None:
        """Subscribe to `topic`; a text as `selector` is `*` or tags joined by `||`.

        Raises RequestRefused for an illegal topic or expression, and for the group's dead letters.
        """
        check_topic(topic)
        check_no_own_dead_letters(self.state.group, topic)
        if isinstance(selector, str):
            selector = MessageSelector.by_tag(selector)
        data = selector.subscription(topic, sub_version=self._runtime.clock.now_ms())
        self.state.subscriptions[topic] = Subscription(data, listener)

    async def open(self) -> None:
        """Connect and announce this member; when that fails, all connections are closed again."""
        await self.connection.start()
        try:
            await self.announce()
        except BaseException:
            await self.connection.stop()
            raise

    async def first_offset(self, queue: MessageQueue) -> int:
        """The offset of a queue's first pull. Raises TidemarkError when nobody can be asked."""
        return await start_offset(
            queue,
            await self.state.offsets.read(queue, ReadOffset.READ_FROM_STORE),
            self.start_ask,
            where=self._consumer.consume_from_where,
            timestamp_ms=self.consume_timestamp_ms,
        )

    async def announce(self) -> None:
        """Learn the routes and send a first heartbeat, so that the first rebalance finds this
        member in the list.

        Raises RequestRefused when a broker cannot filter as a subscription says.
        """
        for topic in list(self.state.subscriptions):
            try:
                await self.connection.routes.refresh(topic)
            except TidemarkError as error:
                _log.warning("route of %s not known yet: %s", topic, error)
        for subscription in list(self.state.subscriptions.values()):
            if not subscription.data.is_by_tags:
                await self.broker.check_subscription(subscription.data)
        await self.connection.heartbeat()

    async def queues_changed(self, topic: str, held: int) -> None:
        """A new subscription version shows that this member reads other queues now."""
        _log.info("%s holds %d queues of %s", self.state.client_id, held, topic)
        subscription = self.state.subscriptions.get(topic)
        if subscription is not None:
            subscription.data.sub_version = self._runtime.clock.now_ms()
        await self.connection.heartbeat(in_full=True)

    async def persist_regularly(self) -> None:
        """Write the offsets of the held queues on a timer, until cancelled."""
        await asyncio.sleep(self._consumer.persist_first_ms / 1000)
        while True:
            held = [queue for queue, window in self.state.windows.items() if not window.dropped]
            await self.state.offsets.persist_all(held, CommitTrigger.TIMER)
            await asyncio.sleep(self._consumer.persist_ms / 1000)

    async def report_last(self) -> None:
        """The offsets once more, then the locks; brokers that do not answer are not waited for."""
        try:
            async with asyncio.timeout(self.connection.config.stop_timeout_ms / 1000):
                held = list(self.state.windows)
                await self.state.offsets.persist_all(held, CommitTrigger.SHUTDOWN)
                if self._consumer.orderly and self.state.is_clustering:
                    await self.locks.unlock_all()
        except TimeoutError:
            _log.warning("%s stops without having reported every offset", self.state.client_id)

    async def leave(self) -> None:
        """Take leave of the brokers, close the connections, let go of the windows."""
        await self.connection.take_leave(consumer_group=self.state.group)
        await self.connection.stop()
        for window in self.state.windows.values():
            window.dropped = True
            window.clear()
        self.state.windows.clear()

    def _offset_store(
        self, group: str, on_commit_answered: Callable[[MessageQueue, int], None] | None
    ) -> OffsetStore:
        if self._consumer.message_model is MessageModel.CLUSTERING:
            return BrokerOffsetStore(self.broker, on_commit_answered)
        return LocalOffsetStore(
            self._runtime.disk,
            self._consumer.local_offset_directory,
            client_id=self.connection.client_id,
            group=group,
        )

    def _describe(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.connection.client_id,
            producer_data_set=[],
            consumer_data_set=[
                ConsumerData(
                    group_name=self.state.group,
                    consume_type=self.state.consume_type,
                    message_model=self._consumer.message_model.value,
                    consume_from_where=self._consumer.consume_from_where.value,
                    subscription_data_set=[s.data for s in self.state.subscriptions.values()],
                )
            ],
        )


async def no_listener_at_work(_queue: MessageQueue, _wait_ms: int) -> bool:
    """For consumers without listeners: a queue can always be given up at once."""
    return True
