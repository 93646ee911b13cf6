"""Long actions over HTTP and on the page: how each stands, for those who may look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.pages import job_lists
from pipelines.database import operations
from pipelines.database.database import Database
from pipelines.database.operations import SHOWN_MAX, SILENT_US
from pipelines.database.tables import Ended
from pipelines.lake.lake import Lake
from pipelines.scheduler.page_queries import PageService
from pipelines.scheduler.roles import Actor, NotPermitted
from tests.dashboards.test_sign_in import NOW_MS, asked, tried
from tests.dashboards.test_sign_in import database as database_of_people

NOW_US = NOW_MS * 1000
HOUR_US = 3_600_000_000
HOSTILE = "</script>\u202e<b>\x00"

people_database = pytest.fixture(name="database")(database_of_people.__wrapped__)  # type: ignore[attr-defined]


def begin(database: Database, name: str, at_us: int = NOW_US) -> None:
    operations.begin(
        database,
        name,
        "report",
        now_us=at_us,
        expires_us=at_us + HOUR_US,
        command=("reports", "run", "--lake", HOSTILE),
        author="root",
    )


def some(database: Database) -> None:
    """One of each state."""
    for name in ("done", "failed", "runs"):
        begin(database, name)
    outcome = json.dumps({"exit_code": 0, "lines": ["made lag-daily"]})
    operations.end(database, "done", Ended.DONE, result=outcome, now_us=NOW_US)
    outcome = json.dumps({"signal": "SIGKILL", "lines": [HOSTILE]})
    operations.end(database, "failed", Ended.FAILED, result=outcome, now_us=NOW_US)
    begin(database, "lost", NOW_US - SILENT_US)


async def test_they_are_shown_to_who_has_signed_in_and_to_nobody_else(
    story: Lake, tmp_path: Path, database: Database
) -> None:
    some(database)
    async with asked(story, tmp_path) as web:
        for path in ("/api/operations", "/api/operations/done"):
            assert (await web.get(path)).status_code == 401
        assert (await tried(web)).status_code == 200
        listed = (await web.get("/api/operations")).json()["operations"]
        assert {one["operation_id"]: one["state"] for one in listed} == {
            "done": "DONE", "failed": "FAILED", "runs": "RUNNING", "lost": "LOST"
        }  # fmt: skip
        answer = await web.get("/api/operations/done")
        assert answer.json()["result"] == {"exit_code": 0, "lines": ["made lag-daily"]}
        assert answer.headers["cache-control"] == "no-store"
        for unknown in ("none", "x" * 65, "%00"):
            assert (await web.get(f"/api/operations/{unknown}")).status_code == 404
        foreign = await web.get("/api/operations", headers={"host": "example.com"})
        assert foreign.status_code == 421
        for number in range(SHOWN_MAX):
            begin_plain(database, f"many-{number}")
        assert len((await web.get("/api/operations")).json()["operations"]) == SHOWN_MAX


def begin_plain(database: Database, name: str) -> None:
    operations.begin(database, name, "x", now_us=NOW_US + 1, expires_us=NOW_US + HOUR_US)


def texts(shown: object) -> Iterator[str]:
    if isinstance(shown, str):
        yield shown
    elif isinstance(shown, list | tuple):
        for one in shown:
            yield from texts(one)
    elif shown is not None:
        yield from texts(getattr(shown, "children", None))


def test_the_page_lists_them_with_their_last_words(database: Database) -> None:
    service = PageService(database, Actor("ann"), lambda: NOW_MS)
    assert "Nobody has begun" in " ".join(texts(job_lists.operations(service)))
    some(database)
    shown = list(texts(job_lists.operations(service)))
    assert {"running", "done", "failed", "lost", "made lag-daily"} <= set(shown)
    assert any(one.startswith("SIGKILL: ") for one in shown)
    assert not any("\u202e" in one or "\x00" in one for one in shown)
    with pytest.raises(NotPermitted):
        PageService(database, None, lambda: NOW_MS).operations()
