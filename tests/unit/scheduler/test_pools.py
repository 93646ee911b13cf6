"""Row F4: fast and slow pools: which job is slow, how many calls there are, and what is full."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pipelines.database.database import Database
from pipelines.scheduler.centre.centre import (
    FAST_CALLS_MAX,
    SLOW_CALL_MS,
    SLOW_CALLS_A_MINUTE,
    SLOW_CALLS_MAX,
    Pool,
    Slowness,
)
from pipelines.scheduler.run_life import CLAIM_MS
from pipelines.scheduler.store import passes
from pipelines.scheduler.store.passes import Claim
from tests.integration.alerting.stores import sqlite_address
from tests.integration.scheduler.stores import MINUTE_MS, NOW_MS, a_group, send, started

MINUTE_BEGINS_MS = NOW_MS // MINUTE_MS * MINUTE_MS
SLOW_MS = SLOW_CALL_MS + 1


def a_claim(log_id: int) -> Claim:
    return Claim(log_id, 1, 1, NOW_MS)


def test_the_eleventh_slow_call_of_a_minute_makes_a_job_slow_for_it() -> None:
    slowness = Slowness()
    for _ in range(SLOW_CALLS_A_MINUTE):
        slowness.note(1, SLOW_MS, MINUTE_BEGINS_MS)
    assert not slowness.is_slow(1, MINUTE_BEGINS_MS)
    slowness.note(1, SLOW_MS, MINUTE_BEGINS_MS + 59_999)
    assert slowness.is_slow(1, MINUTE_BEGINS_MS + 59_999)
    assert not slowness.is_slow(2, MINUTE_BEGINS_MS + 59_999), "the others are not"
    assert not slowness.is_slow(1, MINUTE_BEGINS_MS + MINUTE_MS), "each minute begins anew"
    slowness.note(1, SLOW_MS, MINUTE_BEGINS_MS + MINUTE_MS)
    assert not slowness.is_slow(1, MINUTE_BEGINS_MS + MINUTE_MS)


def test_a_call_of_half_a_second_is_not_slow() -> None:
    slowness = Slowness()
    for _ in range(100):
        slowness.note(1, SLOW_CALL_MS, MINUTE_BEGINS_MS)
    assert not slowness.is_slow(1, MINUTE_BEGINS_MS)


@pytest.mark.parametrize(
    ("pool", "size"), [(Pool.fast(), FAST_CALLS_MAX), (Pool.slow(), SLOW_CALLS_MAX)]
)
async def test_a_pool_has_so_many_calls_at_most_and_gives_out_in_order(
    pool: Pool, size: int
) -> None:
    for log_id in range(size + 5):
        pool.put(a_claim(log_id))
    taken = await pool.take(10)
    taken += await pool.take(10_000)
    assert [one.log_id for one in taken] == list(range(size))
    waiting = asyncio.create_task(pool.take(10_000))
    await asyncio.sleep(0)
    assert not waiting.done(), "all places are taken"
    pool.give_back(2)
    assert [one.log_id for one in await waiting] == [size, size + 1]
    assert len(pool) == 3


async def test_a_broadcast_is_paid_for_before_another_call_begins() -> None:
    pool = Pool("a pool", 2)
    for log_id in range(3):
        pool.put(a_claim(log_id))
    assert len(await pool.take(1)) == 1
    pool.give_back(1 - 5)  # It became five calls: there are three places fewer than none.
    waiting = asyncio.create_task(pool.take(5))
    for _ in range(3):
        pool.give_back(1)
        await asyncio.sleep(0)
        assert not waiting.done()
    pool.give_back(1)
    assert [one.log_id for one in await waiting] == [1]
    pool.give_back(2)
    assert len(await pool.take(5)) == 1


def test_what_finds_the_queue_full_is_claimed_anew_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database.at(sqlite_address(tmp_path))
    group_id = a_group(database)
    jobs = [started(database, group_id) for _ in range(5)]
    due_ms = NOW_MS + MINUTE_MS
    pool = Pool("a pool", 10, queue_max=3)
    for claim in passes.plan_due(database, "one", now_ms=due_ms).claims:
        pool.put(claim)
    kept = asyncio.run(pool.take(10))
    assert len(kept) == 3
    assert caplog.text.count("is full") == 2
    assert len(send(database, kept, due_ms).sendings) == 3

    over_ms = due_ms + CLAIM_MS
    again = passes.claim_due(database, "one", now_ms=over_ms)
    sent = send(database, again, over_ms).sendings
    assert {one.job_id for one in kept} | {one.job_id for one in sent} == set(jobs)
    assert len(sent) == 2
    database.close()
