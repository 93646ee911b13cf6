"""Asks one broker all that a look needs, within a budget.

Place in the walk: admin protocol → `Look`. Cheap questions (how far every group is; the broker's
own figures) come each look; those about one topic, one group, one member or one message take turns
(`turns`), those about what moves or is behind first.

Invariant: at most QUESTIONS_AT_ONCE of one broker are under way; a question that is refused, or not
answered, costs that answer and no other. Absent on purpose: memory of what was told (`facts`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, TypeVar

from engine.client.admin import Admin
from engine.foundation.errors import RemoteProtocolError, RequestRefused, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.observer.looks import Look, Member, Place
from engine.observer.turns import Turns
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageQueue

QUESTIONS_AT_ONCE: Final = 8
TOPICS_A_LOOK: Final = 400
GROUPS_A_LOOK: Final = 200
MEMBERS_A_LOOK: Final = 100
MESSAGES_A_LOOK: Final = 200
"""Messages that are read for their store time: each costs the broker a read."""
MOMENT_DIGITS_MAX: Final = 15
LISTS_EACH: Final = 6
"""Topics and groups are listed each so many looks."""

_log = logging.getLogger(__name__)
Asked = TypeVar("Asked")


class Asking:
    """The questions to one broker, look by look."""

    def __init__(self, admin: Admin, broker_name: str) -> None:
        self._admin = admin
        self._broker_name = broker_name
        self._looks = 0
        self._listed_topics: dict[str, None] = {}
        self._listed_groups: dict[str, None] = {}
        self._max_of: dict[Place, int] = {}
        self._stored_ms: dict[tuple[str, int, int], int] = {}
        self.topics: dict[str, None] = {}
        """All that are known."""
        self.topic_turns: Turns[str] = Turns(TOPICS_A_LOOK)
        self._group_turns: Turns[str] = Turns(GROUPS_A_LOOK)
        self._member_turns: Turns[Member] = Turns(MEMBERS_A_LOOK)
        self._message_turns: Turns[tuple[str, int, int]] = Turns(MESSAGES_A_LOOK)
        self._members: dict[str, list[str]] = {}

    async def look(self, address: str, now_ms: Callable[[], int]) -> Look:
        """Ask the broker at this address. Raises TidemarkError when it does not answer the
        questions of each look.
        """
        admin = self._admin
        began_ms = now_ms()
        figures = await admin.cluster.figures(address)
        began_at_ms = boot_ms(figures.get("bootTimestamp", ""))
        runs_ms = age_ms(figures.get("runtime", ""))
        answered_ms = (began_ms + now_ms()) // 2
        told = await admin.groups.broker_consume_stats(address)
        look = Look(
            at_ms=began_ms,
            boot_ms=began_at_ms,
            skew_ms=None if runs_ms is None else began_at_ms + runs_ms - answered_ms,
            progress={
                group: {(queue.topic, queue.queue_id): one for queue, one in rows.items()}
                for group, rows in told.items()
            },
        )
        if self._looks % LISTS_EACH == 0:
            look.topics = await admin.topics.configs_at(address)
            look.groups = frozenset(await admin.groups.configs_at(address))
            self._listed_topics = dict.fromkeys(look.topics)
            self._listed_groups = dict.fromkeys(sorted(look.groups))
        self._looks += 1
        behind = {
            group
            for group, rows in look.progress.items()
            if any(one.lag > 0 for one in rows.values())
        }
        await self._ask_ends(look, address)
        await self._ask_connections(look, address, behind)
        await self._ask_members(look, address, behind)
        await self._ask_store_times(look)
        return look

    async def _ask_ends(self, look: Look, address: str) -> None:
        ends = {
            place: one.broker_offset
            for rows in look.progress.values()
            for place, one in rows.items()
        }
        moved = [place[0] for place, end in ends.items() if self._max_of.get(place) != end]
        self._max_of = ends
        self.topics = {**self._listed_topics, **dict.fromkeys(topic for topic, _ in ends)}

        async def ask(topic: str) -> None:
            found = await self._admin.topics.status_at(address, topic)
            look.ends |= {(topic, queue.queue_id): one for queue, one in found.items()}

        await self._each(self.topic_turns.due(self.topics, urgent=moved), ask)

    async def _ask_connections(self, look: Look, address: str, behind: Collection[str]) -> None:
        groups = dict.fromkeys((*look.progress, *self._listed_groups))
        self._members = {name: of for name, of in self._members.items() if name in groups}

        async def ask(group: str) -> None:
            try:
                look.connections[group] = await self._admin.groups.connections(address, group)
            except RequestRefused as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    raise
                look.connections[group] = None

        await self._each(self._group_turns.due(groups, urgent=behind), ask)
        for group, connection in look.connections.items():
            members = [] if connection is None else connection.connection_set
            self._members[group] = [one.client_id for one in members]

    async def _ask_members(self, look: Look, address: str, behind: Collection[str]) -> None:
        everyone = [(group, name) for group, names in self._members.items() for name in names]
        urgent = [member for member in everyone if member[0] in behind]

        async def ask(member: Member) -> None:
            group, client_id = member
            look.running[member] = await self._admin.groups.running_info(address, group, client_id)

        await self._each(self._member_turns.due(everyone, urgent=urgent), ask)

    async def _ask_store_times(self, look: Look) -> None:
        wanted = {
            (*place, one.consumer_offset): None
            for rows in look.progress.values()
            for place, one in rows.items()
            if one.consumer_offset < one.broker_offset
        }
        self._stored_ms = {key: at for key, at in self._stored_ms.items() if key in wanted}
        unknown = [key for key in wanted if key not in self._stored_ms]

        async def ask(key: tuple[str, int, int]) -> None:
            topic, queue_id, offset = key
            queue = MessageQueue(topic, self._broker_name, queue_id)
            for message in await self._admin.messages.read(queue, offset, count_max=1):
                if message.queue_offset == offset:
                    self._stored_ms[key] = message.store_timestamp_ms

        await self._each(self._message_turns.due(unknown), ask)
        look.stored_ms = self._stored_ms

    async def _each(self, wanted: Iterable[Asked], ask: Callable[[Asked], Awaitable[None]]) -> None:
        """Ask about each; that some were not answered is told once."""
        room, failures = asyncio.Semaphore(QUESTIONS_AT_ONCE), list[str]()

        async def one(about: Asked) -> None:
            async with room:
                try:
                    await ask(about)
                except TidemarkError as error:
                    failures.append(f"{about}: {error}")

        async with asyncio.TaskGroup() as questions:
            for about in wanted:
                questions.create_task(one(about))
        if failures:
            _log.info(
                "%s: %d questions without an answer, such as %s",
                *(self._broker_name, len(failures), failures[0]),
            )


def boot_ms(told: str) -> int:
    """When a broker says that its life began."""
    if not told.isdecimal() or len(told) > MOMENT_DIGITS_MAX:
        raise RemoteProtocolError(f"the broker's bootTimestamp is {told[:80]!r}, not milliseconds")
    return int(told)


def age_ms(runtime: str) -> int | None:
    """How long a broker says that it runs: `[ 0 days, 1 hours, 12 minutes, 3 seconds ]`."""
    units = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
    seconds = 0
    for part in runtime.strip("[] ").split(","):
        number, _, unit = part.strip().partition(" ")
        if not number.isdecimal() or len(number) > 9 or unit not in units:
            return None
        seconds += int(number) * units[unit]
    return seconds * SECOND_MS
