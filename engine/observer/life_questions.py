"""Queries a broker to detect recreated topics that queue ends do not reveal.

Place in the walk: under `polling`; what comes back is judged by `topics_seen`.

The topic table of a broker has a version, which its name server knows: it moves when a topic is
made or deleted. So it is asked each look, and only when it has moved, or the broker has begun a new
life, each topic that had messages is asked when its first one was stored.

Invariant: the version is asked after the ends of a look, so a topic that was made again since the
version before had its ends of the look before in its earlier life. A store time counts if the queue
begins at 0 after it was asked: retention moves that begin, and no other message becomes the first.
Absent on purpose: what a store time means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from engine.admin import Admin
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.observer.believable import is_moment
from engine.observer.poll_result import Look, Place
from engine.observer.question_turns import LIVES, Questions, Turns
from engine.protocol.bodies import DataVersion, TopicOffset
from engine.protocol.message import MessageQueue

LIVES_A_LOOK: Final = 400
"""Topics; each costs two questions."""


class LifeQuestions:
    """To one broker, and to its name server."""

    def __init__(self, admin: Admin, cluster: str, broker_name: str, questions: Questions) -> None:
        """`cluster`: as its name servers call it."""
        self._admin = admin
        self._cluster = cluster
        self._broker_name = broker_name
        self._questions = questions
        self._version: DataVersion | None = None
        self._boot_ms: int | None = None
        self._queue_of: dict[str, int] = {}
        """A queue of each topic that had messages when its ends were asked last."""
        self._suspects: dict[str, None] = {}
        """Topics that may be other ones, and were not asked yet."""
        self._turns: Turns[str] = Turns(LIVES_A_LOOK)

    async def ask(
        self,
        look: Look,
        address: str,
        topics: Collection[str],
        ends_of: Callable[[str], Awaitable[Mapping[Place, TopicOffset]]],
        *,
        until_ms: int,
    ) -> None:
        """Ask about topics that may be other ones, once the look has the ends of those it asked."""
        if await self._has_moved(address, look.boot_ms):
            self._suspects |= dict.fromkeys(self._queue_of)

        async def ask(topic: str) -> None:
            self._suspects.pop(topic, None)
            queue_id = self._queue_of[topic]
            queue = MessageQueue(topic, self._broker_name, queue_id)
            try:
                first_ms = await self._admin.offsets.earliest_store_time(queue, address=address)
                found = await ends_of(topic)
            except RequestRefused:
                raise  # It would be again.
            except TidemarkError:
                self._suspects[topic] = None
                raise
            look.ends |= found
            ends = found.get((topic, queue_id))
            is_first = ends is not None and ends.min_offset == 0 < ends.max_offset
            if is_first and first_ms is not None and is_moment(first_ms):
                look.first_stored_ms[topic, queue_id] = first_ms

        known = set(topics)
        self._queue_of = {topic: at for topic, at in self._queue_of.items() if topic in known}
        self._suspects = {topic: None for topic in self._suspects if topic in self._queue_of}
        due = self._turns.due(self._suspects)
        await self._questions.each(LIVES, self._turns, due, ask, until_ms=until_ms)
        for topic in dict.fromkeys(topic for topic, _ in look.ends):
            self._queue_of.pop(topic, None)
        for (topic, queue_id), ends in look.ends.items():
            if ends.max_offset > 0:
                self._queue_of.setdefault(topic, queue_id)

    async def _has_moved(self, address: str, boot_ms: int) -> bool:
        """Was a topic made or deleted since this was asked last, or the broker started?"""
        try:
            version = await self._admin.topics.table_version(
                self._cluster, self._broker_name, address
            )
        except TidemarkError as error:
            self._questions.failed(LIVES, "the version of its topics", error)
            version = None
        before, boot_before_ms = self._version, self._boot_ms
        self._version, self._boot_ms = version or before, boot_ms
        is_other = None not in (version, before) and version != before
        return is_other or boot_before_ms not in (None, boot_ms)
