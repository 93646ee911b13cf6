"""Results that come in a storm are stored in few transactions, and each teller hears what came."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pipelines.database.database import StoreUnavailable
from pipelines.scheduler.centre.serving import RESULTS_MAX, Inbox
from pipelines.scheduler.store.results import Delivery, NotTheirs, Result


class Stored:
    """A store that takes its time, and what it was given."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_go = asyncio.Event()
        self.faults: list[Exception] = []
        self.foreign: frozenset[int] = frozenset()

    async def store(self, tellings: Sequence[Delivery]) -> list[frozenset[int]]:
        log_ids = [[result.log_id for result in one.results] for one in tellings]
        self.batches.append([log_id for one in log_ids for log_id in one])
        await self.may_go.wait()
        if self.faults:
            raise self.faults.pop()
        return [frozenset(one) & self.foreign for one in log_ids]


def telling(*log_ids: int) -> Delivery:
    return Delivery([Result(log_id, 200) for log_id in log_ids])


async def begun(inbox: Inbox, *tellings: Delivery) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(inbox.deliver(one)) for one in tellings]
    await asyncio.sleep(0)
    return tasks


async def test_what_comes_while_others_are_stored_goes_together() -> None:
    stored = Stored()
    inbox = Inbox(stored.store)
    tasks = await begun(inbox, *(telling(number) for number in range(100)))
    stored.may_go.set()
    await asyncio.gather(*tasks)
    assert [len(batch) for batch in stored.batches] == [1, 99]
    stored.may_go.clear()
    tasks = await begun(inbox, telling(0), telling(*range(RESULTS_MAX)), telling(1), telling(2))
    stored.may_go.set()
    await asyncio.gather(*tasks)
    assert [len(batch) for batch in stored.batches[2:]] == [1, RESULTS_MAX, 2]


async def test_each_hears_of_its_own_foreign_results() -> None:
    stored = Stored()
    stored.foreign = frozenset({2})
    inbox = Inbox(stored.store)
    tasks = await begun(inbox, telling(0), telling(1), telling(2, 3))
    stored.may_go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert stored.batches == [[0], [1, 2, 3]]
    assert found[:2] == [None, None]
    assert isinstance(found[2], NotTheirs)
    assert "runs 2" in str(found[2])


async def test_a_transaction_that_fails_is_one_callers_error_and_tried_for_the_others() -> None:
    stored = Stored()
    stored.faults = [StoreUnavailable("locked"), StoreUnavailable("locked")]
    inbox = Inbox(stored.store)
    tasks = await begun(inbox, *(telling(number) for number in (1, 2, 3, 4)))
    stored.may_go.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in found] == [
        *(StoreUnavailable, StoreUnavailable),
        *(type(None), type(None)),
    ]
    assert stored.batches == [[1], [2, 3, 4], [3, 4]]


async def test_who_gives_up_waiting_leaves_the_line() -> None:
    stored = Stored()
    inbox = Inbox(stored.store)
    first, second = await begun(inbox, telling(1), telling(2))
    for task in (first, second):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    stored.may_go.set()
    await inbox.deliver(telling(3))
    assert stored.batches[-1] == [3]
