"""Converts a client's response about its queues and stack traces into facts.

Place in the walk: GET_CONSUMER_RUNNING_INFO was answered; each process queue becomes a window. A
client whose head does not move is asked for its stacks: our own clients say them per queue, a Java
client answers the stacks of all its threads, as RocketMQ's `UtilAll.jstack` writes them, of which
those of consume threads count that are in a listener:

    ConsumeMessageThread_orders_3             TID: 61 STATE: TIMED_WAITING
    ConsumeMessageThread_orders_3             java.lang.Thread.sleep(Native Method)
    ConsumeMessageThread_orders_3             shop.Orders.consume(Orders.java:12)
    (an empty line)

Invariant: what a client does not report is null; of a stack at most STACK_TOLD_BYTES_MAX are
reported. Absent on purpose: asking, and what is news.
"""

from __future__ import annotations

from typing import Final

from engine.foundation.limits import STACK_TOLD_BYTES_MAX
from engine.foundation.observing import ClientWindow
from engine.foundation.units import MIB
from engine.protocol.bodies import ConsumerRunningInfo, ProcessQueueInfo
from engine.protocol.bodies_client import SUBSCRIBE_ALL
from engine.protocol.message import MessageQueue

CONSUME_THREAD: Final = "ConsumeMessageThread"
"""How RocketMQ's clients name the threads that run listeners."""

WAITS_FOR_WORK: Final = "ThreadPoolExecutor.getTask"
"""In the stack of a thread of a pool that has nothing to do."""

CUT: Final = "\n..."


def consume_threads(jstack: str) -> str | None:
    """The stacks of the consume threads that are at work; None when there is none."""
    blocks = [block.strip("\r\n") for block in jstack.replace("\r\n", "\n").split("\n\n")]
    busy = [
        block
        for block in blocks
        if block.lstrip().startswith(CONSUME_THREAD) and WAITS_FOR_WORK not in block
    ]
    return bounded("\n\n".join(busy)) if busy else None


def bounded(stack: str) -> str:
    """As much of it as is reported, its beginning."""
    encoded = stack.encode("utf-8", "replace")
    if len(encoded) <= STACK_TOLD_BYTES_MAX:
        return encoded.decode()
    kept = encoded[: STACK_TOLD_BYTES_MAX - len(CUT)]
    return kept.decode("utf-8", "ignore") + CUT


_SAY_ORDERLY: Final = ("PROP_CONSUMEORDERLY", "PROP_CONSUME_ORDERLY")
"""Where RocketMQ's clients say whether they consume in order, and where ours do."""
_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
_PUSH: Final = "CONSUME_PASSIVELY"
_RESTS: Final = ("COUNT", "BYTES", "SPAN")
"""Why a queue may not be pulled; a client may say what it likes."""


def is_orderly(info: ConsumerRunningInfo) -> bool:
    """May a client hold locks? One that does not say may."""
    return all(info.properties.get(name) != "false" for name in _SAY_ORDERLY)


def taken_whole(info: ConsumerRunningInfo) -> dict[str, bool]:
    """Of each topic that a client subscribes to: does it take every message of it?

    A pull consumer goes where its application sends it, whatever lies between. A client that does
    not say how it consumes says this of no topic.
    """
    pushes = info.properties.get(_CONSUME_TYPE)
    if pushes is None:
        return {}
    return {
        one.topic: pushes == _PUSH and one.is_by_tags and one.sub_string == SUBSCRIBE_ALL
        for one in info.subscription_set
    }


def window_of(
    group: str,
    client_id: str,
    queue: MessageQueue,
    info: ProcessQueueInfo,
    *,
    orderly: bool,
    takes_all: bool | None = None,
    ahead_ms: int = 0,
) -> ClientWindow:
    """What a client's answer says of a queue it holds, but for stacks.

    `orderly`: may it hold locks? RocketMQ's clients call queues locked that they read without.
    `takes_all` is what `taken_whole` says of the queue's topic; by `ahead_ms` the client's clock is
    ahead of ours (`ClientClocks`).
    """
    # Messages taken by an orderly listener are held like those that wait.
    firsts, lasts = [], []
    if info.cached_msg_count > 0:
        firsts.append(info.cached_msg_min_offset)
        lasts.append(info.cached_msg_max_offset)
    if info.transaction_msg_count > 0:
        firsts.append(info.transaction_msg_min_offset)
        lasts.append(info.transaction_msg_max_offset)
    held_bytes = info.held_bytes
    # -1 is a Java client's word for none.
    committed = info.commit_offset if info.held_ranges is None else info.client_committed
    return ClientWindow(
        client_id=client_id,
        group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        first_held=min(firsts) if firsts else None,
        last_held=max(lasts) if lasts else None,
        held_count=info.cached_msg_count + info.transaction_msg_count,
        held_bytes=info.cached_msg_size_in_mib * MIB if held_bytes is None else held_bytes,
        held_ranges=info.held_ranges,
        finished_count=info.finished_count,
        filtered_count=info.filtered_count,
        head_message_id=info.head_message_id,
        head_since_ms=_corrected(info.head_since_ms, ahead_ms),
        client_committed=committed if committed is None or committed >= 0 else None,
        locked=info.locked and orderly,
        dropped=info.dropped,
        last_pull_time_ms=_corrected(info.last_pull_timestamp_ms, ahead_ms),
        last_consume_time_ms=_corrected(info.last_consume_timestamp_ms, ahead_ms),
        top_key=info.top_key,
        top_key_messages=info.top_key_messages,
        keyed_messages=info.keyed_messages,
        resting=info.resting if info.resting in _RESTS else None,
        takes_all=takes_all,
    )


def _corrected(at_ms: int | None, ahead_ms: int) -> int | None:
    """A moment of a client by our clock; 0 is a client's word for none."""
    return max(0, at_ms - ahead_ms) or None if at_ms else None


def stack_of(info: ProcessQueueInfo, stacks: str | None) -> str | None:
    """Where the listener of a head stands: our own clients say it of this one; of others it is one
    of `stacks`, those of all their listeners.
    """
    if info.held_ranges is None:
        return stacks
    return None if info.head_stack is None else bounded(info.head_stack)
