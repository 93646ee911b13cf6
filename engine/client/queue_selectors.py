"""Ways to pick the queue of a message by a value of the user's (first step of the walk).

Messages that must stay in order share a queue; a selector maps their common value, such as an order
number, to one.

Invariant: the same value and the same list of queues give the same queue (the random one apart).
When the list changes, values move: order across such a change is the user's to keep. Absent on
purpose: retries; a selected queue is the only right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.foundation.errors import ConfigError
from engine.protocol.hashes import java_hash
from engine.protocol.message import Message, MessageQueue
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
