"""Rows C3, C4: whatever a power cut may leave of unsynced writes and names, recovery keeps exactly
what was promised, serves nothing torn, makes queues and index agree with the log, and has nothing
to do the second time. `make crash-states` looks at many more states than the suite.
"""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from tests.simulation.crash_states.states import crash_states
from tests.simulation.crash_states.workloads import WORKLOADS, Workload

STATES = int(os.environ.get("TIDEMARK_CRASH_STATES", "3000"))
SEED = os.environ.get("TIDEMARK_SEED", "1")


@pytest.mark.timeout(3600 if "TIDEMARK_CRASH_STATES" in os.environ else 120)
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each.name)
def test_recovery_keeps_what_was_promised_in_every_crash_state(workload: Workload) -> None:
    async def story() -> int:
        life = await workload.record()
        seen: dict[tuple[bytes, object], None] = {}
        count_max = STATES // len(WORKLOADS)
        for done, tree, fingerprint in crash_states(life.disk, count_max, SEED):
            promise = life.promised(done)
            if (fingerprint, promise) in seen:
                continue
            seen[fingerprint, promise] = None
            try:
                await workload.check(life, tree, promise)
            except Exception as error:
                error.add_note(f"seed {SEED}, after change {done}: {life.disk.changes[done - 1]}")
                raise
        return len(seen)

    different = asyncio.run(story())
    sys.stdout.write(f"{workload.name}: {different} different crash states\n")
    assert different > 20
