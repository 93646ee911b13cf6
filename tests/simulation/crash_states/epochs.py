"""Lives of a store that is led in several epochs, with cuts between them.

Whatever a power cut leaves: the list names the epoch in which each byte was written, begins nothing
behind the log's end, and no number is free that somebody may have acknowledged in.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from engine.store import FlushDiskType, MessageStore
from tests.simulation.crash_states.recording import RecordingDisk, Tree
from tests.simulation.crash_states.workloads import Life, Workload, runtime_on, settings_of
from tests.store_support import HandClock, Listener, draft, messages_of, small_config


@dataclass(frozen=True)
class EpochPromise:
    """The greatest number in which anything was put."""

    highest: int


async def life_of_epochs(chance: random.Random) -> Life:
    """Each epoch begins where the log ends, which was cut before, or was not."""
    mode: dict[str, Any] = chance.choice([{"flush_disk_type": FlushDiskType.SYNC_FLUSH}, {}])
    settings = settings_of(**mode)
    disk, clock = RecordingDisk(), HandClock()
    life = Life(disk, [(0, EpochPromise(0))], settings)
    store = await MessageStore.open(
        runtime_on(disk, clock), small_config("/store", **settings), Listener()
    )
    store.start()
    ends, number = [0], 0
    for _ in range(4):
        number += chance.choice((1, 1, 5))
        await store.epochs.begin(number, store.physical_max, log_begin=store.physical_min)
        life.promise(EpochPromise(number))
        for _ in range(chance.randint(0, 4)):
            body = b"%d:".ljust(chance.randint(5, 500), b"-") % number
            ends.append(store.put(draft(body, queue_id=len(ends) % 2)).end_offset)
            clock.value_ms += 1700
            await asyncio.sleep(0)
            if chance.random() < 0.3:
                await store._flusher.flush_log("TIMER")
        if chance.random() < 0.6:
            keep = chance.randint(1, len(ends))
            del ends[keep:]
            await store.truncate(ends[-1])
    await store.close()
    return life


async def check_epochs(life: Life, tree: Tree, promise: EpochPromise) -> None:
    """Each message says in its body in which epoch it was put."""
    disk = RecordingDisk(tree)
    config = small_config("/store", **life.story)
    for _ in range(2):
        store = await MessageStore.open(runtime_on(disk, HandClock()), config, Listener())
        epochs, end = store.epochs, store.physical_max
        for queue_id in (0, 1):
            for message in messages_of(store, queue_id=queue_id):
                put_in = int(message.body.partition(b":")[0])
                found = epochs.number_before(message.physical_offset + 1)
                assert found == put_in, f"put in epoch {put_in}, {epochs.entries} say {found}"
        assert all(one.begin <= end for one in epochs.entries), f"{epochs.entries} behind {end}"
        assert epochs.highest >= promise.highest
        await store.close()


EPOCHS = [Workload("epochs", life_of_epochs, check_epochs)]
