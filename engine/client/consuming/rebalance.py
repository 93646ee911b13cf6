"""Rebalances a member's queues: gives up those it no longer owns and takes up new ones.

Place in the walk: the rebalance step.

Each topic is handled by itself: fetch the queues and the members, sort both, divide, give up what
is no longer ours (report its offset first, so that the next owner begins there), take up what is
new at the right offset. Every member does the same with the same lists; while their lists differ, a
queue may for a moment have two readers or none.

Invariant: a queue is dropped before anything else happens to it, and its offset is reported before
it is forgotten. One topic's failure does not stop the others. Absent on purpose: pulling;
`on_taken_up` hears of each new window. Row B4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from engine.client.consuming.group_state import GroupState
from engine.client.consuming.offset_store import CommitTrigger, ReadOffset
from engine.client.consuming.process_queue import ProcessQueue
from engine.client.consuming.queue_locks import QueueLocks
from engine.client.consuming.start_offset import StartOffsetAsk, start_offset
from engine.foundation.errors import TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol.message import MessageQueue
from engine.protocol.names import RETRY_PREFIX
from engine.runtime.clock import Clock

_log = logging.getLogger(__name__)

BATCH_END_WAIT_MS = 500
"""How long giving up an ordered queue waits for the batch in its listener."""

FORCED_UNLOCK_MS = 20 * SECOND_MS
"""This long after its last lock, a dropped ordered queue is let go even while its listener works.
"""


class GroupView(Protocol):
    """What a member can learn about its group."""

    async def queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """All readable queues of `topic`; None while no route is known."""
        ...

    async def members(self, topic: str) -> Sequence[str] | None:
        """Client ids of the group, from a broker of `topic`; None when no broker answered."""
        ...


@dataclass(slots=True)
class RebalanceHooks:
    """What the consumer wants to hear of."""

    on_taken_up: Callable[[MessageQueue, ProcessQueue, int], None]
    """A new window with the offset of its first pull."""
    on_changed: Callable[[str, int], Awaitable[None]]
    """The queues of a topic changed; how many are held now. The subscription gets a new version and
    is announced.
    """
    batch_ended: Callable[[MessageQueue, int], Awaitable[bool]]
    """Waits for the batch that an ordered queue has in its listener."""


@dataclass(slots=True, eq=False)
class Rebalancer:
    """Keeps the windows of one member equal to its share of the queues."""

    state: GroupState
    clock: Clock
    view: GroupView
    _: KW_ONLY
    locks: QueueLocks
    ask: StartOffsetAsk
    consume_timestamp_ms: int
    hooks: RebalanceHooks
    _wanted: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _asked: int = field(default=0, init=False)
    """How often somebody asked for a round until now; before the present or last one began
    (`round`), and before the last that ended did (`_ended`).
    """
    round: int = field(default=0, init=False)
    """See `first_pulls.Rounds.round`."""
    _ended: int = field(default=0, init=False)
    _round_ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def settled(self, taken_up_in: int) -> None:
        """See `first_pulls.Rounds.settled`."""
        while self._ended <= taken_up_in < self._asked:
            await self._round_ended.wait()

    def wake(self) -> None:
        """Rebalance soon: members or topics changed, or something forced a queue to be given up."""
        self._asked += 1
        self._wanted.set()

    async def run(self) -> None:
        """Rebalance on each wake and each `rebalance_ms`, but not twice within
        `rebalance_retry_ms`; runs until cancelled.

        A group of which one member after the other leaves would else rebalance as often, each of
        the others with questions to every broker. What wakes it meanwhile is done in one.
        """
        config = self.state.config
        wait_ms = config.rebalance_ms
        while True:
            try:
                async with asyncio.timeout(wait_ms / SECOND_MS):
                    await self._wanted.wait()
            except TimeoutError:
                pass  # Nobody called: the regular round.
            self._wanted.clear()
            self.round = self._asked
            balanced = await self.rebalance()
            self._ended = self.round
            self._round_ended.set()
            self._round_ended.clear()
            await asyncio.sleep(config.rebalance_retry_ms / SECOND_MS)
            wait_ms = max(0, config.rebalance_ms - config.rebalance_retry_ms) if balanced else 0

    async def rebalance(self) -> bool:
        """One round over all topics; True when this member holds exactly its share."""
        async with self._one_at_a_time:
            balanced = True
            for topic in list(self.state.subscriptions):
                try:
                    balanced = await self._rebalance_topic(topic) and balanced
                except TidemarkError as error:
                    _log.warning(
                        "rebalance of %s failed, queues stay as they are: %s", topic, error
                    )
                    balanced = False
            await self._drop_unsubscribed()
            return balanced

    async def give_up(self, queue: MessageQueue, window: ProcessQueue) -> bool:
        """Report and forget a queue; False when its ordered listener is still at work (tried again
        next round).
        """
        window.dropped = True
        await self._report(queue)
        if self.state.config.orderly and self.state.is_clustering and window.locked:
            now_ms = self.clock.steady_ms()
            forced = now_ms > window.last_lock_ms + FORCED_UNLOCK_MS
            if not forced and not await self.hooks.batch_ended(queue, BATCH_END_WAIT_MS):
                window.try_unlock_count += 1
                return False
            window.locked = False
            await self._report(queue)  # Again: the batch that has just ended counts.
            await self.locks.unlock(queue)
        self.state.offsets.remove(queue)
        if self.state.windows.get(queue) is window:
            del self.state.windows[queue]
        return True

    async def _rebalance_topic(self, topic: str) -> bool:
        queues = await self.view.queues(topic)
        if queues is None:
            if not topic.startswith(RETRY_PREFIX):
                _log.warning("no route for %s, its queues stay as they are", topic)
            return False
        if not self.state.is_clustering:
            return await self._hold_exactly(topic, list(queues))
        members = await self.view.members(topic)
        if members is None:
            _log.warning("no member list of %s, its queues stay as they are", topic)
            return False
        self.state.divided[topic] = (len(queues), len(members))
        try:
            mine = self.state.config.allocation.allocate(
                self.state.client_id, sorted(queues), sorted(members)
            )
        except Exception as error:  # noqa: BLE001 - strategies and resolvers may be the user's own
            _log.warning("queues of %s not divided, they stay as they are: %r", topic, error)
            return False
        return await self._hold_exactly(topic, mine)

    async def _hold_exactly(self, topic: str, mine: Sequence[MessageQueue]) -> bool:
        changed = await self._give_up_others(topic, mine)
        balanced = True
        for queue in mine:
            if queue in self.state.windows:
                balanced = balanced and not self.state.windows[queue].dropped
                continue
            try:
                taken = await self._take_up(queue)
            except TidemarkError as error:
                _log.warning("%s not taken up, next rebalance tries again: %s", queue, error)
                taken = False
            changed = changed or taken
            balanced = balanced and taken
        if changed:
            held = sum(1 for queue in self.state.windows if queue.topic == topic)
            await self.hooks.on_changed(topic, held)
        return balanced

    async def _give_up_others(self, topic: str, mine: Sequence[MessageQueue]) -> bool:
        changed = False
        for queue, window in list(self.state.windows.items()):
            if queue.topic != topic:
                continue
            if queue in mine and not window.dropped:
                if self.state.polls or not window.is_pull_expired(self.clock.steady_ms()):
                    continue  # Who pulls by itself may rest for as long as it likes.
                _log.error("%s was not pulled for long; it is taken up anew", queue)
            changed = await self.give_up(queue, window) or changed
        return changed

    async def _take_up(self, queue: MessageQueue) -> bool:
        ordered = self.state.config.orderly and self.state.is_clustering
        if ordered and not await self.locks.lock(queue):
            _log.info("order lock of %s is still with another member", queue)
            return False
        self.state.offsets.remove(
            queue
        )  # What memory says may be older than what another member reported.
        stored = await self.state.offsets.read(queue, ReadOffset.READ_FROM_STORE)
        first = await start_offset(
            queue,
            stored,
            self.ask,
            where=self.state.config.consume_from_where,
            timestamp_ms=self.consume_timestamp_ms,
        )
        window = ProcessQueue(self.clock.steady_ms())
        window.locked = ordered
        self.state.windows[queue] = window
        self.hooks.on_taken_up(queue, window, first)
        return True

    async def _drop_unsubscribed(self) -> None:
        for topic in sorted(self.state.divided.keys() - self.state.subscriptions.keys()):
            del self.state.divided[topic]
        read = {queue.topic for queue in self.state.windows}
        for topic in sorted(read - self.state.subscriptions.keys()):
            await self._hold_exactly(topic, [])

    async def _report(self, queue: MessageQueue) -> None:
        try:
            await self.state.offsets.persist(queue, CommitTrigger.HAND_OVER)
        except TidemarkError as error:
            _log.warning("offset of %s not reported at hand-over: %s", queue, error)
