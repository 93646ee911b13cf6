"""What is reported of a Java client's stacks: its consume threads at work, so much at most."""

from __future__ import annotations

from engine.foundation.limits import STACK_TOLD_BYTES_MAX
from engine.telemetry.members.answers import CUT, bounded, consume_threads


def thread(name: str, *calls: str) -> str:
    """A block as RocketMQ's UtilAll.jstack writes it."""
    lines = [f"{name:40}  TID: 61 STATE: WAITING", *(f"{name:40}  {call}" for call in calls)]
    return "\n".join([*lines, ""])


WORKING = thread(
    "ConsumeMessageThread_orders_3",
    "java.lang.Thread.sleep(Native Method)",
    "shop.Orders.consume(Orders.java:12)",
)
WAITING = thread(
    "ConsumeMessageThread_orders_4",
    "sun.misc.Unsafe.park(Native Method)",
    "java.util.concurrent.ThreadPoolExecutor.getTask(ThreadPoolExecutor.java:1074)",
)
OTHER = thread("PullMessageService", "sun.misc.Unsafe.park(Native Method)")


def test_consume_threads_at_work_are_taken_and_no_others() -> None:
    assert consume_threads(f"{OTHER}\n{WAITING}\n{WORKING}") == WORKING.strip("\n")
    assert consume_threads(f"{OTHER}\n{WAITING}") is None
    assert consume_threads("") is None


def test_lines_of_windows_end_as_others_do() -> None:
    found = consume_threads(f"{WAITING}\n{WORKING}".replace("\n", "\r\n"))
    assert found == WORKING.strip("\n")


def test_several_threads_stand_one_below_the_other() -> None:
    found = consume_threads(f"{WORKING}\n{WORKING}")
    assert found == "\n\n".join([WORKING.strip("\n")] * 2)


def test_a_stack_longer_than_its_limit_is_cut_between_characters() -> None:
    cut = bounded("ü" * STACK_TOLD_BYTES_MAX)
    assert len(cut.encode()) <= STACK_TOLD_BYTES_MAX
    assert cut.endswith("ü" + CUT)
    assert bounded("ü" * (STACK_TOLD_BYTES_MAX // 2)) == "ü" * (STACK_TOLD_BYTES_MAX // 2)
    assert bounded("half \ud800") == "half ?"
