"""What consumers hold: asked of the clients themselves, because only they know it.

Place in the walk: beside it; each consumer is asked every 5 s (GET_CONSUMER_RUNNING_INFO), and at
once when one of its queues looks frozen: pulls go on, the consume offset does not.

Invariant: one question per client is under way at a time; a client that does not answer is asked
again in the next round and harms nobody. Absent on purpose: judging what is held (pipelines).
"""

from __future__ import annotations

import asyncio
import logging

from engine.broker.parts import BrokerParts
from engine.broker.state.groups import ClientChannel
from engine.broker.state.readers import QueueKey
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.foundation.observing import ClientWindow, RetryStep
from engine.foundation.units import MIB, SECOND_MS
from engine.protocol.bodies import ConsumerRunningInfo, ConsumeStatus, ProcessQueueInfo
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import ConsumerRunningInfoRequestHeader
from engine.protocol.message import MessageQueue

FROZEN_AFTER_MS = 2 * SECOND_MS
"""A queue looks frozen when it was pulled in the last such span, messages wait, and its offset has
not been reported higher for as long."""

_log = logging.getLogger(__name__)


class ClientWindows:
    """Asks, and tells what was answered."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._asked_ms: dict[tuple[str, str], int] = {}
        self._under_way: set[tuple[str, str]] = set()
        self._standing: dict[QueueKey, tuple[int | None, int]] = {}
        """Consume offset of each queue of a group, and since when it has stood there."""
        self._retries_told_ms: dict[tuple[str, str], int] = {}
        """Up to when each member's local retries have been told."""

    async def run(self) -> None:
        """Ask each consumer in its turn, until cancelled."""
        async with asyncio.TaskGroup() as questions:
            while True:
                now_ms = self._parts.steady_ms()
                for group, channel in self.due(now_ms):
                    self._asked_ms[group, channel.client_id] = now_ms
                    self._under_way.add((group, channel.client_id))
                    questions.create_task(self._ask(group, channel), name="ask a client window")
                await asyncio.sleep(
                    min(SECOND_MS, self._parts.config.window_sample_interval_ms) / SECOND_MS
                )

    def due(self, now_ms: int) -> list[tuple[str, ClientChannel]]:
        """Whom to ask now, with the group to ask about."""
        interval_ms = self._parts.config.window_sample_interval_ms
        frozen = self._frozen_readers(now_ms)
        due: list[tuple[str, ClientChannel]] = []
        members: dict[tuple[str, str], None] = {}
        for group in self._parts.groups.all():
            for member in group.members.values():
                key = (group.name, member.client_id)
                members[key] = None
                patience_ms = min(SECOND_MS, interval_ms) if key in frozen else interval_ms
                asked_ms = self._asked_ms.get(key, now_ms - patience_ms)
                if key not in self._under_way and now_ms - asked_ms >= patience_ms:
                    due.append((group.name, member.channel))
        for key in [key for key in self._asked_ms if key not in members]:
            del self._asked_ms[key]
            self._retries_told_ms.pop(key, None)
        self._parts.client_figures.keep(members)
        return due

    def _frozen_readers(self, now_ms: int) -> dict[tuple[str, str], None]:
        """Clients (by group) with a queue whose offset stands still while they pull it."""
        parts, before = self._parts, self._standing
        frozen: dict[tuple[str, str], None] = {}
        self._standing = {}
        for key in parts.readers.all_keys():
            reading = parts.readers.of(key)
            group, topic, queue_id = key
            committed = parts.offsets.committed(group, topic, queue_id)
            stood = before.get(key)
            if stood is None or stood[0] != committed:
                stood = (committed, now_ms)
            self._standing[key] = stood
            if (
                reading is not None
                and reading.reader is not None
                and reading.last_pull_ms is not None
                and parts.now_ms() - reading.last_pull_ms <= FROZEN_AFTER_MS
                and now_ms - stood[1] >= FROZEN_AFTER_MS
                and (committed or 0) < parts.store.max_offset(topic, queue_id)
            ):
                frozen[group, reading.reader] = None
        return frozen

    async def _ask(self, group: str, channel: ClientChannel) -> None:
        try:
            info = await self._running_info(group, channel)
        except TidemarkError as error:
            _log.debug("%s does not tell what it holds for %s: %s", channel.client_id, group, error)
            self._parts.client_figures.take(group, channel.client_id, {})
            return
        finally:
            self._under_way.discard((group, channel.client_id))
        for window in windows_of(group, channel.client_id, info):
            self._parts.observer.observe(window)
        self._tell_local_retries(group, channel.client_id, info)
        self._parts.client_figures.take(group, channel.client_id, self._figures(info))
        for queue, told in info.mq_table.items():
            if told.processed_offset is not None:
                self._parts.processed[group, queue.topic, queue.queue_id] = told.processed_offset

    def _tell_local_retries(self, group: str, client_id: str, info: ConsumerRunningInfo) -> None:
        """Tell the messages that a member could not give back since it was asked last."""
        told_ms = self._retries_told_ms.get((group, client_id), 0)
        newest_ms = told_ms
        for queue, window in sorted(info.mq_table.items()):
            for at_ms, message_id, queue_offset, reconsume_times in window.local_retries or ():
                if at_ms <= told_ms:
                    continue
                newest_ms = max(newest_ms, at_ms)
                self._parts.observer.observe(
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
        self._retries_told_ms[group, client_id] = newest_ms

    def _figures(self, info: ConsumerRunningInfo) -> dict[str, ConsumeStatus]:
        """What it says of topics that are here: others may have any name."""
        topics = self._parts.topics
        return {
            topic: told
            for topic, told in info.status_table.items()
            if topics.find(topic) is not None
        }

    async def _running_info(self, group: str, channel: ClientChannel) -> ConsumerRunningInfo:
        fields = ConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=channel.client_id, jstack_enable=False
        ).encode()
        command = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        response = await channel.peer.invoke(
            command, timeout_ms=self._parts.config.window_ask_timeout_ms
        )
        if response.code != ResponseCode.SUCCESS:
            raise RequestRefused(response.code, response.remark or "no remark")
        return ConsumerRunningInfo.decode(response.body)


def windows_of(group: str, client_id: str, info: ConsumerRunningInfo) -> list[ClientWindow]:
    """What a client's answer says of each queue it holds."""
    return [_window(group, client_id, queue, told) for queue, told in sorted(info.mq_table.items())]


def _window(
    group: str, client_id: str, queue: MessageQueue, told: ProcessQueueInfo
) -> ClientWindow:
    # Messages taken by an orderly listener are held like those that wait.
    firsts, lasts = [], []
    if told.cached_msg_count > 0:
        firsts.append(told.cached_msg_min_offset)
        lasts.append(told.cached_msg_max_offset)
    if told.transaction_msg_count > 0:
        firsts.append(told.transaction_msg_min_offset)
        lasts.append(told.transaction_msg_max_offset)
    held_bytes = told.held_bytes
    return ClientWindow(
        client_id=client_id,
        group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        first_held=min(firsts) if firsts else None,
        last_held=max(lasts) if lasts else None,
        held_count=told.cached_msg_count + told.transaction_msg_count,
        held_bytes=told.cached_msg_size_in_mib * MIB if held_bytes is None else held_bytes,
        held_ranges=told.held_ranges,
        finished_count=told.finished_count,
        filtered_count=told.filtered_count,
        head_message_id=told.head_message_id,
        head_since_ms=told.head_since_ms,
        client_committed=told.client_committed
        if told.held_ranges is not None
        else told.commit_offset,
        locked=told.locked,
        dropped=told.dropped,
        last_pull_time_ms=told.last_pull_timestamp_ms or None,
        last_consume_time_ms=told.last_consume_timestamp_ms or None,
    )
