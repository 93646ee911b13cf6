"""Pull consumer for applications that pull each queue and manage offsets themselves.

Place in the walk: the barest second half.

A topic may be registered to be shared with the group's other members; then `queues_in_balance`
says which queues are this member's. The rebalance of a pull consumer has rules of its own: it
begins no queue anywhere (the application says where each pull begins, a queue without an offset
begins at 0), and a queue that is taken away has its offset persisted, then forgotten.

Invariant: nothing is pulled that was not asked for, and no offset changes that the application did
not set. Absent on purpose: pulling ahead, positions and commits by themselves, which the lite pull
consumer has. Row B4.
"""

from __future__ import annotations

from engine.client.config import ClientConfig, LitePullConfig
from engine.client.consuming.failed_messages import SendBackRequest
from engine.client.consuming.group_member import GroupMember, no_listener_at_work
from engine.client.consuming.group_state import Subscription
from engine.client.consuming.message_selector import MessageSelector
from engine.client.consuming.offset_store import CommitTrigger, ReadOffset, allowed_offset
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.pulling import PullQuestion, PullResult, PullStatus, with_tags
from engine.client.consuming.rebalance import RebalanceHooks
from engine.client.consuming.start_offset import StartOffsetAsk
from engine.foundation.errors import ClusterError, ConfigError
from engine.protocol.message import MessageExt, MessageQueue
from engine.runtime import Runtime


class PullConsumer:
    """One member of a consumer group that pulls by itself."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfig,
        group: str,
        *,
        consumer: LitePullConfig | None = None,
    ) -> None:
        self._runtime = runtime
        self._member = member = GroupMember(
            *(runtime, config, group, consumer or LitePullConfig(pull_batch_max=32)),
            consume_type="CONSUME_ACTIVELY",
        )
        self._state = member.state
        self._rebalancer = member.rebalancer(
            RebalanceHooks(self._on_taken_up, member.queues_changed, no_listener_at_work),
            ask=StartOffsetAsk(_at_zero, _at_zero),
        )
        self._started = self._stopped = False
        member.serve(self._rebalancer)

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._state.group

    @property
    def client_id(self) -> str:
        """The id under which brokers and members know this client."""
        return self._state.client_id

    def register(self, topic: str) -> None:
        """Share the queues of `topic` with the group; before `start`."""
        if self._started:
            raise ConfigError("register", topic, "topics before start()")
        self._member.want(topic, "*")

    async def start(self) -> None:
        """Announce this member and begin to rebalance what is registered."""
        if self._started or self._stopped:
            return
        await self._state.offsets.load()
        self._started = True
        try:
            await self._member.open()
        except BaseException:
            self._stopped = True
            raise
        self._member.tasks.start(self._member.persist_regularly(), "persist offsets")
        self._member.tasks.start(self._rebalancer.run(), "rebalance")
        self._rebalancer.wake()

    async def stop(self) -> None:
        """Report the offsets that were set, and leave."""
        if not self._started or self._stopped:
            return
        self._stopped = True
        await self._member.tasks.close()
        await self._member.report_last()
        await self._member.leave()

    async def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic, sorted."""
        return list(await self._member.broker.queues(topic) or [])

    def queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """The queues of a registered topic that are this member's now, sorted."""
        windows = self._state.windows.items()
        return sorted(q for q, window in windows if q.topic == topic and not window.dropped)

    async def pull(
        self, queue: MessageQueue, offset: int, selector: str | MessageSelector = "*"
    ) -> PullResult:
        """Pull once from `offset`; held by the broker while there is nothing.

        The messages are those wanted; the result says where the next pull begins. OFFSET_ILLEGAL
        is an answer, not an error: nothing but the caller's own offset moves.
        """
        if not self._started or self._stopped:
            raise ClusterError(f"consumer {self.group} is not running; call start() first")
        if isinstance(selector, str):
            selector = MessageSelector.by_tag(selector)
        now_ms = self._runtime.clock.now_ms()
        data = selector.subscription(queue.topic, sub_version=now_ms)
        question = PullQuestion(queue, Subscription(data, None), offset, None, is_lite=True)
        result = await self._member.broker.pull(question)
        window = self._state.windows.get(queue)
        if window is not None:
            window.last_pull_ms = self._runtime.clock.steady_ms()
        if data.tags_set:
            result.messages = with_tags(result.messages, data.tags_set)
            if result.status is PullStatus.FOUND and not result.messages:
                result.status = PullStatus.NO_MATCHED_MESSAGE
        return result

    # Offsets.

    async def fetch_consume_offset(
        self, queue: MessageQueue, *, from_store: bool = False
    ) -> int | None:
        """The group's consume offset; None when it has none, as far as memory or the broker knows.

        Raises TidemarkError when the broker cannot be asked.
        """
        where = ReadOffset.READ_FROM_STORE if from_store else ReadOffset.MEMORY_FIRST_THEN_STORE
        return await self._state.offsets.read(queue, where)

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set the consume offset; the broker hears of it by `persist`, or, while the queue is one
        of this member's, on the timer.

        Raises ConfigError for a negative one.
        """
        self._state.offsets.update(queue, allowed_offset(queue, offset), increase_only=False)

    async def persist(self, queue: MessageQueue) -> None:
        """Report the consume offset of one queue to its broker now. Raises RequestRefused when the
        broker passes it over (a reset of the group waits for the next pull), Unreachable.
        """
        await self._state.offsets.persist(queue, CommitTrigger.UNKNOWN)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first message of the queue still kept."""
        return await self._member.broker.queue_offsets.min_offset(queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """One past the last message of the queue."""
        return await self._member.broker.queue_offsets.max_offset(queue)

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after a time."""
        return await self._member.broker.queue_offsets.search_offset(queue, timestamp_ms)

    async def send_back(self, message: MessageExt, delay_level: int, broker_name: str) -> None:
        """Have the broker lay a message into the group's retry topic. Raises TidemarkError."""
        await self._member.broker.send_back(
            SendBackRequest(
                *(message, self.group, delay_level),
                *(self._state.max_reconsume_times, broker_name),
            )
        )

    def _on_taken_up(self, queue: MessageQueue, window: ProcessQueue, first_offset: int) -> None:
        """Nothing begins by itself."""


async def _at_zero(_queue: MessageQueue, _timestamp_ms: int = 0) -> int:
    return 0
