"""Determines where a consumer starts reading a new queue (computePullFromWhere).

Place in the walk: the rebalance step.

A stored offset always wins. The group's setting decides only when the store says that there is
none; the retry topic, whose messages all belong to the group, follows rules of its own (row A8).

Invariant: a store that could not be asked never counts as "no offset": the error passes, the queue
waits for the next rebalance. Absent on purpose: asking the broker. `ask` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

from engine.protocol.message import MessageQueue
from engine.protocol.names import RETRY_PREFIX


class ConsumeFromWhere(Enum):
    """Where a group without a stored offset begins.

    The last three are deprecated in RocketMQ and mean LAST_OFFSET.
    """

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"


class StartRule(Enum):
    """What to ask the broker for, if anything."""

    ZERO = "zero"
    """The very beginning; when that is gone, the first pull answers with the offset to go on from.
    """
    MAX = "max offset"
    SEARCH = "offset at the consume timestamp"


def start_rule(where: ConsumeFromWhere, topic: str) -> StartRule:
    """The rule for a queue of `topic` without a stored offset."""
    is_retry_topic = topic.startswith(RETRY_PREFIX)
    match where:
        case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return StartRule.ZERO
        case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return StartRule.MAX if is_retry_topic else StartRule.SEARCH
        case _:
            return StartRule.ZERO if is_retry_topic else StartRule.MAX


@dataclass(frozen=True, slots=True)
class StartOffsetAsk:
    """The two questions to the broker that a start may need.

    Both raise TidemarkError when it cannot be asked.
    """

    max_offset: Callable[[MessageQueue], Awaitable[int]]
    search_offset: Callable[[MessageQueue, int], Awaitable[int]]


async def start_offset(
    queue: MessageQueue,
    stored: int | None,
    ask: StartOffsetAsk,
    *,
    where: ConsumeFromWhere,
    timestamp_ms: int,
) -> int:
    """The offset of the first pull of `queue`; `timestamp_ms` is for CONSUME_FROM_TIMESTAMP."""
    if stored is not None:
        return stored
    match start_rule(where, queue.topic):
        case StartRule.ZERO:
            return 0
        case StartRule.MAX:
            return await ask.max_offset(queue)
        case StartRule.SEARCH:
            return await ask.search_offset(queue, timestamp_ms)
