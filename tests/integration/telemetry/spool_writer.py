"""A process that writes facts into a spool as a broker does, and says on standard output which ones
are safe.

    python -m tests.integration.telemetry.spool_writer STORE LIFE [SEGMENT_BYTES]

Each turn reports a few facts, writes the turn, and only then prints the number of the newest fact:
what a broker's answers would have said to its clients. Every field of a fact follows from its
number (see `fact_of`), so that a reader of these lines knows what rows must say. SIGTERM ends it
cleanly.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys

from engine.foundation.observing import Fact, FlushDone, LifecycleEvent, OffsetReport
from engine.runtime import system_runtime
from engine.telemetry import EmitterIdentity, Telemetry

IDENTITY = EmitterIdentity("cluster-1", "broker-a", 0)
TURN_FACTS_MAX = 24
LIFE_SPAN = 10_000_000
"""Facts of life L are numbered from L * LIFE_SPAN."""


def fact_of(number: int) -> Fact:
    """The fact with this number: nearly always an offset report, now and then another table's."""
    if number % 97 == 0:
        return LifecycleEvent("ROLE_CHANGE", f"fact {number}", clean=True)
    return OffsetReport(
        group=f"group_{number % 7}",
        topic="orders",
        queue_id=number % 16,
        offset=number,
        previous_offset=None if number % 5 == 0 else number - 1,
        path="COMMIT_RPC",
        trigger="TIMER",
        client_id=f"client@{number % 3}",
        accepted=number % 11 != 0,
        min_offset=0,
        max_offset=number + 1,
    )


async def write_until_stopped(store: str, life: int, segment_bytes: int) -> None:
    """Write turns of 1 to TURN_FACTS_MAX facts, thousands of facts a second, until SIGTERM."""
    telemetry = Telemetry.open(
        system_runtime(), f"{store}/spool", IDENTITY, segment_bytes=segment_bytes
    )
    telemetry.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    choice = random.Random(life)
    number = life * LIFE_SPAN
    while not stop.is_set():
        for _ in range(choice.randint(1, TURN_FACTS_MAX)):
            telemetry.observe(fact_of(number))
            number += 1
        telemetry.observe(FlushDone("COMMIT_LOG", "FLUSH", "GROUP", number, number, None, 100))
        telemetry.pulled("group_0", "orders", 0, number, "client@0")
        telemetry.write_turn()
        sys.stdout.write(f"{number - 1}\n")
        sys.stdout.flush()
        await asyncio.sleep(0.002)
    await telemetry.close()


if __name__ == "__main__":
    asyncio.run(write_until_stopped(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
