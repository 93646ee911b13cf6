"""Rows C3, C4: recovery keeps exactly what was promised in every state after a power cut.

Whatever is left of unsynced writes and names, it serves nothing torn, makes queues and index agree
with the log, and has nothing to do the second time. `make crash-states` looks at many more states
than the suite.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys

import pytest

from tests.seeds import one_seed
from tests.simulation.crash_states.cuts import CUTS
from tests.simulation.crash_states.epochs import EPOCHS
from tests.simulation.crash_states.raft_files import RAFT
from tests.simulation.crash_states.states import crash_states
from tests.simulation.crash_states.workloads import WORKLOADS, Workload

ALL = [*WORKLOADS, *CUTS, *EPOCHS, *RAFT]

STATES = int(os.environ.get("TIDEMARK_CRASH_STATES", "3000"))
SEED = one_seed()
LIVES_MAX = 400
STATES_PER_LIFE = 600


@pytest.mark.timeout(3600 if "TIDEMARK_CRASH_STATES" in os.environ else 120)
@pytest.mark.parametrize("workload", ALL, ids=lambda each: each.name)
def test_recovery_keeps_what_was_promised_in_every_crash_state(workload: Workload) -> None:
    wanted = STATES // len(ALL)
    different = lives = 0
    while different < wanted and lives < LIVES_MAX:
        seed = f"{SEED}/{lives}"
        different += asyncio.run(states_of_one_life(workload, seed, wanted - different))
        lives += 1
    sys.stdout.write(f"{workload.name}: {different} crash states of {lives} lives\n")
    assert different >= wanted


async def states_of_one_life(workload: Workload, seed: str, wanted: int) -> int:
    """Play a life, check its crash states; how many different ones there were."""
    life = await workload.record(random.Random(seed))
    seen: dict[tuple[bytes, object], None] = {}
    for done, tree, fingerprint in crash_states(life.disk, STATES_PER_LIFE, seed):
        promise = life.promised(done)
        if (fingerprint, promise) in seen:
            continue
        seen[fingerprint, promise] = None
        try:
            await workload.check(life, tree, promise)
        except Exception as error:
            error.add_note(f"life {seed}, after change {done}: {life.disk.changes[done - 1]}")
            raise
        if len(seen) == wanted:
            break
    return len(seen)
