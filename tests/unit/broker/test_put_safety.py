"""When a put is safe: by flush and replica, early, late and never, and over a change of terms."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.broker.config import BrokerConfig
from engine.broker.identity import BrokerNode
from engine.broker.sending.safety import PutStatus, Safety, Waiter
from engine.store import GroupCommit, StoreConfig
from tests.unit.broker.fake_replica import FakeReplica

END = 100


class Setting:
    """A flush and a replica, each a fake, and what the waiters heard."""

    def __init__(self, *, replica_timeout_ms: int = 60_000) -> None:
        self.replica, self.is_flushed = FakeReplica(replica_timeout_ms), False
        self.flush = GroupCommit(asyncio.get_running_loop(), 60_000)
        self.node = BrokerNode(BrokerConfig(store=StoreConfig("/nowhere")), boot_ms=0)
        self.safety = Safety(
            self.node,
            lambda _end: None if self.is_flushed else self.flush,
            self.replica.condition(),
        )
        self.heard: list[PutStatus] = []

    def begin_term(self, term: int) -> None:
        self.node.term = term
        self.safety.end_term()

    def wait(self, end_offset: int = END) -> Waiter:
        waiter = self.safety.when_safe(end_offset)
        assert waiter is not None
        waiter.when_settled(self.heard.append)
        return waiter


@pytest.mark.parametrize("flush_first", [True, False])
async def test_a_put_is_safe_when_the_last_condition_is_met_whichever_that_is(
    flush_first: bool,
) -> None:
    setting = Setting()
    setting.wait()
    steps = [
        lambda: setting.flush.settle(flushed=True),
        lambda: setting.replica.acknowledge(0, END),
    ]
    if not flush_first:
        steps.reverse()
    steps[0]()
    assert setting.heard == []
    steps[1]()
    assert setting.heard == [PutStatus.PUT_OK]
    assert len(setting.safety) == 0


@pytest.mark.parametrize("flushed", [True, False])
async def test_a_replica_that_is_late_is_what_the_answer_says(flushed: bool) -> None:
    setting = Setting(replica_timeout_ms=10)
    setting.wait()
    setting.flush.settle(flushed=flushed)
    await asyncio.sleep(0.05)
    assert setting.heard == [PutStatus.FLUSH_SLAVE_TIMEOUT]
    setting.replica.acknowledge(0, END)
    assert setting.heard == [PutStatus.FLUSH_SLAVE_TIMEOUT]


async def test_a_failed_flush_is_what_the_answer_says_when_the_replica_has_it() -> None:
    setting = Setting()
    setting.replica.acknowledge(0, END)
    setting.wait()
    setting.flush.settle(flushed=False)
    assert setting.heard == [PutStatus.FLUSH_DISK_TIMEOUT]


async def test_a_condition_that_fails_at_once_waits_for_the_others() -> None:
    setting = Setting()
    setting.flush.settle(flushed=False)
    setting.wait()
    assert setting.heard == []
    setting.replica.acknowledge(0, END)
    assert setting.heard == [PutStatus.FLUSH_DISK_TIMEOUT]


async def test_a_new_term_settles_all_who_wait_for_a_replica_that_never_answers() -> None:
    setting = Setting()
    for _ in range(3):
        setting.wait()
    setting.flush.settle(flushed=True)
    setting.begin_term(1)
    assert setting.heard == [PutStatus.UNKNOWN] * 3
    setting.replica.acknowledge(0, END)
    assert setting.heard == [PutStatus.UNKNOWN] * 3
    assert len(setting.safety) == 0


async def test_a_waiter_hears_late_what_was_settled_before_it_asked() -> None:
    setting = Setting()
    waiter = setting.safety.when_safe(END)
    assert waiter is not None
    setting.begin_term(1)
    waiter.when_settled(setting.heard.append)
    assert setting.heard == [PutStatus.UNKNOWN]


async def test_the_bytes_of_another_term_make_no_put_safe() -> None:
    setting = Setting()
    setting.flush.settle(flushed=True)
    setting.replica.acknowledge(0, END)  # By the former leader's bytes.
    setting.begin_term(1)
    setting.wait()
    assert setting.heard == []
    setting.replica.acknowledge(1, END)
    assert setting.heard == [PutStatus.PUT_OK]


async def test_nobody_waits_for_what_is_safe() -> None:
    setting = Setting()
    setting.is_flushed = True
    setting.replica.acknowledge(0, END)
    assert setting.safety.when_safe(END) is None
    setting.safety.conditions = ()
    assert setting.safety.when_safe(END) is None
    assert len(setting.safety) == 0


async def test_puts_that_wait_for_one_sync_alone_share_a_waiter_in_one_term() -> None:
    setting = Setting()
    setting.safety.conditions = ()
    first = setting.wait()
    assert setting.wait(END + 1) is first
    setting.begin_term(1)
    assert setting.heard == [PutStatus.UNKNOWN] * 2
    assert setting.wait() is not first
    setting.flush.settle(flushed=True)
    assert setting.heard == [PutStatus.UNKNOWN] * 2 + [PutStatus.PUT_OK]
    setting.is_flushed = True
    assert setting.safety.when_safe(END) is None


async def test_a_put_behind_a_sync_that_takes_too_long_hears_so_at_once() -> None:
    setting = Setting()
    setting.safety.conditions = ()
    setting.wait()
    setting.flush.settle(flushed=False)
    setting.wait()
    assert setting.heard == [PutStatus.FLUSH_DISK_TIMEOUT] * 2


async def test_an_answer_that_fails_leaves_no_other_waiter_behind() -> None:
    def fails(_status: PutStatus) -> None:
        raise OSError("gone")

    setting, errors = Setting(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, error: errors.append(error))
    waiter = setting.safety.when_safe(END)
    assert waiter is not None
    waiter.when_settled(fails)
    setting.wait()
    setting.begin_term(1)
    assert setting.heard == [PutStatus.UNKNOWN]
    assert [str(error["exception"]) for error in errors] == ["gone"]
