"""Chooses the queue of a message: round robin over good brokers, or by a selector.

Place in the walk: the first step.

A message without a wish takes the next queue round the circle, on a broker that `latency_faults`
does not avoid. Messages that must stay in order share a queue; a selector maps their common value,
such as an order number, to one.

Invariant: the same value and the same list of queues give the same queue (the random one apart).
When the list changes, values move: order across such a change is the user's to keep. Absent on
purpose: retries; a selected queue is the only right one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from engine.client.connection.route_cache import RouteCache
from engine.client.sending.latency_faults import LatencyFaults
from engine.foundation.errors import ConfigError, LocalProtocolError, RequestRefused, TidemarkError
from engine.protocol.codes import ResponseCode
from engine.protocol.hashes import java_hash
from engine.protocol.message import Message, MessageQueue
from engine.runtime.clock import Clock
from engine.runtime.entropy import Entropy


class MessageQueueSelector(Protocol):
    """Picks one of the writable queues of a topic."""

    def __call__(
        self, queues: Sequence[MessageQueue], message: Message, argument: object
    ) -> MessageQueue:
        """The queue for `message`; `argument` is what the caller of `send` gave.

        `queues` is sorted, never empty.
        """
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


class QueueChoice:
    """Chooses queues for one producer group."""

    def __init__(
        self,
        routes: RouteCache,
        clock: Clock,
        entropy: Entropy,
        faults: LatencyFaults | None,
        *,
        default_queue_count: int,
    ) -> None:
        """`faults`: what is known of the brokers' latency; None: all brokers are alike."""
        self._routes = routes
        self._clock = clock
        self._entropy = entropy
        self._faults = faults
        self._default_queue_count = default_queue_count
        self._turns: dict[str, int] = {}
        """Where each topic's circle stands; one for all topics would starve queues of topics that
        are sent to in turns.
        """

    async def writable(self, topic: str) -> list[MessageQueue]:
        """The queues that take messages of the topic. Raises RequestRefused when there are none."""
        queues = await self._routes.writable_queues(
            topic, default_queue_count=self._default_queue_count
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
            turn = self._entropy.below(len(queues))
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
        faults = self._faults
        if faults is None:
            return (_any_broker,)
        now_ms = self._clock.steady_ms()
        return (lambda name: faults.is_available(name, now_ms), faults.is_reachable)


def _any_broker(_name: str) -> bool:
    return True
