"""Lite pull consumer that fetches messages in the background and returns them when polled.

Place in the walk: another second half.

Queues come in one of two ways, never both: `subscribe` shares a topic with the group's other
members, `assign` takes queues without asking anybody. A poll hands out what one pull brought and
moves that queue's position; a position becomes the group's consume offset by `commit`, or, with
`auto_commit`, by a later poll.

    pulled → held → polled (position moves) → committed (offset store) → persisted (broker)

Invariant: a committed offset is never above a message that no poll has handed out; after a seek
nothing pulled before it is handed out. At least once: what was polled and not committed comes
again. Absent on purpose: listeners, retries and the retry topic. Row B4.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from engine.client.config import ClientConfig, LitePullConfig
from engine.client.connection.owned_tasks import OwnedTasks
from engine.client.consuming.consume_stats import FlowControl
from engine.client.consuming.group_member import GroupMember, no_listener_at_work
from engine.client.consuming.group_state import Subscription
from engine.client.consuming.message_selector import MessageSelector
from engine.client.consuming.offset_store import CommitTrigger, ReadOffset, allowed_offset
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.pull_service import PullMessageService, PullRequest
from engine.client.consuming.pulling import (
    FLOW_CONTROL_PAUSE_MS,
    PAUSED_MS,
    PullQuestion,
    PullResult,
    PullStatus,
    with_tags,
)
from engine.client.consuming.rebalance import RebalanceHooks
from engine.foundation.errors import ClusterError, ConfigError, TidemarkError
from engine.protocol.message import MessageExt, MessageQueue
from engine.runtime import Runtime

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Held:
    """A queue this consumer reads."""

    window: ProcessQueue
    position: int | None = None
    """Next message to hand out, as far as this consumer knows; None before the first poll."""
    paused: bool = False


class LitePullConsumer:
    """One member of a consumer group that asks for its messages."""

    def __init__(
        self,
        runtime: Runtime,
        config: ClientConfig,
        group: str,
        *,
        consumer: LitePullConfig | None = None,
    ) -> None:
        self._runtime = runtime
        self._config = consumer or LitePullConfig()
        self._member = member = GroupMember(
            *(runtime, config, group, self._config), consume_type="CONSUME_ACTIVELY"
        )
        self._state = member.state
        self._pulls = OwnedTasks(f"pulls of {group} {member.connection.client_id}")
        self._service = PullMessageService(self._pull)
        self._rebalancer = member.rebalancer(
            RebalanceHooks(self._on_taken_up, self._on_queues_changed, no_listener_at_work)
        )
        self._held: dict[MessageQueue, _Held] = {}
        self._ready: deque[tuple[MessageQueue, ProcessQueue, list[MessageExt]]] = deque()
        self._ready_count = 0
        """Messages in `_ready`, those of windows that have ended among them until a poll passes
        over them. Summing up the windows at each pull would take the square of their number.
        """
        self._arrived = asyncio.Event()
        self._assigned: tuple[MessageQueue, ...] | None = None
        self._next_auto_commit_ms = 0
        self._one_at_a_time = asyncio.Lock()
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

    # Which queues.

    def subscribe(self, topic: str, selector: str | MessageSelector = "*") -> None:
        """Share the queues of `topic` with the group. Raises ConfigError after `assign`."""
        if self._assigned is not None:
            raise ConfigError("subscribe", topic, "either subscribe or assign, not both")
        self._member.want(topic, selector)
        self._announce_change()

    def unsubscribe(self, topic: str) -> None:
        """Give its queues up at the next rebalance."""
        self._state.subscriptions.pop(topic, None)
        self._announce_change()

    async def assign(
        self, queues: Collection[MessageQueue], selector: str | MessageSelector = "*"
    ) -> None:
        """Read exactly these queues, whoever else does; one whose broker does not answer is taken
        up when it does. Raises ConfigError after `subscribe`.
        """
        if self._assigned is None and self._state.subscriptions:
            raise ConfigError("assign", sorted(queues), "either subscribe or assign, not both")
        topics = sorted({queue.topic for queue in queues})
        for topic in list(self._state.subscriptions):
            if topic not in topics:
                del self._state.subscriptions[topic]
        for topic in topics:
            self._member.want(topic, selector)
        self._assigned = tuple(sorted(queues))
        if self._started and not self._stopped:
            await self._member.announce()
            await self._take_assigned()

    def assignment(self) -> list[MessageQueue]:
        """The queues this consumer reads now, sorted."""
        return sorted(self._held)

    async def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic, sorted."""
        return list(await self._member.broker.queues(topic) or [])

    # Life.

    async def start(self) -> None:
        """Announce this member and begin to pull.

        Raises ConfigError without a queue to read, RequestRefused when a broker cannot filter as a
        subscription says.
        """
        if self._started or self._stopped:
            return
        if not self._state.subscriptions:
            raise ConfigError("subscriptions", {}, "a topic or queues; subscribe or assign first")
        await self._state.offsets.load()
        self._started = True
        try:
            await self._member.open()
        except BaseException:
            self._stopped = True
            raise
        self._next_auto_commit_ms = self._runtime.clock.steady_ms() + self._config.auto_commit_ms
        self._pulls.start(self._service.run(), "pull messages")
        self._member.tasks.start(self._member.persist_regularly(), "persist offsets")
        if self._assigned is None:
            self._member.tasks.start(self._rebalancer.run(), "rebalance")
            self._rebalancer.wake()
        else:
            await self._take_assigned()
            self._member.tasks.start(self._keep_assigned(), "assigned queues")

    async def stop(self) -> None:
        """End pulling, report what is committed, leave; what was polled since comes again."""
        if not self._started or self._stopped:
            return
        self._stopped = True
        self._arrived.set()
        await self._pulls.close()
        await self._member.tasks.close()
        await self._member.report_last()
        await self._member.leave()
        self._held.clear()
        self._ready.clear()

    # Messages.

    async def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """Messages of one queue, in order; empty when none arrived in time.

        With `auto_commit` this says that the messages of earlier polls are consumed.
        """
        if not self._started or self._stopped:
            raise ClusterError(f"consumer {self.group} is not running; call start() first")
        if self._config.auto_commit:
            self._commit_now_and_then()
        allowed_ms = self._config.poll_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self._runtime.clock.steady_ms() + allowed_ms
        while True:
            while self._ready:
                queue, window, messages = self._ready.popleft()
                self._ready_count -= len(messages)
                held = self._held.get(queue)
                if window.dropped or held is None or held.window is not window:
                    continue  # Given away, or before a seek.
                now_ms = self._runtime.clock.steady_ms()
                safe = window.remove((m.queue_offset for m in messages), now_ms)
                held.position = messages[-1].queue_offset + 1 if safe is None else safe
                return messages
            self._arrived.clear()
            left_ms = deadline_ms - self._runtime.clock.steady_ms()
            if left_ms <= 0 or self._stopped:
                return []
            try:
                async with asyncio.timeout(left_ms / 1000):
                    await self._arrived.wait()
            except TimeoutError:
                return []

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Pull nothing more of these queues; what is held of them is still handed out."""
        self._set_paused(queues, paused=True)

    def resume(self, queues: Collection[MessageQueue]) -> None:
        """Pull them again."""
        self._set_paused(queues, paused=False)

    # Positions.

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset`; nothing of this queue pulled before is handed out any more.

        Raises ConfigError for a queue that is not read here, or an offset outside the queue.
        """
        self._held_of(queue)
        low = await self._member.broker.queue_offsets.min_offset(queue)
        high = await self._member.broker.queue_offsets.max_offset(queue)
        if not low <= offset <= high:
            raise ConfigError(
                "seek", offset, f"an offset of {queue}: min offset {low} to max offset {high}"
            )
        self._restart(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message still kept."""
        self._held_of(queue)
        self._restart(queue, await self._member.broker.queue_offsets.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on behind the last message. A broker whose store is new takes the end for a choice
        only of a client that asked for both ends.
        """
        self._held_of(queue)
        await self._member.broker.queue_offsets.min_offset(queue)
        self._restart(queue, await self._member.broker.queue_offsets.max_offset(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The first message stored at or after a time; for `seek`."""
        return await self._member.broker.queue_offsets.search_offset(queue, timestamp_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's consume offset; None when it has none.

        Raises TidemarkError when the broker cannot be asked.
        """
        return await self._state.offsets.read(queue, ReadOffset.MEMORY_FIRST_THEN_STORE)

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Make these offsets, or all positions, the group's, and wait until the brokers have them.

        Raises ConfigError for a negative one, RequestRefused when a broker passes one over (a reset
        of the group waits for the next pull), Unreachable when one was not reported; those are
        reported again on the timer.
        """
        offsets_by_queue = self._positions() if offsets is None else offsets
        offsets_by_queue = {
            queue: allowed_offset(queue, offset) for queue, offset in offsets_by_queue.items()
        }
        for queue, offset in offsets_by_queue.items():
            self._state.offsets.update(queue, offset, increase_only=False)
        failed: TidemarkError | None = None
        for queue in offsets_by_queue:
            try:
                await self._state.offsets.persist(queue, CommitTrigger.UNKNOWN)
            except TidemarkError as error:  # The others are none the worse for it.
                failed = failed or error
        if failed is not None:
            raise failed

    def _positions(self) -> dict[MessageQueue, int]:
        return {
            queue: held.position
            for queue, held in self._held.items()
            if held.position is not None and not held.window.dropped
        }

    def _commit_now_and_then(self) -> None:
        now_ms = self._runtime.clock.steady_ms()
        if now_ms < self._next_auto_commit_ms:
            return
        self._next_auto_commit_ms = now_ms + self._config.auto_commit_ms
        for queue, position in self._positions().items():
            self._state.offsets.update(queue, position, increase_only=False)

    # Taking queues up, and pulling them.

    async def _keep_assigned(self) -> None:
        """Queues that nobody could be asked about, and those that a reset took away."""
        while True:
            await asyncio.sleep(self._config.rebalance_retry_ms / 1000)
            await self._take_assigned()

    async def _take_assigned(self) -> None:
        async with self._one_at_a_time:
            wanted = self._assigned or ()
            for queue, window in list(self._state.windows.items()):
                if queue not in wanted:
                    await self._rebalancer.give_up(queue, window)
            self._forget_lost()
            for queue in [queue for queue in wanted if queue not in self._held]:
                try:
                    first = await self._member.first_offset(queue)
                except TidemarkError as error:
                    _log.warning("%s not taken up, it is tried again soon: %s", queue, error)
                    continue
                window = self._state.windows[queue] = ProcessQueue(self._runtime.clock.steady_ms())
                self._on_taken_up(queue, window, first)

    def _on_taken_up(self, queue: MessageQueue, window: ProcessQueue, first_offset: int) -> None:
        _log.info("%s takes up %s from offset %d", self.client_id, queue, first_offset)
        self._held[queue] = _Held(window)
        self._service.put(PullRequest(queue, window, first_offset))

    async def _on_queues_changed(self, topic: str, held: int) -> None:
        self._forget_lost()
        await self._member.queues_changed(topic, held)

    def _forget_lost(self) -> None:
        for queue in [queue for queue in self._held if queue not in self._state.windows]:
            del self._held[queue]

    def _restart(self, queue: MessageQueue, offset: int) -> None:
        """Another window from `offset` on; what the old one held is no longer handed out."""
        held = self._held_of(queue)
        held.window.dropped = True
        held.window.clear()
        window = self._state.windows[queue] = ProcessQueue(self._runtime.clock.steady_ms())
        self._held[queue] = _Held(window, offset, held.paused)
        self._service.put(PullRequest(queue, window, offset))

    def _pull(self, request: PullRequest) -> None:
        """Begin the next pull of a queue, or let it rest."""
        queue, window = request.queue, request.window
        window.last_pull_ms = self._runtime.clock.steady_ms()
        pause_ms = self._pause_ms(self._held[queue])
        subscription = self._state.subscriptions.get(queue.topic)
        if subscription is None:
            pause_ms = PAUSED_MS  # The next rebalance drops the queue.
        if subscription is None or pause_ms:
            self._service.put(request, after_ms=pause_ms)
            return
        question = PullQuestion(queue, subscription, request.next_offset, None, is_lite=True)
        self._member.broker.begin_pull(question, partial(self._pulled, request, subscription))

    def _pulled(
        self,
        request: PullRequest,
        subscription: Subscription,
        outcome: PullResult | TidemarkError,
    ) -> None:
        """A pull has ended: what it brought is held, and the request goes back into the queue."""
        queue = request.queue
        if self._service.ended or request.window.dropped:
            return
        if isinstance(outcome, TidemarkError):
            _log.warning("pull of %s failed: %s", queue, outcome)
            self._service.put(request, after_ms=self._config.pull_error_delay_ms)
            return
        request.next_offset = outcome.next_begin_offset
        self._take(queue, self._held[queue], outcome, subscription.data.tags_set)
        self._service.put(request)

    def _take(
        self, queue: MessageQueue, held: _Held, result: PullResult, tags: Collection[str]
    ) -> None:
        window = held.window
        if result.status is PullStatus.OFFSET_ILLEGAL:
            _log.warning("%s: the broker moves to offset %d", queue, result.next_begin_offset)
            self._restart(queue, result.next_begin_offset)
            return
        wanted = with_tags(result.messages, tags)
        window.filtered_count += len(result.messages) - len(wanted)
        if wanted:
            window.put(wanted)
            self._ready.append((queue, window, wanted))
            self._ready_count += len(wanted)
            self._arrived.set()
        elif window.count == 0 and held.position is not None:
            held.position = max(held.position, result.next_begin_offset)  # All was filtered.

    def _pause_ms(self, held: _Held) -> int:
        if held.paused:
            held.window.resting = None
            return PAUSED_MS
        held.window.resting = self._holds_too_much(held.window)
        return 0 if held.window.resting is None else FLOW_CONTROL_PAUSE_MS

    def _holds_too_much(self, window: ProcessQueue) -> FlowControl | None:
        """What waits for a poll counts, for it takes memory; what was polled and is not committed
        is the application's to decide.
        """
        config = self._config
        if self._ready_count > config.held_messages_max or window.count > config.queue_messages_max:
            return FlowControl.COUNT
        if window.held_bytes > config.queue_bytes_max:
            return FlowControl.BYTES
        return FlowControl.SPAN if window.uncommitted_count > config.queue_span_max else None

    def _held_of(self, queue: MessageQueue) -> _Held:
        held = self._held.get(queue)
        if held is None:
            raise ConfigError(
                "queue", queue, f"one that is read here: {[str(q) for q in self.assignment()]}"
            )
        return held

    def _set_paused(self, queues: Collection[MessageQueue], *, paused: bool) -> None:
        for queue in queues:
            self._held_of(queue).paused = paused

    def _announce_change(self) -> None:
        if self._started:
            self._member.tasks.start(self._announce_and_rebalance(), "announce subscriptions")

    async def _announce_and_rebalance(self) -> None:
        await self._member.connection.heartbeat()
        self._rebalancer.wake()
