"""Lives of a store whose log is cut, and goes on with other messages at the same places.

A power cut during the first steps of a cut leaves the old tail, or less of it; one behind them, or
any later one, never brings any of it back, between newer messages or in queues and index. Messages
behind a cut have the keys of those that went, so that a stale entry of the index would show.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from engine.store import FlushDiskType, MessageStore, PutResult
from tests.simulation.crash_states.recording import RecordingDisk, Tree
from tests.simulation.crash_states.workloads import (
    Life,
    StorePromise,
    StoreStory,
    Workload,
    check_store,
    runtime_on,
    settings_of,
)
from tests.store_support import HandClock, Listener, draft, small_config

Put = list[tuple[int, bytes, PutResult]]


@dataclass(frozen=True)
class CutPromise:
    """What is there is what was put in one of these terms, `kept` of it at least."""

    terms: tuple[int, ...]
    kept: int


async def life_with_cuts(chance: random.Random) -> Life:
    """Three terms: puts and flushes, a cut between two of them, a clean stop."""
    mode: dict[str, Any] = chance.choice(
        [
            {"flush_disk_type": FlushDiskType.SYNC_FLUSH},
            {},
            {"transient_store_pool_enable": True},
        ]
    )
    settings = settings_of(**mode)
    disk, clock = RecordingDisk(), HandClock()
    terms: list[Put] = [[]]
    life = Life(disk, [(0, CutPromise((0,), 0))], (settings, terms))
    store = await MessageStore.open(
        runtime_on(disk, clock), small_config("/store", **settings), Listener()
    )
    store.start()
    for term in range(3):
        put = terms[term]
        for _ in range(chance.randint(3, 12)):
            one = len(put)
            body = b"%d.%d:".ljust(chance.randint(5, 700), b"-") % (term, one)
            properties = f"UNIQ_KEY\x01{one}\x02TAGS\x01T\x02"
            result = store.put(draft(body, queue_id=one % 2, properties=properties))
            put.append((one % 2, body, result))
            clock.value_ms += 1700
            await asyncio.sleep(0)
            if chance.random() < 0.3:
                await flush(store)
                life.promise(CutPromise((term,), flushed_count(store, put)))
            if chance.random() < 0.2:
                await store._flusher.flush_derived("TIMER")
        if term < 2:
            keep = chance.randint(0, len(put))
            promised = min(keep, life.promises[-1][1].kept)
            terms.append(put[:keep])
            life.promise(CutPromise((term, term + 1), promised))
            await store.truncate(put[keep - 1][2].end_offset if keep else 0)
            life.promise(CutPromise((term + 1,), promised))
    await store.close()
    life.promise(CutPromise((2,), len(terms[2])))
    return life


async def flush(store: MessageStore) -> None:
    """As the flush mode does, now."""
    store._committer.commit("TIMER")
    await store._flusher.flush_log("TIMER")


def flushed_count(store: MessageStore, put: Put) -> int:
    """How many are synced."""
    return sum(result.end_offset <= store.physical_flushed for _, _, result in put)


async def check_cuts(life: Life, tree: Tree, promise: CutPromise) -> None:
    """As for any store, of one of the terms."""
    settings, terms = life.story
    faults: list[Exception] = []
    for term in promise.terms:
        story = StoreStory(settings, terms[term])
        try:
            await check_store(Life(life.disk, [], story), tree, StorePromise(promise.kept))
        except (AssertionError, ValueError) as fault:
            faults.append(fault)
        else:
            return
    raise ExceptionGroup(f"neither of the terms {promise.terms}", faults)


CUTS = [Workload("cuts", life_with_cuts, check_cuts)]
