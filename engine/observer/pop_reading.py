"""Reads a broker's POP checkpoints and acknowledgements during each poll.

Place in the walk: under `polling`, by the same protocol as messages; `PopLog` has what they say. A
broker stores each record at once in the topic of its timer, and moves it to the revive log when its
time has come: so that topic is read, from where the look before ended, where a proxy serves the
cluster or the revive log shows that somebody reads by POP.

Invariant: at most RECORDS_A_LOOK are read in a look; when more have come, the older ones are passed
over, and nothing is known until the longest invisible time is over. Where the broker does not store
such records, or they may not be read, that is the reason why nothing is known. Absent on purpose:
what is left of each queue (`pop_marks`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from engine.admin import Admin
from engine.foundation.errors import TidemarkError
from engine.foundation.units import SECOND_MS
from engine.observer.pop_log import REVIVE_LOG_PREFIX, PopLog
from engine.observer.question_turns import CHECKPOINTS, Questions, why
from engine.protocol.message import MessageExt, MessageQueue
from engine.protocol.names import TIMER_TOPIC
from engine.runtime.clock import Clock

RECORDS_A_LOOK: Final = 12_800
"""Of one broker: whatever is handed out at once is one, and each acknowledgement another."""
RECORDS_A_QUESTION: Final = 32
"""RocketMQ gives no more at once."""
QUESTIONS_AT_ONCE: Final = 8

IN_A_STORE: Final = (
    "its broker keeps checkpoints in a store that nobody can ask (popConsumerKVServiceEnable)"
)
IN_MEMORY: Final = "its broker keeps checkpoints in memory for a while (enablePopBufferMerge)"
SETTINGS_UNKNOWN: Final = "whether its broker stores checkpoints is not known: a setting of it"
TOO_MANY: Final = "more messages are handed out than are followed"
NOT_YET: Final = "checkpoints are not yet read for as long as the longest invisible time"
NOT_IN_TIME: Final = "there was no time to read the checkpoints of its broker"


def unreadable(settings: Mapping[str, str]) -> str | None:
    """Why a broker with these settings does not store all of its checkpoints; None: it does."""
    if settings.get("popConsumerKVServiceEnable") == "true":
        return IN_A_STORE
    return IN_MEMORY if settings.get("enablePopBufferMerge") == "true" else None


class PopReading:
    """Of one broker."""

    def __init__(self, admin: Admin, broker_name: str, questions: Questions, clock: Clock) -> None:
        self._admin = admin
        self._broker_name = broker_name
        self._questions = questions
        self._clock = clock
        self._next: int | None = None
        """Offset of the next record; None: none was read yet."""
        self._why_unreadable: str | None = SETTINGS_UNKNOWN
        self.log = PopLog()

    def set_up(self, settings: Mapping[str, str]) -> None:
        """The broker has these settings."""
        self._why_unreadable = unreadable(settings)

    async def read(
        self, address: str, topics: Collection[str], *, is_proxied: bool, until_ms: int
    ) -> str | None:
        """Take in what has come, until that moment of steady time; why nothing is known, if so.

        `is_proxied`: a proxy serves the cluster, so the first that reads by POP may come any time.
        """
        if self._why_unreadable is not None:
            return self._why_unreadable
        try:
            async with asyncio.timeout(max(0, until_ms - self._clock.steady_ms()) / SECOND_MS):
                is_used = is_proxied or self._next is not None
                if not is_used and not await self._is_pop_used(address, topics):
                    return None
                await self._read_on(address)
        except TimeoutError:
            self._questions.doubted(CHECKPOINTS, "slow", "there was no time to read them all")
            return NOT_IN_TIME
        except TidemarkError as error:
            self._questions.failed(CHECKPOINTS, "", error)
            return f"checkpoints of its broker could not be read: {why(CHECKPOINTS, error)}"
        return None

    async def _is_pop_used(self, address: str, topics: Collection[str]) -> bool:
        """Has anything ever come into the revive log?"""
        for topic in topics:
            if topic.startswith(REVIVE_LOG_PREFIX):
                ends = await self._admin.topics.status_at(address, topic)
                return any(one.max_offset > 0 for one in ends.values())
        return False

    async def _read_on(self, address: str) -> None:
        queue = MessageQueue(TIMER_TOPIC, self._broker_name, 0)
        ends = (await self._admin.topics.status_at(address, TIMER_TOPIC)).get(queue)
        if ends is None:
            return
        first = max(ends.min_offset, ends.max_offset - RECORDS_A_LOOK)
        is_behind = self._next is None or not first <= self._next <= ends.max_offset
        if is_behind or self.log.is_full or self._next is None:
            self._next = first
            self.log.begin(is_whole=first == 0)
        while self._next < ends.max_offset:
            until = min(self._next + RECORDS_A_QUESTION * QUESTIONS_AT_ONCE, ends.max_offset)
            for records in await self._chunks(queue, address, self._next, until):
                self.log.take(records)
            self._next = until

    async def _chunks(
        self, queue: MessageQueue, address: str, begin: int, end: int
    ) -> list[list[MessageExt]]:
        """Records of [begin, end), by several questions at once. Raises TidemarkError."""
        try:
            async with asyncio.TaskGroup() as reading:
                tasks = [
                    reading.create_task(
                        self._chunk(queue, address, at, min(at + RECORDS_A_QUESTION, end))
                    )
                    for at in range(begin, end, RECORDS_A_QUESTION)
                ]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _chunk(
        self, queue: MessageQueue, address: str, begin: int, end: int
    ) -> list[MessageExt]:
        found: list[MessageExt] = []
        at = begin
        while at < end:
            more = await self._admin.messages.read(queue, at, count_max=end - at, address=address)
            new = [one for one in more if at <= one.queue_offset < end]
            if not new:
                break
            found += new
            at = new[-1].queue_offset + 1
        return found
