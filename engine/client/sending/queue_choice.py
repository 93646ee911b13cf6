"""Chooses a message's queue, by round robin over healthy brokers or by a selector.

Place in the walk: the first step.

A message without a wish takes the next queue round the circle: on a broker that is available, then
on one that answers at all, then on any. A slow answer makes its broker unavailable for a time that
grows with the slowness; no answer, or a refusal, counts as ten seconds. Messages that must stay in
order share a queue; a selector maps their common value, such as an order number, to one.

Invariant: the same value and the same list of queues give the same queue (the random one apart);
when the list changes, values move. The latest answer of a broker replaces what was known before.
Absent on purpose: retries (a selected queue is the only right one), probing brokers in the
background, which RocketMQ has switched off by default too. Row D1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from engine.client.connection.route_cache import RouteCache
from engine.foundation.errors import ConfigError, LocalProtocolError, RequestRefused, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.protocol.hashes import java_hash
from engine.protocol.message import Message, MessageQueue
from engine.runtime.clock import Clock
from engine.runtime.entropy import Entropy

NOT_AVAILABLE_MS: tuple[tuple[int, int], ...] = (
    (15 * SECOND_MS, 30 * SECOND_MS),
    (5 * SECOND_MS, 10 * SECOND_MS),
    (3 * SECOND_MS, 6 * SECOND_MS),
    (1800, 5 * SECOND_MS),
    (550, 2 * SECOND_MS),
)
"""(latency from which on, how long the broker is left alone); below the last one: not at all.

RocketMQ's classes; its two lowest, 50 and 100 ms, leave a broker alone for 0 ms.
"""

FAILURE_LATENCY_MS = 10 * SECOND_MS
"""What a refusal or a missing answer counts as."""


def not_available_ms(latency_ms: int) -> int:
    """How long a broker is left alone after an answer that took this long."""
    for from_ms, rest_ms in NOT_AVAILABLE_MS:
        if latency_ms >= from_ms:
            return rest_ms
    return 0


@dataclass(slots=True)
class _Known:
    available_from_ms: int
    reachable: bool


class LatencyFaults:
    """What one producer knows of its brokers."""

    __slots__ = ("_brokers",)

    def __init__(self) -> None:
        self._brokers: dict[str, _Known] = {}  # As many as routes ever named.

    def answered(self, broker_name: str, latency_ms: int, *, now_ms: int) -> None:
        """The broker took a message after `latency_ms`, or was not asked in the end."""
        self._note(broker_name, latency_ms, now_ms, reachable=True)

    def unanswered(self, broker_name: str, *, now_ms: int) -> None:
        """No connection, or no answer in time. As in RocketMQ the broker stays reachable: without
        background probes nothing would ever say that it is back.
        """
        self._note(broker_name, FAILURE_LATENCY_MS, now_ms, reachable=True)

    def refused(self, broker_name: str, *, now_ms: int) -> None:
        """The broker answered that it does not take the message."""
        self._note(broker_name, FAILURE_LATENCY_MS, now_ms, reachable=False)

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        """Has its rest ended?"""
        known = self._brokers.get(broker_name)
        return known is None or now_ms >= known.available_from_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Did its latest answer say anything but no?"""
        known = self._brokers.get(broker_name)
        return known is None or known.reachable

    def _note(self, broker_name: str, latency_ms: int, now_ms: int, *, reachable: bool) -> None:
        self._brokers[broker_name] = _Known(now_ms + not_available_ms(latency_ms), reachable)


class MessageQueueSelector(Protocol):
    """Picks one of the writable queues of a topic."""

    def __call__(
        self, queues: Sequence[MessageQueue], message: Message, argument: object
    ) -> MessageQueue:
        """The queue for `message` and the caller's `argument`; `queues` is sorted, never empty."""
        ...


def select_by_hash(
    queues: Sequence[MessageQueue], message: Message, argument: object
) -> MessageQueue:
    """By the hash of the argument's text, as RocketMQ's SelectMessageQueueByHash does for a string.

    The remainder has the dividend's sign there, and the sign is then dropped; Python's own differs
    for negative hashes.
    """
    del message
    return queues[abs(java_hash(str(argument))) % len(queues)]


def select_by_index(
    queues: Sequence[MessageQueue], message: Message, argument: object
) -> MessageQueue:
    """The argument is the place in the sorted list of queues; beyond its end it begins anew."""
    del message
    if not isinstance(argument, int) or argument < 0:
        raise ConfigError("selector argument", argument, "a whole number, 0 or more")
    return queues[argument % len(queues)]


class SelectRandomly:
    """Any queue, by the given source of randomness."""

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def __call__(
        self, queues: Sequence[MessageQueue], message: Message, argument: object
    ) -> MessageQueue:
        """See `MessageQueueSelector.__call__`; the argument is not looked at."""
        del message, argument
        return queues[self._entropy.below(len(queues))]


@dataclass(slots=True, eq=False)
class QueueChoice:
    """Chooses queues for one producer group.

    `faults`: what is known of the brokers' latency; None: all brokers are alike.
    """

    routes: RouteCache
    clock: Clock
    entropy: Entropy
    faults: LatencyFaults | None
    _: KW_ONLY
    default_queue_count: int
    _turns: dict[str, int] = field(default_factory=dict, init=False)
    """Where each topic's circle stands; one for all topics would starve queues of topics that
    are sent to in turns.
    """

    async def writable(self, topic: str) -> list[MessageQueue]:
        """The queues that take messages of the topic. Raises RequestRefused when there are none."""
        queues = await self.routes.writable_queues(
            topic, default_queue_count=self.default_queue_count
        )
        if not queues:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"no broker takes messages of topic {topic}"
            )
        return queues

    async def given(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: MessageQueueSelector | None,
        argument: object,
    ) -> MessageQueue:
        """The queue that the caller named or selects.

        Raises ConfigError for both or for a selector that raises, LocalProtocolError for a queue of
        another topic, RequestRefused.
        """
        if queue is not None and selector is not None:
            raise ConfigError("selector", selector, "either a queue or a selector, not both")
        if queue is None:
            assert selector is not None
            queues = await self.writable(message.topic)
            try:
                queue = selector(queues, message, argument)
            except TidemarkError:
                raise
            except Exception as error:  # User code; a send in the background reports our errors.
                raise ConfigError(
                    "selector", selector, f"it raised {error!r} for {argument!r}"
                ) from error
        if queue.topic != message.topic:
            raise LocalProtocolError(
                f"{queue} is not a queue of the message's topic {message.topic}"
            )
        return queue

    def next(self, queues: Sequence[MessageQueue], *, avoid: str | None) -> MessageQueue:
        """The next queue round the circle, on the best kind of broker that has one."""
        topic = queues[0].topic
        turn = self._turns.get(topic)
        if turn is None:
            turn = self.entropy.below(len(queues))
        brokers = [queues[(turn + step) % len(queues)].broker_name for step in range(len(queues))]
        brokers = brokers[1:] + brokers[:1]
        for is_good in self._preferences():
            good = (at for at, name in enumerate(brokers) if name != avoid and is_good(name))
            step = next(good, None)
            if step is not None:
                turn += step + 1
                break
        else:
            turn += 1
        self._turns[topic] = turn
        return queues[turn % len(queues)]

    def _preferences(self) -> Sequence[Callable[[str], bool]]:
        """Tests of a broker's name, the strictest first."""
        faults = self.faults
        if faults is None:
            return (lambda _: True,)
        now_ms = self.clock.steady_ms()
        return (lambda name: faults.is_available(name, now_ms), faults.is_reachable)
