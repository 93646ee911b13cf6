"""What no longer waits is answered in steps, in the order in which it was woken."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise

from engine.broker.pulling.long_poll import HeldPull, HeldPulls, WakeUps
from engine.foundation.limits import LOOP_STEP_ANSWERS_MAX

COUNT = 5 * LOOP_STEP_ANSWERS_MAX + 7


def holding(count: int, answered: list[int]) -> HeldPulls:
    holds = HeldPulls()
    for number in range(count):
        holds.hold(
            HeldPull(
                group="g",
                topic="t",
                queue_id=number % 3,
                queue_offset=0,
                wanted=None,
                matches=None,
                deadline_ms=15_000,
                gone=lambda: False,
                resume=partial(answered.append, number),
            )
        )
    return holds


async def test_when_all_are_woken_a_step_of_the_loop_answers_some() -> None:
    answered: list[int] = []
    holds = holding(COUNT, answered)
    WakeUps(holds).wake_all()
    assert not answered, "whoever woke them goes on first"
    assert holds.count == 0, "and no message can reach them any more"
    steps = [0]
    while len(answered) < COUNT:
        await asyncio.sleep(0)
        steps.append(len(answered))
    assert max(after - before for before, after in pairwise(steps)) <= (LOOP_STEP_ANSWERS_MAX)
    assert sorted(answered) == list(range(COUNT)), "each once"


async def test_a_broker_that_stops_has_answered_everybody() -> None:
    answered: list[int] = []
    holds = holding(COUNT, answered)
    woken = WakeUps(holds)
    await woken.finish()
    assert sorted(answered) == list(range(COUNT))
    await woken.finish()
    assert len(answered) == COUNT
