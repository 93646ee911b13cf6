"""Extracts where a client's listeners stand from the stacks that it answers.

Place in the walk: a client whose head does not move is asked for its stacks; what is reported of
them is made here. Our own clients say it per queue. A Java client answers the stacks of all its
threads, as RocketMQ's `UtilAll.jstack` writes them:

    ConsumeMessageThread_orders_3             TID: 61 STATE: TIMED_WAITING
    ConsumeMessageThread_orders_3             java.lang.Thread.sleep(Native Method)
    ConsumeMessageThread_orders_3             shop.Orders.consume(Orders.java:12)
    (an empty line)

of which those of its consume threads count that are in a listener: one that waits for work does not
hold the head.

Invariant: at most STACK_TOLD_BYTES_MAX are reported; bytes from outside are made text. Absent on
purpose: asking.
"""

from __future__ import annotations

from typing import Final

from engine.foundation.limits import STACK_TOLD_BYTES_MAX

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
