"""Lakes for all page tests, and a browser for each file of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from tests.dashboards import jobs_shown
from tests.dashboards.house import House
from tests.dashboards.served import Windows, serving
from tests.gold_lake import END, Cast, write_gold_lake
from tests.integration.alerting.stores import postgresql_address

HOSTILE = Cast(
    billing="<img src=x onerror=alert(1)>",
    shipping="../../etc/passwd?x=1&y=<b>bold</b>#'\"",
    ledger="\u202egnp\u200b <a href='javascript:alert(2)'>click</a> {{7*7}}",
    message_id="<script>alert(3)</script>",
    reason="</td><script src='//evil.example/x.js'></script>",
    replica="<b onclick=alert(4)>10.0.0.32</b>:10912",
)
FRESH = END + timedelta(seconds=8)
STALE = END + timedelta(minutes=6)


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The sound lake; nobody writes to it."""
    return write_gold_lake(tmp_path_factory.mktemp("story") / "lake")


@pytest.fixture(scope="session")
def hostile_story(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The same story with names that want to be markup."""
    return write_gold_lake(tmp_path_factory.mktemp("hostile") / "lake", cast=HOSTILE)


@pytest.fixture(scope="session")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake in which nothing was ever computed."""
    return Lake.at(str(tmp_path_factory.mktemp("nothing") / "lake"))


@pytest.fixture(scope="session")
def torn_story(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The story after somebody removed data files of its lag."""
    lake = write_gold_lake(tmp_path_factory.mktemp("torn") / "lake")
    for file in Path(lake.gold("consumer_lag")).rglob("*.parquet"):
        file.unlink()
    return lake


@pytest.fixture(scope="session")
def origins(
    story: Lake, hostile_story: Lake, nothing: Lake, torn_story: Lake
) -> Iterator[dict[str, str]]:
    """Addresses of dashboards by what their lake is like."""
    with (
        serving(story, FRESH) as data,
        serving(story, STALE) as stale,
        serving(hostile_story, FRESH) as hostile,
        serving(nothing, FRESH) as first_run,
        serving(torn_story, FRESH) as torn,
    ):
        yield {
            "data": data,
            "stale": stale,
            "hostile": hostile,
            "first-run": first_run,
            "torn": torn,
        }


@pytest.fixture(scope="module")
def windows(browser: Browser) -> Windows:
    """The profiles of the browser."""
    return Windows(browser)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    database, numbers = jobs_shown.a_filled_database(tmp_path)
    yield House(database, jobs_shown.address_of(tmp_path), numbers)
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def any_house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """The same in either kind of database."""
    if request.param == "sqlite":
        yield request.getfixturevalue("house")
        return
    with postgresql_address() as address:
        database = Database.at(address)
        yield House(database, address, jobs_shown.store_jobs(database))
        database.close()
