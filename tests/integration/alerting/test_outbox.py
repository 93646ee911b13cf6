"""What is stored is sent: in order, by one sender a receiver, however often it fails at first."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa

from pipelines.alerting.alerts import Notice
from pipelines.alerting.outbox import claims
from pipelines.alerting.outbox.claims import Claimed, claim_next, settle, states_of
from pipelines.alerting.outbox.courier import Chances, Channel, Courier
from pipelines.alerting.outbox.outcomes import DELAY_MAX_US, Delivered, Failed, Outcome, Trouble
from pipelines.alerting.store.steps import Step, take
from pipelines.database import leads
from pipelines.database.database import Database
from pipelines.database.limits import GIVE_UP_US
from pipelines.database.tables import Kept, notices
from tests.integration.alerting.stores import (
    LAKE,
    NOW_US,
    SECOND_US,
    a_notice,
    emptied,
    postgresql_address,
    sqlite_address,
)

CLAIM_US = 15 * SECOND_US
DOWN = Failed(Trouble.UNREACHABLE, "connection refused")
REFUSED = Failed(Trouble.REFUSED, "not JSON")


@pytest.fixture(scope="module")
def a_postgresql() -> Iterator[str]:
    with postgresql_address() as address:
        yield address


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        address = sqlite_address(tmp_path)
    else:
        address = emptied(request.getfixturevalue("a_postgresql"))
    opened = Database.at(address)
    yield opened
    opened.close()


def stored(database: Database, *notice: Notice, now_us: int = NOW_US) -> None:
    lead = leads.acquire(database, "alerts", "t", now_us=now_us, lasts_us=1)
    take(database, LAKE, Step(notices=notice), lead=lead, now_us=now_us)
    leads.release(database, lead)


def claimed(database: Database, claim: str = "c", now_us: int = NOW_US) -> Claimed | None:
    return claim_next(database, LAKE, "on-call", claim, now_us=now_us, lasts_us=CLAIM_US)


def settled_next(database: Database, outcome: Outcome, now_us: int = NOW_US) -> str:
    """Claim the next notice, let this come of it, and say which it was."""
    found = claimed(database, now_us=now_us)
    assert found is not None
    settle(database, found, outcome, now_us=now_us, chance=0.5)
    return found.notice.notice_id


def states(database: Database) -> dict[str, str]:
    with database.reading() as connection:
        rows = connection.execute(sa.select(notices.c.notice_id, notices.c.state)).all()
        return {row.notice_id: row.state for row in rows}


def test_notices_are_sent_in_their_order_and_once(database: Database) -> None:
    stored(database, a_notice("n1"), a_notice("n2"), a_notice("n3", receiver="mail"))

    assert claims.with_something_due(database, LAKE, now_us=NOW_US) == ("mail", "on-call")
    assert [settled_next(database, Delivered()) for _ in range(2)] == ["n1", "n2"]
    assert claimed(database) is None
    assert claims.with_something_due(database, LAKE, now_us=NOW_US) == ("mail",)


def test_a_receiver_has_one_sender_until_its_claim_is_over(database: Database) -> None:
    stored(database, a_notice("n1"), a_notice("n2", group_key="other"))
    first = claimed(database, "one")
    assert first is not None

    assert claimed(database, "two", NOW_US + CLAIM_US - 1) is None
    assert claims.with_something_due(database, LAKE, now_us=NOW_US + CLAIM_US - 1) == ()
    again = claimed(database, "two", NOW_US + CLAIM_US)

    assert again is not None
    assert (again.notice, again.tries) == (first.notice, 2)


def test_who_comes_late_is_believed_when_it_was_delivered_and_not_when_it_failed(
    database: Database,
) -> None:
    stored(database, a_notice("n1"), a_notice("n2"))
    late_us = NOW_US + CLAIM_US
    first = claimed(database, "one")
    second = claimed(database, "two", late_us)
    assert first is not None
    assert second is not None

    settle(database, first, DOWN, now_us=late_us, chance=0.5)
    assert states(database)["n1"] == Kept.SENDING
    assert claimed(database, "three", late_us) is None

    settle(database, first, Delivered(), now_us=late_us, chance=0.5)
    assert states(database)["n1"] == Kept.DELIVERED
    settle(database, second, DOWN, now_us=late_us, chance=0.0)
    assert states(database)["n1"] == Kept.DELIVERED
    assert settled_next(database, Delivered(), late_us) == "n2"


def test_a_receiver_that_is_down_rests_and_then_gets_everything_in_order(
    database: Database,
) -> None:
    names = [f"n{at}" for at in range(5)]
    stored(database, *(a_notice(name) for name in names))
    now_us, tries = NOW_US, 0
    while now_us < NOW_US + 3_600 * SECOND_US:
        assert settled_next(database, DOWN, now_us) == "n0"
        tries += 1
        (state,) = states_of(database, LAKE)
        assert (state.waiting, state.failures) == (5, tries)
        assert state.last_error == "UNREACHABLE: connection refused"
        assert claimed(database, now_us=now_us + SECOND_US // 2) is None
        now_us += DELAY_MAX_US
    assert tries == 12

    assert [settled_next(database, Delivered(), now_us) for _ in names] == names
    (state,) = states_of(database, LAKE)
    assert (state.waiting, state.failures, state.last_error) == (0, 0, None)


def test_a_notice_that_is_refused_holds_up_its_group_alone(database: Database) -> None:
    bad, later, other = a_notice("bad"), a_notice("later"), a_notice("other", group_key="B")
    stored(database, bad, later, other)

    assert settled_next(database, REFUSED) == "bad"
    assert settled_next(database, Delivered()) == "other"
    assert claimed(database) is None
    assert settled_next(database, Delivered(), NOW_US + DELAY_MAX_US) == "bad"
    assert settled_next(database, Delivered(), NOW_US + DELAY_MAX_US) == "later"


def test_what_cannot_be_delivered_for_days_is_given_up_and_kept_for_a_look(
    database: Database,
) -> None:
    stored(database, a_notice("n1"), a_notice("n2"))
    old_us = NOW_US + GIVE_UP_US
    assert settled_next(database, DOWN, old_us) == "n1"

    assert states(database) == {"n1": Kept.GIVEN_UP, "n2": Kept.WAITING}
    (state,) = states_of(database, LAKE)
    assert (state.given_up, state.waiting, state.oldest_us) == (1, 1, NOW_US)


def test_a_clock_that_was_set_back_holds_up_nothing(database: Database) -> None:
    hour_us = 3_600 * SECOND_US
    stored(database, a_notice("n1"), now_us=NOW_US + hour_us)
    assert settled_next(database, DOWN, NOW_US + hour_us) == "n1"
    abandoned = claimed(database, now_us=NOW_US + hour_us + DELAY_MAX_US)
    assert abandoned is not None

    assert settled_next(database, Delivered(), NOW_US) == "n1"


def test_a_notice_that_cannot_be_read_is_given_up_and_holds_up_nobody(database: Database) -> None:
    stored(database, a_notice("n1"), a_notice("n2"))
    with database.writing() as connection:
        connection.execute(
            sa.update(notices).where(notices.c.notice_id == "n1").values(body='{"receiver": 7}')
        )

    assert claimed(database) is None
    assert settled_next(database, Delivered()) == "n2"
    assert states(database)["n1"] == Kept.GIVEN_UP


@dataclass
class Ledger:
    """A channel that writes down what it was sent, after doing as it is asked."""

    answers: Callable[[Notice, int], Outcome | float]
    """What comes of the notice, at which time of asking; seconds: it hangs for so long."""
    sent_ids: list[str] = field(default_factory=list)
    asked: int = 0
    timeout_s: float = 0.2

    async def send(self, notice: Notice) -> Outcome:
        self.asked += 1
        outcome = self.answers(notice, self.asked)
        if isinstance(outcome, float):
            await asyncio.sleep(outcome)
            return Delivered()
        if isinstance(outcome, Delivered):
            self.sent_ids.append(notice.notice_id)
        return outcome


def well(_notice: Notice, _asked: int) -> Outcome:
    return Delivered()


class World:
    """A clock that jumps a minute each time it is asked, so that no pause is waited for."""

    def __init__(self) -> None:
        self._now_us = NOW_US
        self._claims = itertools.count()
        self.chances = Chances(self._later, lambda: 0.01, lambda: f"claim {next(self._claims)}")

    def _later(self) -> int:
        self._now_us += 60 * SECOND_US
        return self._now_us


async def carried(
    database: Database, channels: Mapping[str, Channel], is_over: Callable[[], bool]
) -> None:
    """Run a courier until `is_over`."""
    courier = Courier(database, LAKE, channels, World().chances)
    until = asyncio.Event()
    running = asyncio.create_task(courier.run(until))
    async with asyncio.timeout(30):
        while not is_over():
            courier.wake()
            await asyncio.sleep(0.01)
            assert not running.done()
    until.set()
    await running


async def test_a_channel_that_hangs_or_fails_holds_up_no_other(tmp_path: Path) -> None:
    database = Database.at(sqlite_address(tmp_path))
    names = [f"n{at}" for at in range(10)]
    for receiver in ("good", "hangs", "down", "broken", "gone"):
        notices = [a_notice(f"{receiver}-{name}", receiver=receiver) for name in names]
        stored(database, *notices)

    def breaks(_notice: Notice, asked: int) -> Outcome:
        if asked <= 3:
            raise LookupError("a bug, with a secret in its text")
        return Delivered()

    channels = {
        "good": Ledger(well),
        "hangs": Ledger(lambda _notice, _asked: 3_600.0),
        "down": Ledger(lambda _notice, asked: DOWN if asked % 3 else Delivered()),
        "broken": Ledger(breaks),
    }

    def is_over() -> bool:
        over = [len(channels[name].sent_ids) == len(names) for name in ("good", "down", "broken")]
        return all(over) and channels["hangs"].asked > 1

    await carried(database, channels, is_over)

    for receiver in ("good", "down", "broken"):
        assert channels[receiver].sent_ids == [f"{receiver}-{name}" for name in names]
    left = {state.receiver: state for state in states_of(database, LAKE)}
    assert {name: state.waiting for name, state in left.items()} == {
        "good": 0,
        "hangs": 10,
        "down": 0,
        "broken": 0,
        "gone": 10,
    }
    assert left["hangs"].last_error == "UNREACHABLE: no answer within 0.2 s"
    assert left["gone"].last_error == "NOT_SET_UP: no receiver 'gone' is set up"
    database.close()


async def test_what_was_delivered_while_the_database_was_locked_is_noted_afterwards(
    tmp_path: Path,
) -> None:
    address = sqlite_address(tmp_path)
    database = Database.at(address)
    stored(database, a_notice("n1"), a_notice("n2"))
    other = sqlite3.connect(address.removeprefix("sqlite:///"), isolation_level=None)

    def locks(_notice: Notice, asked: int) -> Outcome:
        if asked == 1:
            other.execute("BEGIN IMMEDIATE")
            asyncio.get_running_loop().call_later(6, other.rollback)
        return Delivered()

    channel = Ledger(locks)
    await carried(database, {"on-call": channel}, lambda: len(channel.sent_ids) == 2)

    assert channel.sent_ids == ["n1", "n2"]
    assert set(states(database).values()) == {Kept.DELIVERED}
    other.close()
    database.close()
