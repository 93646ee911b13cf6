"""Push consumer that long-polls brokers and passes messages to a listener.

Place in the walk: the second half.

Messages arrive by long polls that the consumer keeps asking; "push" is what it looks like to the
listener. Listeners are `async def` or plain functions; plain ones run in the event loop and must
not block.

Stop, in this order: no new pulls and batches, listeners get `stop_wait_ms` to finish, offsets are
reported (SHUTDOWN), locks are released, brokers get a farewell, connections close, windows are
dropped. What a listener had not finished is consumed again by the next owner.

Invariant: `start` and `stop` may each be called again without effect; a consumer that was stopped
stays stopped. Absent on purpose: what all kinds of consumers share, which `group_member` holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from engine.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.consuming.concurrent_service import ConcurrentService
from engine.client.consuming.failed_messages import FailedMessages
from engine.client.consuming.first_pulls import FirstPulls
from engine.client.consuming.group_member import GroupMember
from engine.client.consuming.group_state import Subscription
from engine.client.consuming.listeners import MessageListener
from engine.client.consuming.message_selector import MessageSelector
from engine.client.consuming.offset_store import OffsetStore
from engine.client.consuming.orderly_service import OrderlyService
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.pulling import Puller, PullHooks
from engine.client.consuming.rebalance import RebalanceHooks
from engine.client.sending.sender import Sender
from engine.client.sending.trace import Tracer
from engine.foundation.errors import ConfigError
from engine.protocol.bodies import SubscriptionData
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.names import retry_topic
from engine.runtime import Runtime

_log = logging.getLogger(__name__)

INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"


class PushConsumer:
    """One member of a consumer group."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfig,
        group: str,
        *,
        consumer: ConsumerConfig | None = None,
        on_commit_answered: Callable[[MessageQueue, int], None] | None = None,
    ) -> None:
        """`on_commit_answered` hears each reported offset that a broker answered for, pull by pull
        and, with `commit_acknowledged`, report by report.
        """
        consumer = consumer or ConsumerConfig()
        self._runtime = runtime
        self._consumer = consumer
        self._member = member = GroupMember(
            *(runtime, config, group, consumer),
            consume_type="CONSUME_PASSIVELY",
            on_commit_answered=on_commit_answered,
        )
        self._connection, self._state, self._tasks = member.connection, member.state, member.tasks
        self._tracer: Tracer | None = None
        if config.enable_trace:
            self._state.tracer = self._tracer = Tracer(
                *(self._connection, group, "CONSUME"),
                consume_timeout_ms=consumer.consume_timeout_ms,
            )
        self._pulls = OwnedTasks(f"pulls of {group} {self._connection.client_id}")
        self._started = self._stopped = False
        sender = Sender(self._connection, INNER_PRODUCER_GROUP, ProducerConfig())
        self._failed = FailedMessages(self._state, member.broker, sender.send)
        self._service = self._consume_service()
        self._puller = Puller(
            self._state,
            runtime.clock,
            member.broker,
            PullHooks(self._on_messages, self._on_offset_illegal, on_commit_answered),
        )
        self._rebalancer = member.rebalancer(
            RebalanceHooks(self._on_taken_up, member.queues_changed, self._batch_ended)
        )
        self._first_pulls = FirstPulls(
            *(self._state, runtime.clock, self._rebalancer), self._puller.take_up
        )
        member.serve(self._rebalancer, self._service)

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._state.group

    @property
    def client_id(self) -> str:
        """The id under which brokers and members know this client."""
        return self._connection.client_id

    @property
    def windows(self) -> Mapping[MessageQueue, ProcessQueue]:
        """The queues this member holds now, with their windows; only to be looked at."""
        return self._state.windows

    @property
    def offsets(self) -> OffsetStore:
        """Where this member keeps its consume offsets."""
        return self._state.offsets

    def subscribe(
        self, topic: str, selector: str | MessageSelector, listener: MessageListener
    ) -> None:
        """Read `topic` and give its messages to `listener`; a text as `selector` is `*` or tags
        joined by `||`.

        May be called while running; the next rebalance takes it up. Raises RequestRefused for an
        illegal topic or expression.
        """
        self._member.want(topic, selector, listener)
        if self._started:
            self._tasks.start(self._announce_change(), "announce subscriptions")

    def unsubscribe(self, topic: str) -> None:
        """Stop reading `topic`; its queues are given up by the next rebalance."""
        self._state.subscriptions.pop(topic, None)
        if self._started:
            self._tasks.start(self._announce_change(), "announce subscriptions")

    def pause(self) -> None:
        """Pull nothing new; what is held is still consumed."""
        self._state.paused = True

    def resume(self) -> None:
        """Pull again."""
        self._state.paused = False

    async def start(self) -> None:
        """Load offsets, announce this member, take up queues.

        Raises ConfigError without a subscription and CorruptRecord when a broadcast consumer's
        offsets are damaged: it has not begun and may be started again. Raises RequestRefused when a
        broker cannot filter as a subscription says; the consumer is stopped then.
        """
        if self._started or self._stopped:
            return
        if not self._state.subscriptions:
            raise ConfigError("subscriptions", {}, "at least one topic; call subscribe() first")
        await self._state.offsets.load()
        self._started = True
        if self._state.is_clustering:
            topic = retry_topic(self.group)
            data = SubscriptionData.build(topic, "*", sub_version=self._runtime.clock.now_ms())
            self._state.subscriptions[topic] = Subscription(data, None)
        try:
            await self._member.open()
        except BaseException:
            self._stopped = True
            raise
        self._service.start()
        self._pulls.start(self._first_pulls.run(), "first pulls")
        self._pulls.start(self._puller.run(), "pull messages")
        self._tasks.start(self._rebalancer.run(), "rebalance")
        self._tasks.start(self._member.persist_regularly(), "persist offsets")
        if self._consumer.orderly and self._state.is_clustering:
            self._tasks.start(self._member.locks.keep(), "order locks")
        if self._tracer is not None:
            self._tasks.start(self._tracer.run(), "traces")
        self._rebalancer.wake()

    async def stop(self) -> None:
        """See the module: listeners first, then offsets, then leave."""
        if not self._started or self._stopped:
            return
        self._stopped = True
        await self._pulls.close()
        await self._service.stop(self._consumer.stop_wait_ms)
        await self._tasks.close()
        await self._member.report_last()
        if self._tracer is not None:
            await self._tracer.write_rest(self._connection.config.stop_timeout_ms)
        await self._member.leave()

    # Assembly.

    def _consume_service(self) -> ConcurrentService | OrderlyService:
        clock = self._runtime.clock
        if self._consumer.orderly:
            return OrderlyService(
                self._state,
                clock,
                self._tasks,
                lock_queue=self._member.locks.lock,
                give_up=self._failed.send_copy,
            )
        return ConcurrentService(self._state, clock, self._tasks, self._failed.send_back)

    # Signals between the parts.

    def _on_taken_up(self, queue: MessageQueue, window: ProcessQueue, first_offset: int) -> None:
        _log.info("%s takes up %s from offset %d", self.client_id, queue, first_offset)
        self._first_pulls.put(queue, window, first_offset)

    def _on_messages(
        self, messages: list[MessageExt], queue: MessageQueue, window: ProcessQueue
    ) -> None:
        starts_session = window.put(messages)
        if isinstance(self._service, ConcurrentService):
            self._service.submit(messages, window, queue)
        elif starts_session:
            self._service.submit(queue, window)

    def _on_offset_illegal(self, _queue: MessageQueue) -> None:
        """The next round gives up what was dropped, with its offset, and takes it up anew."""
        self._rebalancer.wake()

    async def _batch_ended(self, queue: MessageQueue, wait_ms: int) -> bool:
        if isinstance(self._service, OrderlyService):
            return await self._service.batch_ended(queue, wait_ms)
        return True

    async def _announce_change(self) -> None:
        """Brokers hear of a changed subscription before pulls and members act on it."""
        await self._connection.heartbeat()
        self._rebalancer.wake()
