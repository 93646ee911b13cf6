"""Polls consumers every five seconds to learn which messages they hold.

Place in the walk: beside it; each consumer is asked every 5 s (GET_CONSUMER_RUNNING_INFO), at once
when one of its queues looks frozen (pulls go on, the consume offset does not), and a second after
it began to read one: should it die soon, what it had finished is known. So is a client that may
read a queue beside its reader (`groups/readers`): what such a client does not hold, it
gave back. What it holds is reported when it changes (emitted_windows), once more when it has not
answered for UNANSWERED_MS, and when it is gone. When a head stands for STANDS_AFTER_SAMPLES
samples, its client is asked once more, for the stacks of its listeners, at most each
STACK_INTERVAL_MS.

Invariant: one question per client is under way at a time, and STACK_QUESTIONS_AT_ONCE for stacks of
all clients; a client that does not answer is asked again in the next round and harms nobody. Absent
on purpose: judging what is held (pipelines).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from engine.broker.groups.consumer_groups import ConsumerGroups
from engine.broker.groups.members import ClientChannel, Member
from engine.broker.groups.readers import DoubtfulReaders, QueueKey, Readers, Reading
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.offsets.remembered_offsets import Client, RememberedOffsets
from engine.broker.stats.client_stats import ClientStats
from engine.broker.topics.topics import Topics
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.foundation.limits import (
    LOOP_STEP_ANSWERS_MAX,
    LOOP_STEP_ENTRIES_MAX,
    STACK_QUESTIONS_AT_ONCE,
)
from engine.foundation.observing import ClientWindow, ConsumeStats, Observer, RetryStep
from engine.foundation.units import SECOND_MS
from engine.protocol.bodies import ConsumerRunningInfo, ConsumeStatus, ProcessQueueInfo
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import ConsumerRunningInfoRequestHeader
from engine.protocol.message import MessageQueue
from engine.runtime.clock import Clock
from engine.store import MessageStore
from engine.telemetry.members.answers import (
    consume_threads,
    is_orderly,
    stack_of,
    taken_whole,
    window_of,
)
from engine.telemetry.members.client_clocks import ClientClocks
from engine.telemetry.members.emitted import (
    EmittedStats,
    EmittedWindows,
    MemberKey,
    Place,
    holds_nothing,
    stats_of,
)

READS_FOR_MS = 2 * SECOND_MS
"""A client that pulled a queue in the last such span reads it."""

FROZEN_AFTER_MS = 1 * SECOND_MS
"""A queue that is read looks frozen when messages wait, and its offset has not been reported higher
for so long."""

BEGUN_AFTER_MS = 1 * SECOND_MS
"""A client that has read a queue for so long is asked, if it was not asked since."""

STANDS_AFTER_SAMPLES = 2
"""A head stands that was there so many times the sample interval ago."""

STACK_INTERVAL_MS = 30 * SECOND_MS
"""A client is asked for its stacks no more often: a dump of all threads stops a Java client for
some milliseconds."""

UNANSWERED_MS = 12 * SECOND_MS
"""A client that was silent for so long, and missed two questions, no longer answers."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class ClientWindows:
    """Asks, and reports what was answered."""

    client_stats: ClientStats
    clock: Clock
    doubtful_readers: DoubtfulReaders
    emit_marks: Callable[[Sequence[QueueKey]], None]
    groups: ConsumerGroups
    is_mark_emitted: Callable[[QueueKey], bool]
    node: BrokerNode
    observer: Observer
    offsets: ConsumerOffsets
    readers: Readers
    remembered: RememberedOffsets
    store: MessageStore
    topics: Topics
    _asked_ms: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    _answered_ms: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    """When each member reported last what it holds."""
    _under_way: set[tuple[str, str]] = field(default_factory=set, init=False)
    _read: dict[QueueKey, None] = field(default_factory=dict, init=False)
    """Queues of groups that were pulled a moment ago."""
    _retries_emitted_ms: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    """Up to when each member's local retries have been reported."""
    _windows: EmittedWindows = field(init=False)
    _stats: EmittedStats = field(init=False)
    _clocks: ClientClocks = field(default_factory=ClientClocks, init=False)
    _stacks_asked_ms: dict[tuple[str, str], int] = field(default_factory=dict, init=False)
    """When each member was asked for its stacks."""
    _clients_asked_ms: dict[str, int] = field(default_factory=dict, init=False)
    """When each client was: it may be a member of several groups."""
    _stack_questions: int = field(default=0, init=False)
    """Under way."""
    _patience_ms: int = field(init=False)

    def __post_init__(self) -> None:
        config = self.node.config
        interval_ms = config.window_sample_interval_ms
        self._patience_ms = max(UNANSWERED_MS, 2 * (interval_ms + config.window_ask_timeout_ms))
        # The next answer comes an interval later; what is reported must not be older by then.
        fresh_ms = max(1, config.full_sample_interval_ms - interval_ms)
        self._windows = EmittedWindows(fresh_ms)
        self._stats = EmittedStats(rest_ms=2 * interval_ms, interval_ms=fresh_ms)

    async def run(self) -> None:
        """Ask each consumer in its turn, until cancelled."""
        async with asyncio.TaskGroup() as questions:
            while True:
                now_ms = self.clock.steady_ms()
                for due in self.due(now_ms):
                    for group, channel in due:
                        self._asked_ms[group, channel.client_id] = now_ms
                        self._under_way.add((group, channel.client_id))
                        questions.create_task(self._ask(group, channel), name="ask client window")
                    await asyncio.sleep(0)
                await asyncio.sleep(
                    min(SECOND_MS, self.node.config.window_sample_interval_ms) / SECOND_MS
                )

    def due(self, now_ms: int) -> Iterator[list[tuple[str, ClientChannel]]]:
        """Whom to ask now, with the group to ask about: step by step, each of which looks at
        LOOP_STEP_ENTRIES_MAX queues or members at most. `now_ms` is steady time.
        """
        interval_ms = self.node.config.window_sample_interval_ms
        urgent: dict[tuple[str, str], None] = {}
        due: list[tuple[str, ClientChannel]] = []
        looked_at = 0
        for reader in self._urgent_readers(now_ms):
            if reader is not None:
                urgent[reader] = None
            looked_at += 1
            if not looked_at % LOOP_STEP_ENTRIES_MAX:
                yield []
        for name, member in self._members():
            key = (name, member.client_id)
            is_urgent = key in urgent or self.doubtful_readers.is_due(key, now_ms)
            patience_ms = min(SECOND_MS, interval_ms) if is_urgent else interval_ms
            asked_ms = self._asked_ms.get(key, now_ms - patience_ms)
            if key not in self._under_way and now_ms - asked_ms >= patience_ms:
                due.append((name, member.channel))
            looked_at += 1
            if not looked_at % LOOP_STEP_ENTRIES_MAX or len(due) >= LOOP_STEP_ANSWERS_MAX:
                yield due
                due = []
        yield due
        for key in list(self._asked_ms):
            for gone in self._forget_unless_member(*key, now_ms=now_ms):
                if gone is not None:
                    self.observer.observe(gone)
                looked_at += 1
                if not looked_at % LOOP_STEP_ENTRIES_MAX:
                    yield []
            looked_at += 1
            if not looked_at % LOOP_STEP_ENTRIES_MAX:
                yield []

    def _members(self) -> Iterator[tuple[str, Member]]:
        """Every member with its group's name; both may change between two of them."""
        for group in list(self.groups.all()):
            for member in list(group.members.values()):
                yield group.name, member

    def _forget_unless_member(
        self, name: str, client_id: str, *, now_ms: int
    ) -> Iterator[ClientWindow | None]:
        """Facts about the windows of a member that is gone, or no longer answers."""
        group = self.groups.of(name)
        if group is not None and client_id in group.members:
            answered_ms = self._answered_ms.get((name, client_id), now_ms)
            if now_ms - answered_ms >= self._patience_ms:
                yield from self._windows.unanswered(name, client_id)
        else:
            del self._asked_ms[name, client_id]
            self._answered_ms.pop((name, client_id), None)
            self._retries_emitted_ms.pop((name, client_id), None)
            self._stacks_asked_ms.pop((name, client_id), None)
            self._clients_asked_ms.pop(client_id, None)
            self._clocks.forget(client_id)
            self._stats.forget(name, client_id)
            self.doubtful_readers.forget((name, client_id))
            self.client_stats.forget(name, client_id)
            yield from self._windows.forget(name, client_id)

    def _urgent_readers(self, now_ms: int) -> Iterator[tuple[str, str] | None]:
        """Of each queue that was pulled a moment ago: its reader (by group) when its offset stands
        still all the same, or when it began not long ago and has not been asked since; else None,
        and None as well when it was only noted.
        """
        wall_ms = self.clock.now_ms()
        for key in self.readers.take_pulled():  # To note a hundred thousand at once takes 60 ms.
            self._read[key] = None
            yield None
        for key in list(self._read):
            reading = self.readers.of(key)
            if (
                reading is None
                or reading.last_pull_ms is None
                or wall_ms - reading.last_pull_ms > READS_FOR_MS
            ):
                del self._read[key]
                yield None
                continue
            group, topic, queue_id = key
            committed = self.offsets.committed(group, topic, queue_id)
            if reading.stood_since_ms is None or reading.stood_at != committed:
                reading.stood_at, reading.stood_since_ms = committed, now_ms
            stands = now_ms - reading.stood_since_ms >= FROZEN_AFTER_MS and (
                committed or 0
            ) < self.store.max_offset(topic, queue_id)
            is_urgent = stands or self._has_just_begun(group, reading, now_ms)
            yield (group, reading.reader) if is_urgent and reading.reader is not None else None

    def _has_just_begun(self, group: str, reading: Reading, now_ms: int) -> bool:
        if reading.begun_by != reading.reader:
            reading.begun_by, reading.begun_ms = reading.reader, now_ms
        if reading.begun_by is None or reading.begun_ms is None:
            return False
        due_ms = reading.begun_ms + BEGUN_AFTER_MS
        asked_ms = self._asked_ms.get((group, reading.begun_by))
        return now_ms >= due_ms and (asked_ms is None or asked_ms < due_ms)

    async def _ask(self, group: str, channel: ClientChannel) -> None:
        try:
            info = await self._running_info(group, channel)
        except TidemarkError as error:
            _log.debug("%s does not say what it holds for %s: %s", channel.client_id, group, error)
            self.client_stats.take(group, channel.client_id, {})
            return
        finally:
            self._under_way.discard((group, channel.client_id))
        if info.says_nothing:  # An answer, by which nothing is known of it.
            self.client_stats.take(group, channel.client_id, {})
            return
        await self._emit(group, channel, info)
        await self._ask_for_stacks(group, channel)

    async def _emit(
        self,
        group: str,
        channel: ClientChannel,
        info: ConsumerRunningInfo,
        standing: Collection[Place] = (),
    ) -> None:
        """Report what is news in an answer, unless its client has left meanwhile; with the stacks
        of the heads that are `standing`.
        """
        client_id = channel.client_id
        member = (group, client_id)
        if member not in self._asked_ms:
            return
        ours = self._ours(group, Client(client_id, channel.peer.address), info)
        self._answered_ms[member] = self.clock.steady_ms()
        self._emit_local_retries(group, client_id, ours)
        figures = self._figures(info)
        self.client_stats.take(group, client_id, figures)
        self._emit_stats(stats_of(group, client_id, info, figures))
        stacks = None if info.jstack is None else consume_threads(info.jstack)
        orderly, whole = is_orderly(info), taken_whole(info)
        ahead_ms = self._clocks.ahead_ms(client_id, info, self.clock.now_ms())
        for number, (queue, process_queue) in enumerate(ours, 1):
            window = window_of(
                *(group, client_id, queue, process_queue),
                orderly=orderly,
                takes_all=whole.get(queue.topic),
                ahead_ms=ahead_ms,
            )
            if (queue.topic, queue.queue_id) in standing:
                window.stack = stack_of(process_queue, stacks)
            self._emit_window(window)
            if process_queue.processed_offset is not None:
                self.readers.processed(
                    (group, queue.topic, queue.queue_id), process_queue.processed_offset
                )
            if not number % LOOP_STEP_ENTRIES_MAX:
                await asyncio.sleep(0)
                if member not in self._asked_ms:
                    return
        held = {(queue.topic, queue.queue_id): None for queue, _ in ours}
        for window_gone in self._windows.given_up(group, client_id, held):
            if window_gone is not None:
                self.observer.observe(window_gone)
        self._emit_given_back(member, held)

    def _emit_given_back(self, member: MemberKey, held: Collection[Place]) -> None:
        """Emit which queues a member that might have read them does not hold. Of one that it was
        said to hold, that it does no more is a fact already.
        """
        asked_ms = self._asked_ms[member]
        for place in self.doubtful_readers.given_back(member, held, asked_ms=asked_ms):
            key = (member[0], *place)
            if self.topics.find(place[0]) is not None and self.is_mark_emitted(key):
                self.observer.observe(holds_nothing(member, place))

    def _emit_stats(self, all_stats: list[ConsumeStats]) -> None:
        at, now_ms = self.observer.emitted_up_to(), self.clock.steady_ms()
        losses = -1 if at is None else at.losses  # What is reported now is lost.
        for stats in all_stats:
            if self._stats.is_news(stats, now_ms, losses=losses):
                self.observer.observe(stats)

    def _emit_window(self, window: ClientWindow) -> None:
        at = self.observer.emitted_up_to()
        losses = -1 if at is None else at.losses  # What is reported now is lost.
        if not self._windows.knows(window):
            # How far the group is comes first: nobody can do anything with a window of a queue that
            # the group was never said to read.
            key = (window.group, window.topic, window.queue_id)
            self.emit_marks([key])
            if not window.held_count and not self.is_mark_emitted(key):
                return  # It never pulled, and holds nothing. The next answer comes soon.
        if self._windows.is_news(window, self.clock.steady_ms(), losses=losses):
            self.observer.observe(window)

    async def _ask_for_stacks(self, group: str, channel: ClientChannel) -> None:
        """Of a head that stands, find out where its listener does."""
        member, now_ms = (group, channel.client_id), self.clock.steady_ms()
        stood_ms = STANDS_AFTER_SAMPLES * self.node.config.window_sample_interval_ms
        if (
            member not in self._asked_ms
            or member in self._under_way
            or self._stack_questions >= STACK_QUESTIONS_AT_ONCE
            or not _is_due(self._clients_asked_ms.get(channel.client_id), now_ms, STACK_INTERVAL_MS)
        ):
            return
        standing = self._windows.standing(*member, since_ms=now_ms - stood_ms)
        asked_ms = self._stacks_asked_ms.get(member)  # Other groups of the client come first then.
        if not standing or (
            self._windows.has_stack(*member, standing)
            and not _is_due(asked_ms, now_ms, 2 * STACK_INTERVAL_MS)
        ):
            return
        self._stacks_asked_ms[member] = self._clients_asked_ms[channel.client_id] = now_ms
        self._stack_questions += 1
        self._under_way.add(member)
        try:
            info = await self._running_info(group, channel, stacks=True)
        except TidemarkError as error:
            _log.debug("%s does not send its stacks for %s: %s", channel.client_id, group, error)
            return
        finally:
            self._under_way.discard(member)
            self._stack_questions -= 1
        await self._emit(group, channel, info, standing)

    def _ours(
        self, group: str, client: Client, info: ConsumerRunningInfo
    ) -> list[tuple[MessageQueue, ProcessQueueInfo]]:
        """What it holds of queues of this broker in their present lives: it reports of queues of
        others as well, whose own brokers ask for them, and of topics that were made again.
        """
        return [
            (queue, process_queue)
            for queue, process_queue in sorted(info.mq_table.items())
            if queue.broker_name == self.node.config.broker_name
            and self.topics.find(queue.topic) is not None
            and self.remembered.holds_present_life((group, queue.topic, queue.queue_id), client)
        ]

    def _emit_local_retries(
        self, group: str, client_id: str, ours: list[tuple[MessageQueue, ProcessQueueInfo]]
    ) -> None:
        """Report the messages that a member could not give back since it was asked last."""
        emitted_ms = self._retries_emitted_ms.get((group, client_id), 0)
        newest_ms = emitted_ms
        for queue, window in ours:
            for at_ms, message_id, queue_offset, reconsume_times in window.local_retries or ():
                if at_ms <= emitted_ms:
                    continue
                newest_ms = max(newest_ms, at_ms)
                self.observer.observe(
                    RetryStep(
                        message_id=message_id,
                        origin_topic=queue.topic,
                        origin_queue_id=queue.queue_id,
                        origin_offset=queue_offset,
                        group=group,
                        reconsume_times=reconsume_times,
                        step="LOCAL_RETRY",
                        delay_ms=None,
                        reason="no way back worked, the listener gets it again where it is",
                    )
                )
        self._retries_emitted_ms[group, client_id] = newest_ms

    def _figures(self, info: ConsumerRunningInfo) -> dict[str, ConsumeStatus]:
        """What it says of topics that are here: others may have any name."""
        topics = self.topics
        return {
            topic: figures
            for topic, figures in info.status_table.items()
            if topics.find(topic) is not None
        }

    async def _running_info(
        self, group: str, channel: ClientChannel, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        fields = ConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=channel.client_id, jstack_enable=stacks
        ).encode()
        command = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        response = await channel.peer.invoke(
            command, timeout_ms=self.node.config.window_ask_timeout_ms
        )
        if response.code != ResponseCode.SUCCESS:
            raise RequestRefused(response.code, response.remark or "no remark")
        return ConsumerRunningInfo.decode(response.body)


def _is_due(asked_ms: int | None, now_ms: int, interval_ms: int) -> bool:
    return asked_ms is None or now_ms - asked_ms >= interval_ms
