"""The table `alerts` is tended beside the process that writes it: no change is lost, none is there
twice, and who writes it goes on where it was, though files are merged, days dropped, replaced files
removed and the log is cut behind it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from engine.foundation.errors import LakeError
from pipelines.alerting.alerts import entry_of
from pipelines.alerting.history import Carrier, HistoryTable
from pipelines.alerting.store import changes
from pipelines.base.settings import DAY_US
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.upkeep.maintainer import Maintainer
from pipelines.upkeep.settings import Upkeep
from pipelines.upkeep.table_facts import LOG_RETENTION
from pipelines.upkeep.work import tidy_log, vacuum
from tests.integration.alerting.stores import LAKE, an_alert, sqlite_address

TODAY = datetime.now(UTC)
TODAY_US = int(TODAY.timestamp()) * 1_000_000
COMMITS = 40


class History:
    """Changes that are carried into a lake one commit at a time."""

    def __init__(self, folder: Path) -> None:
        (folder / "lake").mkdir()  # Alerting makes no lake.
        self.lake = Lake.at(str(folder / "lake"))
        self.database = Database.at(sqlite_address(folder))
        self.carrier = self.new_carrier()
        self.said: list[str] = []

    def new_carrier(self) -> Carrier:
        """Of a process that begins anew."""
        return Carrier(self.database, LAKE, HistoryTable(self.lake))

    def change(self, *, days_ago: int = 0) -> None:
        """Something becomes of an alert, and is carried; a lake that is busy takes it later."""
        moment_us = TODAY_US - days_ago * DAY_US
        entry = entry_of(an_alert(1), "FIRED", observed_us=moment_us, recorded_us=moment_us)
        with self.database.writing() as connection:
            changes.record(connection, LAKE, [entry])
        try:
            self.carrier.carry()
        except LakeError as error:
            self.said.append(str(error))

    def tend(self, *, days_later: int = 0) -> int:
        """A round of upkeep, as of so many days later."""
        maintainer = Maintainer(self.lake, Upkeep(), self.said.append)
        return maintainer.round(TODAY + timedelta(days=days_later))

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.lake.gold("alerts"))

    @property
    def numbers(self) -> list[int]:
        return sorted(self.table.to_pyarrow_table(columns=["seq"])["seq"].to_pylist())


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path)
    yield made
    made.database.close()


def test_a_writer_goes_on_behind_merges_drops_vacuums_and_a_log_that_was_cut(
    history: History,
) -> None:
    history.change(days_ago=401)
    for _ in range(COMMITS - 1):
        history.change()
    assert len(history.table.file_uris()) == COMMITS
    history.tend()
    assert "gold/alerts: dropped" in "; ".join(history.said)
    merged = len(history.table.file_uris())
    assert merged < COMMITS / 10
    # As a maintainer does hours and days later.
    removed = vacuum(history.table, 0, full=True)
    assert removed is not None
    assert removed.text.startswith(f"vacuumed {COMMITS} files")
    history.table.alter.set_table_properties({LOG_RETENTION: "interval 0 days"})
    assert tidy_log(history.table) is None
    log = Path(history.lake.gold("alerts")) / "_delta_log"
    assert not (log / f"{0:020}.json").exists()
    history.change()  # By the handle that was opened before all this.
    history.carrier = history.new_carrier()
    history.change()
    assert history.numbers == list(range(2, COMMITS + 3))


def test_upkeep_and_writer_at_the_same_time_lose_and_double_nothing(history: History) -> None:
    over = threading.Event()
    rounds: list[int] = []

    def tend() -> None:
        while not over.is_set():
            rounds.append(history.tend(days_later=2))

    history.change()
    tending = threading.Thread(target=tend)
    tending.start()
    try:
        for _ in range(COMMITS):
            history.change()
    finally:
        over.set()
        tending.join()
    history.carrier.carry()
    assert sum(rounds) > 0
    assert history.numbers == list(range(1, COMMITS + 2))
