"""Centres go by the database's clock, whatever their machines show."""

from __future__ import annotations

import logging

import pytest

from pipelines.database.clock import SharedClock
from pipelines.database.database import StoreUnavailable


class Clocks:
    """A machine, a database, and how long a question takes there and back."""

    def __init__(self, *, own_ms: int, database_ms: int, took_ms: int = 0) -> None:
        self.own_ms = own_ms
        self.database_ms = database_ms
        self.took_ms = took_ms
        self.is_gone = False
        self.shared = SharedClock(lambda: self.own_ms, self.asked)

    def asked(self) -> int:
        if self.is_gone:
            raise StoreUnavailable("it is gone")
        self.pass_time(self.took_ms // 2)
        read_ms = self.database_ms
        self.pass_time(self.took_ms - self.took_ms // 2)
        return read_ms

    def pass_time(self, by_ms: int) -> None:
        self.own_ms += by_ms
        self.database_ms += by_ms


def test_two_machines_that_are_apart_agree(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for own_ms in (990_000, 1_000_000, 1_010_000):
            clocks = Clocks(own_ms=own_ms, database_ms=1_000_000, took_ms=80)
            clocks.shared.set()
            clocks.pass_time(500)
            assert clocks.shared.now_ms() == clocks.database_ms
    assert [record.message.split(" is ")[1].split()[0] for record in caplog.records] == [
        "10000",
        "-10000",
    ]


def test_a_step_of_either_clock_is_followed_by_the_next_question() -> None:
    clocks = Clocks(own_ms=0, database_ms=0)
    clocks.shared.set()
    clocks.own_ms += 7_000
    clocks.shared.set()
    assert clocks.shared.now_ms() == clocks.database_ms
    clocks.database_ms -= 3_000
    clocks.shared.set()
    assert clocks.shared.now_ms() == clocks.database_ms


def test_an_answer_that_took_long_or_did_not_come_changes_nothing() -> None:
    clocks = Clocks(own_ms=0, database_ms=50_000)
    clocks.shared.set()
    clocks.took_ms, clocks.database_ms = 501, clocks.database_ms + 9_000
    clocks.shared.set()
    assert clocks.shared.now_ms() == clocks.own_ms + 50_000
    clocks.is_gone = True
    with pytest.raises(StoreUnavailable):
        clocks.shared.set()
    assert clocks.shared.now_ms() == clocks.own_ms + 50_000
