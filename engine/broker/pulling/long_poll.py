"""Holds pulls at the end of a queue until they are woken, then answers them in batches.

Place in the walk: `handlers/pull` parks a pull that found nothing. Dispatch signals arrivals, a
second passes, the accounts change or the broker stops: then the pull leaves the hold table and is
answered soon, as if the request had just come; it is not held again.

Invariant: a held pull leaves the table exactly once; pulls are answered in the order in which they
were woken, LOOP_STEP_ANSWERS_MAX of them at most in a step of the loop, fewer when their filters
cost much. Absent on purpose: what an answer says, the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field

from engine.foundation.limits import (
    FILTER_COST_MAX,
    HELD_FILTER_BYTES_MAX,
    HELD_PULLS_MAX,
    LOOP_STEP_ANSWERS_MAX,
    LOOP_STEP_ENTRIES_MAX,
)
from engine.foundation.units import SECOND_MS
from engine.store.record_reading import DispatchRequest

LOOK_TESTS = 800
"""Messages that a look tests at most, unless maxFilterMessageSize was changed."""


@dataclass(slots=True)
class HeldPull:
    """A pull without an answer yet."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    """First offset it wants."""
    wanted: Callable[[int], bool] | None
    """Its tag test on tags_code; None takes all."""
    matches: Callable[[bytes], bool] | None
    """Its test on the property string of what passed the first; None takes all."""
    deadline_ms: int
    """When it is answered whatever there is."""
    gone: Callable[[], bool]
    """Has its connection ended?"""
    resume: Callable[[], None]
    """Answers it from what the store has now."""
    filter_bytes: int = 0
    """Memory that its tests take."""
    filter_cost: int = 1
    """What a message costs that they are asked about."""

    @property
    def filters(self) -> bool:
        """Does it want some messages only?"""
        return self.wanted is not None or self.matches is not None

    @property
    def look_cost(self) -> int:
        """What it costs at most when it looks into its queue itself."""
        return min(FILTER_COST_MAX, self.filter_cost * LOOK_TESTS) if self.filters else 0


@dataclass(slots=True, eq=False)
class HeldPulls:
    """The hold table, keyed by topic and queue."""

    count_max: int = HELD_PULLS_MAX
    _: KW_ONLY
    filter_bytes_max: int = HELD_FILTER_BYTES_MAX
    cost_max: int = FILTER_COST_MAX
    _held: dict[tuple[str, int], list[HeldPull]] = field(default_factory=dict, init=False)
    count: int = field(default=0, init=False)
    filter_bytes: int = field(default=0, init=False)
    """Memory that the tests of all held pulls take."""

    def hold(self, pull: HeldPull) -> bool:
        """Park a pull; False when the table is full and it must be answered now."""
        if self.count >= self.count_max:
            return False
        if pull.filter_bytes and self.filter_bytes + pull.filter_bytes > self.filter_bytes_max:
            return False
        self._held.setdefault((pull.topic, pull.queue_id), []).append(pull)
        self.count += 1
        self.filter_bytes += pull.filter_bytes
        return True

    def all_arrived(self, messages: Iterable[DispatchRequest]) -> list[HeldPull]:
        """Take out the pulls that want one of the messages just dispatched.

        When asking all of them about each message would cost too much, those who wait on the queue
        are taken out unasked: each looks for itself what there is for it, when it has its turn.
        """
        woken: list[HeldPull] = []
        cost = 0
        for message in messages:
            held = self._held.get((message.topic, message.queue_id))
            if held is None:
                continue
            cost += sum([pull.filter_cost for pull in held])
            if cost <= self.cost_max:
                woken += self.arrived(message)
            else:
                cost = self.cost_max
                woken += self._from(message)
        return woken

    def _from(self, message: DispatchRequest) -> list[HeldPull]:
        """Take out the pulls that may want the message, unasked."""
        key, end = (message.topic, message.queue_id), message.queue_offset
        return self._take(key, lambda pull: pull.queue_offset <= end)

    def arrived(self, message: DispatchRequest) -> list[HeldPull]:
        """Take out the pulls that want a message just dispatched."""
        key = (message.topic, message.queue_id)
        if key not in self._held:
            return []
        return self._take(
            key,
            lambda pull: (
                message.queue_offset >= pull.queue_offset
                and (pull.wanted is None or pull.wanted(message.tags_code))
                and (pull.matches is None or pull.matches(message.properties))
            ),
        )

    def due(self, now_ms: int, max_offset: Callable[[str, int], int]) -> Iterator[list[HeldPull]]:
        """Take out pulls past their deadline, and any that an arrival failed to wake: those of one
        step after the other, each of which looks at LOOP_STEP_ENTRIES_MAX pulls at most.
        """
        woken: list[HeldPull] = []
        looked_at = 0
        for topic, queue_id in list(self._held):
            end, position = max_offset(topic, queue_id), 0
            while position < len(held := self._held.get((topic, queue_id), [])):
                some = held[position : position + LOOP_STEP_ENTRIES_MAX - looked_at]
                taken = [pull for pull in some if _is_due(pull, now_ms, end)]
                if taken:
                    left = [pull for pull in some if not _is_due(pull, now_ms, end)]
                    held[position : position + len(some)] = left
                    self._note_gone(taken)
                    if not held:
                        del self._held[topic, queue_id]
                woken += taken
                position += len(some) - len(taken)
                looked_at += len(some)
                if looked_at >= LOOP_STEP_ENTRIES_MAX:
                    yield [pull for pull in woken if not pull.gone()]
                    woken, looked_at = [], 0
        yield [pull for pull in woken if not pull.gone()]

    def take_topic(self, topic: str) -> Iterator[list[HeldPull]]:
        """Take out the pulls of a topic that was deleted, queue by queue in steps."""
        for key in [key for key in self._held if key[0] == topic]:
            held = self._held.pop(key, None)
            if held is None:
                continue
            self._note_gone(held)
            yield [pull for pull in held if not pull.gone()]

    def take_group(self, group: str) -> Iterator[list[HeldPull]]:
        """Take out the pulls of a group that was deleted, queue by queue in steps."""
        for key in list(self._held):
            if key in self._held:
                yield [
                    pull
                    for pull in self._take(key, lambda pull: pull.group == group)
                    if not pull.gone()
                ]

    def take_all(self) -> list[HeldPull]:
        """Empty the table: the broker stops, every reader gets an answer."""
        pulls = [pull for held in self._held.values() for pull in held if not pull.gone()]
        self._held.clear()
        self.count = self.filter_bytes = 0
        return pulls

    def _take(self, key: tuple[str, int], chosen: Callable[[HeldPull], bool]) -> list[HeldPull]:
        taken: list[HeldPull] = []
        left: list[HeldPull] = []
        for pull in self._held[key]:
            (taken if chosen(pull) else left).append(pull)
        if left:
            self._held[key] = left
        else:
            del self._held[key]
        self._note_gone(taken)
        return taken

    def _note_gone(self, taken: list[HeldPull]) -> None:
        self.count -= len(taken)
        self.filter_bytes -= sum([pull.filter_bytes for pull in taken])


def _is_due(pull: HeldPull, now_ms: int, max_offset: int) -> bool:
    return (
        pull.deadline_ms <= now_ms
        or pull.gone()
        or (not pull.filters and max_offset > pull.queue_offset)
    )


class WakeUps:
    """Those of one broker."""

    def __init__(self, holds: HeldPulls) -> None:
        self._holds = holds
        self._woken: deque[HeldPull] = deque()

    def arrived(self, messages: Sequence[DispatchRequest]) -> None:
        """Dispatch made messages visible: wake who waits for them, once it is through."""
        if self._holds.count:
            self.wake(self._holds.all_arrived(messages))

    def wake(self, pulls: Sequence[HeldPull]) -> None:
        """Answer these soon."""
        if pulls and not self._woken:
            asyncio.get_running_loop().call_soon(self._answer)
        self._woken.extend(pulls)

    async def run(
        self, every_ms: int, steady_ms: Callable[[], int], max_offset: Callable[[str, int], int]
    ) -> None:
        """Answer held pulls whose time is up, and any that an arrival failed to wake, on the
        second; until cancelled.
        """
        interval_ms = min(every_ms, SECOND_MS)
        while True:
            await asyncio.sleep(interval_ms / SECOND_MS)
            for woken in self._holds.due(steady_ms(), max_offset):
                self.wake(woken)
                await asyncio.sleep(0)

    def wake_all(self) -> None:
        """Nobody is to wait any longer."""
        self.wake(self._holds.take_all())

    def answer_topic(self, topic: str) -> Iterator[None]:
        """The topic is being deleted: pulls on it wait for what never comes; in steps."""
        return self._woken_each(self._holds.take_topic(topic))

    def answer_group(self, group: str) -> Iterator[None]:
        """The group is being deleted: as `answer_topic`."""
        return self._woken_each(self._holds.take_group(group))

    def _woken_each(self, held: Iterator[list[HeldPull]]) -> Iterator[None]:
        for pulls in held:
            self.wake(pulls)
            yield

    async def finish(self) -> None:
        """Answer every held pull: the broker stops."""
        self.wake_all()
        while self._woken:
            self._answer()
            await asyncio.sleep(0)

    def _answer(self) -> None:
        """How many do not hold up the loop; the rest follow in its next pass."""
        cost_left = FILTER_COST_MAX
        for _ in range(min(len(self._woken), LOOP_STEP_ANSWERS_MAX)):
            pull = self._woken.popleft()
            pull.resume()
            cost_left -= pull.look_cost
            if cost_left <= 0:
                break
        if self._woken:
            asyncio.get_running_loop().call_soon(self._answer)
