"""The database of a running `tidemark alerts run` goes away, over the very notice that is being
answered: the process says so, lives on, and when the database is back each stall was notified once.

Away is a file that was moved, a folder that is not there, a PostgreSQL that was killed, one that
stands still, as its machine does, and one whose tables are not there while a dump is brought back.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from pipelines.alerting.outbox.claims import is_empty
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from tests.integration.alerting.receiving_server import OK, Answer, Ledger, receiving
from tests.integration.alerting.stores import address_of
from tests.integration.alerting.test_alerting_process import RULES, TELLING
from tests.integration.client.database_servers import stoppable_postgresql
from tests.pipelines.bronze_lake import BronzeWriter
from tests.pipelines.emitted_in_steps import Story, keeps_up, stands

pytestmark = pytest.mark.timeout(240)
TIDEMARK = str(Path(sys.prefix) / "bin" / "tidemark")
ANSWER_S = 5
"""So long the receiver may take; a claim lasts five seconds longer."""
GONE_S = ANSWER_S + 5 + 4
"""Longer than a claim."""
TELLING_SOON = TELLING.replace('kind = "webhook"', f'kind = "webhook"\ntimeout_s = {ANSWER_S}')


@dataclass
class Outage:
    """A database that can be taken away, and how the log names what is wrong."""

    address: str
    begin: Callable[[], object]
    end: Callable[[], object]
    words: str


@contextmanager
def a_file_that_is_moved(folder: Path) -> Iterator[Outage]:
    home, away = folder / "state" / "tidemark.db", folder / "away.db"
    home.parent.mkdir()
    yield Outage(
        f"sqlite:///{home}",
        lambda: home.rename(away),
        lambda: away.rename(home),
        f"{home} is gone",
    )


@contextmanager
def a_folder_that_is_moved(folder: Path) -> Iterator[Outage]:
    home, away = folder / "state", folder / "away"
    home.mkdir()
    yield Outage(
        f"sqlite:///{home / 'tidemark.db'}",
        lambda: home.rename(away),
        lambda: away.rename(home),
        f"{home / 'tidemark.db'} is gone",
    )


@contextmanager
def a_server_that_is_killed(_folder: Path) -> Iterator[Outage]:
    with stoppable_postgresql() as server:
        yield Outage(address_of(server.address), server.stop, server.begin, "the database")


@contextmanager
def a_server_that_stands_still(_folder: Path) -> Iterator[Outage]:
    with stoppable_postgresql() as server:
        yield Outage(address_of(server.address), server.freeze, server.go_on, "timeout expired")


@contextmanager
def tables_that_are_brought_back(_folder: Path) -> Iterator[Outage]:
    with stoppable_postgresql() as server:

        def done(*statements: str) -> None:
            with psycopg.connect(server.address) as connection:
                for statement in statements:
                    connection.execute(statement)

        yield Outage(
            address_of(server.address),
            lambda: done("ALTER SCHEMA public RENAME TO kept", "CREATE SCHEMA public"),
            lambda: done("DROP SCHEMA public", "ALTER SCHEMA kept RENAME TO public"),
            "does not exist",
        )


WAYS = (
    a_file_that_is_moved,
    pytest.param(a_folder_that_is_moved, marks=pytest.mark.slow),
    a_server_that_is_killed,
    a_server_that_stands_still,
    pytest.param(tables_that_are_brought_back, marks=pytest.mark.slow),
)


@pytest.fixture(params=WAYS, ids=lambda way: str(way.__name__))
def outage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Outage]:
    with request.param(tmp_path) as one:
        yield one


@dataclass
class Cluster:
    """A lake, and groups that stand from one step to the next."""

    story: Story
    broker: BronzeWriter

    def goes_on(self, *standing: str, going: tuple[str, ...] = ()) -> None:
        for at_s in self.story.steps(self.story.at_s + 60, self.broker, step_s=10):
            keeps_up(self.broker, "quick", 10 * at_s)
            for group in standing:
                stands(self.broker, group, 100 + at_s)
            for group in going:
                keeps_up(self.broker, group, 10_000 + at_s)
        self.story.judge()


@contextmanager
def alerting(folder: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    words = ["run", "--lake", str(folder / "lake"), "--database", address]
    words += ["--rules", str(folder / "rules.toml"), "--receivers", str(folder / "telling.toml")]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([TIDEMARK, "alerts", *words], stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def notified(ledger: Ledger) -> list[tuple[str, str]]:
    return [
        (one["status"], one["labels"]["group"])
        for request in ledger.received
        for one in request.decoded["alerts"]
    ]


def until(holds: Callable[[], bool], folder: Path) -> None:
    ends_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends_s, (folder / "log").read_text()[-3_000:]
        time.sleep(0.1)


def test_a_database_that_goes_away_loses_no_notice_and_has_none_sent_twice(
    outage: Outage, tmp_path: Path
) -> None:
    def taken_away(_path: str, _body: bytes) -> Answer:
        if not gone:
            outage.begin()
            gone.append(time.monotonic())
        return OK

    def log() -> str:
        return (tmp_path / "log").read_text()

    gone: list[float] = []
    (tmp_path / "rules.toml").write_text(RULES.format(waits="0s"))
    story = Story(tmp_path / "lake")
    cluster = Cluster(story, story.broker("b"))
    cluster.goes_on("early")
    with receiving(taken_away) as ledger:
        (tmp_path / "telling.toml").write_text(TELLING_SOON.format(url=ledger.url))
        with alerting(tmp_path, outage.address) as process:
            until(lambda: notified(ledger) == [("firing", "early")], tmp_path)
            cluster.goes_on("early", "late")
            time.sleep(max(0.0, gone[0] + GONE_S - time.monotonic()))
            assert process.poll() is None, log()
            until(lambda: outage.words in log(), tmp_path)
            assert notified(ledger) == [("firing", "early")]
            outage.end()
            until(lambda: len(notified(ledger)) > 1, tmp_path)
            cluster.goes_on(going=("early", "late"))
            until(lambda: len(notified(ledger)) > 3, tmp_path)
            until(lambda: has_notified_all(outage.address, tmp_path / "lake"), tmp_path)
            assert "well again" in log()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        assert notified(ledger)[:2] == [("firing", "early"), ("firing", "late")]
        assert sorted(notified(ledger)[2:]) == [("resolved", "early"), ("resolved", "late")]
    assert "Traceback" not in log()


def has_notified_all(address: str, lake: Path) -> bool:
    database = Database.at(address)
    try:
        return is_empty(database, Lake.at(str(lake)).root)
    finally:
        database.close()
