"""A click is done once; what an earlier request of it came to is said, above all when unknown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.access.visitors import Standing, Visitor
from dashboards.actions.previewed_changes import (
    NEW_NOW,
    OUTCOME_UNKNOWN,
    Click,
    ClickNotDone,
    click_of,
    why_no_preview,
)
from engine.foundation.errors import StorageError, TidemarkError
from pipelines.database import operations
from pipelines.lake.lake import Lake
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.store import jobs, people
from tests.dashboards import jobs_shown
from tests.dashboards.house import House, reading, text


class Work:
    """Counts how often it is done."""

    def __init__(self, error: TidemarkError | None = None) -> None:
        self.times = 0
        self._error = error

    def __call__(self) -> str:
        self.times += 1
        if self._error is not None:
            raise self._error
        return f"done {self.times}"


@pytest.fixture
def click(tmp_path: Path) -> Iterator[Click]:
    database = jobs_shown.a_database(tmp_path)
    yield Click(database, "a" * 64, "test", lambda: jobs_shown.NOW_MS)
    database.close()


def test_a_click_that_is_sent_again_has_the_result_of_the_first(click: Click) -> None:
    work = Work()
    assert click.earlier() is None
    assert [click.do(work), click.do(work), click.earlier()] == ["done 1"] * 3
    assert work.times == 1


def test_a_click_whose_outcome_is_unknown_says_so_and_is_not_done_again(click: Click) -> None:
    work = Work(StorageError("the database went away"))
    with pytest.raises(StorageError):
        click.do(work)
    with pytest.raises(ClickNotDone, match="Whether it was done is not known; look before you"):
        click.do(work)
    assert work.times == 1


def test_a_click_that_was_refused_says_why_and_is_not_done_again(click: Click) -> None:
    work = Work(TidemarkError("the group has jobs"))
    with pytest.raises(TidemarkError):
        click.do(work)
    with pytest.raises(ClickNotDone, match="the group has jobs"):
        click.do(work)
    assert work.times == 1


def test_a_click_that_is_under_way_is_not_done_beside_itself(click: Click) -> None:
    begin(click)
    work = Work()
    with pytest.raises(ClickNotDone, match="nobody knows what came of it"):
        click.do(work)
    assert work.times == 0


def begin(click: Click) -> None:
    """As a process begins a click that dies before it is done, or just after."""
    now_us = jobs_shown.NOW_MS * 1000
    operations.begin(click.database, click.number, click.kind, now_us=now_us, expires_us=now_us + 1)


def click_by(house: House, name: str, key: str) -> Click:
    visitor = Visitor(Standing.SIGNED_IN, Actor(name))
    visitors = jobs_shown.visitors_of(house.address)
    return click_of(visitors, house.database, visitor, key=key, kind="test")


async def test_a_change_of_a_user_whose_outcome_is_unknown_is_not_called_undone(
    nothing: Lake, house: House
) -> None:
    """It was done, and its process died before it could say so."""
    values = {"name": "ann", "rights": "the jobs of groups", "groups": "lag-reports, media"}
    async with reading(nothing, house, "root") as root:
        _, known = await root.preview("user-edit", 0, values=values)
        begin(click_by(house, "root", known["key"]))
        people.edit_user(house.database, "ann", jobs_shown.by(), is_admin=True)
        before = house.rows()
        panel = text(await root.step("do", "user-edit", 0, values=values, **known))
    assert OUTCOME_UNKNOWN in panel
    assert NEW_NOW not in panel
    assert house.rows() == before


async def test_a_change_of_a_job_whose_outcome_is_unknown_is_not_called_undone(
    nothing: Lake, house: House
) -> None:
    job_id = house.jobs["daily"]
    async with reading(nothing, house, "ann") as ann:
        _, known = await ann.preview("pause", job_id)
        begin(click_by(house, "ann", known["key"]))
        jobs.pause_job(house.database, job_id, jobs_shown.by())
        before = house.rows()
        panel = text(await ann.step("do", "pause", job_id, **known))
    assert OUTCOME_UNKNOWN in panel
    assert NEW_NOW not in panel
    assert house.rows() == before


async def test_a_job_that_was_removed_by_a_click_is_said_to_be_when_it_is_sent_again(
    nothing: Lake, house: House
) -> None:
    job_id = house.jobs["script"]
    async with reading(nothing, house, "ann") as ann:
        _, known = await ann.preview("remove", job_id)
        for _ in range(2):
            panel = text(await ann.step("do", "remove", job_id, **known))
            assert f"Job {job_id} is removed." in panel


def test_of_a_preview_that_fails_nobody_has_to_look_whether_it_was_done() -> None:
    said = why_no_preview(StorageError("the database is locked"))
    assert said.startswith("Nothing was done")
    assert said.endswith("the database is locked")
