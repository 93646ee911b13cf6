"""A report made again or sent from its page: by whom, after what he has looked at, and once.

Row G5: each change at a page needs a sign-in and a right, is looked at before, and is in the audit.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import sqlalchemy as sa

from dashboards.access import visitors
from dashboards.access.visitors import COOKIE, Standing, Visit, Visitors
from dashboards.actions.report_requests import Asked, What, asked_of, carry_out, preview, ways
from dashboards.page_context import PageContext
from dashboards.pages import report_actions
from dashboards.reads.job_database import JobDatabase
from dashboards.reads.lake_data import LakeData
from dashboards.reads.report_shelf import ReportShelf, Sending
from dashboards.url_state import report_path
from dashboards.web.app import build
from engine.foundation.errors import ConfigError, TidemarkError
from pipelines.database.clock import machine_ms
from pipelines.database.database import Database
from pipelines.database.tables import notices
from pipelines.platform_jobs.requests import asked_for
from pipelines.reading.report_names import name_of
from pipelines.scheduler.roles import Actor, NotPermitted
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store import registry, results, sessions
from pipelines.scheduler.store.audit import audit_of
from pipelines.scheduler.store.jobs import JobChanged
from tests.dashboards.conftest import FRESH
from tests.dashboards.jobs_at_work import PASSWORD, write_jobs
from tests.dashboards.test_alerts_page import shown
from tests.reported_lake import Reported, write_reports
from tests.sqlite_databases import address_in
from tests.unit.reports.test_digest_and_sending import RECEIVERS

EXECUTOR = "http://127.0.0.1:9999/"
ROOT = Actor("root", is_admin=True)


@dataclass(frozen=True, slots=True)
class World:
    """A lake with reports, and jobs with an executor that has registered."""

    reported: Reported
    database: Database
    context: PageContext
    jobs: JobService

    def posted(self) -> int:
        """Notices that wait."""
        with self.database.reading() as connection:
            return connection.scalar(sa.select(sa.func.count()).select_from(notices)) or 0

    def runs(self) -> list[results.Run]:
        """Of all jobs."""
        return [run for job in self.jobs.jobs_after() for run in self.jobs.runs_of(job.job_id)]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return write_reports(tmp_path_factory.mktemp("asked") / "lake")


@pytest.fixture(scope="module")
def jobs_there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with jobs and people, to be copied: a password costs most of a second."""
    folder = tmp_path_factory.mktemp("jobs")
    write_jobs(folder).close()
    return folder


@pytest.fixture
def world(reported: Reported, jobs_there: Path, tmp_path: Path) -> Iterator[World]:
    shutil.copytree(jobs_there, tmp_path, dirs_exist_ok=True)
    database = Database.at(address_in(tmp_path))
    registry.beat(database, "tidemark", EXECUTOR, now_ms=machine_ms())
    (tmp_path / "receivers.toml").write_text(RECEIVERS)
    kept = JobDatabase(address_in(tmp_path))
    context = PageContext(
        LakeData(reported.shelf.lake),
        lambda: FRESH,
        visitors=Visitors(kept, is_local=True),
        shelf=ReportShelf(reported.shelf.lake),
        sending=Sending(tmp_path / "receivers.toml", "https://t.example"),
    )
    yield World(reported, database, context, JobService(database, ROOT, machine_ms))
    kept.close()
    database.close()


@contextmanager
def by(world: World, name: str | None) -> Iterator[None]:
    """Asked by somebody who has signed in, or by nobody."""
    token = "" if name is None else token_of(world, name)
    before = visitors._visit.set(Visit(token, "localhost"))
    try:
        yield
    finally:
        visitors._visit.reset(before)


def token_of(world: World, name: str) -> str:
    kept = sessions.kept_password(world.database, name)
    token = sessions.begin_session(world.database, name, kept, now_ms=machine_ms())
    assert token is not None
    return token


@pytest.mark.parametrize(
    ("who", "may"), [("ann", True), ("cy", True), ("bob", False), (None, False)]
)
@pytest.mark.parametrize("what", list(What))
def test_who_may_change_the_jobs_of_the_group_asks_and_nobody_else(
    world: World, who: str | None, may: bool, what: What
) -> None:
    run = world.reported.second
    receiver = "team" if what is What.SEND else ""
    with by(world, "ann"):
        looked_at = preview(world.context, run, what, receiver).asked
    with by(world, who):
        if may:
            assert preview(world.context, run, what, receiver).asked.what is what
            carry_out(world.context, looked_at)
        else:
            with pytest.raises(TidemarkError):
                preview(world.context, run, what, receiver)
            with pytest.raises(TidemarkError):
                carry_out(world.context, looked_at)
    done = (len(world.runs()), world.posted())
    assert done == ((0, 0) if not may else (0, 1) if what is What.SEND else (1, 0))


def test_what_is_asked_for_is_a_run_of_the_job_of_that_period_and_in_the_audit(
    world: World,
) -> None:
    run = world.reported.second
    with by(world, "cy"):
        shown_first = preview(world.context, run, What.AGAIN)
        assert "lag report, hourly" in shown_first.sentences[0]
        assert EXECUTOR in shown_first.sentences[0]
        assert f"`again={run.name}`" in shown_first.sentences[0]
        assert "the same numbers" in shown_first.sentences[1]
        said = carry_out(world.context, shown_first.asked)
        again = carry_out(world.context, shown_first.asked)
        newest = carry_out(world.context, preview(world.context, run, What.NEWEST).asked)
    assert said == again != newest
    name = name_of(run.name)
    assert name is not None
    asked = asked_for(world.jobs, world.database, 1, name)
    assert [one.parameters for one in asked] == [
        f"again={run.name} newest=yes",
        f"again={run.name}",
    ]
    assert {one.state for one in asked} == {RunState.PLANNED}
    noted = audit_of(world.database, "job:1")
    assert [(one.author, one.action) for one in noted[:2]] == [("cy", "run"), ("cy", "run")]
    assert noted[1].detail == f"run {asked[1].log_id} with again={run.name}"


def test_runs_about_a_period_are_shown_with_every_run_of_its_report_and_no_other(
    world: World,
) -> None:
    with by(world, "ann"):
        carry_out(world.context, preview(world.context, world.reported.second, What.AGAIN).asked)
        assert len(ways(world.context, world.reported.second).runs) == 1
        assert len(ways(world.context, world.reported.first).runs) == 1
        assert ways(world.context, world.reported.previous).runs == ()
        day = ways(world.context, world.reported.day)
        assert day.maker is not None
        assert day.maker.job.settings.title == "lag report, daily"


def test_a_job_that_was_changed_meanwhile_is_not_run(world: World) -> None:
    with by(world, "ann"):
        asked = preview(world.context, world.reported.second, What.AGAIN).asked
    job = world.jobs.job(asked.job_id)
    world.jobs.edit_job(job.job_id, replace(job.settings, title="another"))
    with by(world, "ann"), pytest.raises(JobChanged):
        carry_out(world.context, asked)
    assert world.runs() == []


@pytest.mark.parametrize(
    "spoiled",
    [
        {"key": "x"},
        {"key": "../../etc"},
        {"key": "A" * 16},
        {"job_id": 2},
        {"name": "lag-hourly/20260301T120000Z-3600s/9"},
        {"name": "lag-hourly/20260301T120000Z-3600s/2 send=team"},
        {"what": "send", "receiver": "on-call"},
        {"what": "send", "receiver": "nobody"},
        {"what": "remove"},
        {"more": 1},
        {"job_id": "1; drop table"},
    ],
)
def test_what_a_browser_brings_back_is_looked_up_anew(
    world: World, spoiled: dict[str, Any]
) -> None:
    with by(world, "ann"):
        asked = msgspec.to_builtins(preview(world.context, world.reported.second, What.AGAIN).asked)
        with pytest.raises(TidemarkError):
            carry_out(world.context, asked_of(asked | spoiled))
    assert (world.runs(), world.posted()) == ([], 0)


def test_a_report_is_sent_to_each_receiver_once_with_a_link_to_its_page(world: World) -> None:
    run = world.reported.second
    with by(world, "cy"):
        first = preview(world.context, run, What.SEND, "team")
        assert "team is sent the sentence" in first.sentences[0]
        for _ in range(2):
            assert carry_out(world.context, first.asked) == "team is sent it"
        second = preview(world.context, run, What.SEND, "team")
        assert "nothing is sent again" in second.sentences[0]
        assert carry_out(world.context, second.asked) == "team was sent it before: not again"
    assert world.posted() == 1
    with world.database.reading() as connection:
        body = connection.scalar(sa.select(notices.c.body))
    assert f"https://t.example/reports/{run.name}" in str(body)
    noted = audit_of(world.database, f"report:{run.name}")
    assert [(one.author, one.action) for one in noted] == [("cy", "send"), ("cy", "send")]
    assert noted[1].detail == "to team; 1 of 1 had not been sent it"


def test_a_receiver_that_wakes_people_is_not_offered(world: World) -> None:
    with by(world, "ann"):
        assert ways(world.context, world.reported.second).receivers == ("team",)
        with pytest.raises(ConfigError, match="wakes nobody"):
            preview(world.context, world.reported.second, What.SEND, "on-call")


def test_without_an_executor_or_a_job_the_page_says_which_command_does_it(world: World) -> None:
    run = world.reported.second
    registry.leave(world.database, "tidemark", EXECUTOR)
    with by(world, "ann"):
        ways_shown = ways(world.context, run)
        assert "tidemark executor --admin URL --app tidemark" in ways_shown.no_making
        assert f"--again {run.name}`" in ways_shown.no_making
        with pytest.raises(TidemarkError, match="has no executor"):
            preview(world.context, run, What.AGAIN)
    for job in world.jobs.jobs_after():
        world.jobs.remove_job(job.job_id)
    with by(world, "ann"):
        assert "`tidemark jobs install`" in ways(world.context, run).no_making
        with pytest.raises(TidemarkError, match="no job here that makes reports"):
            preview(world.context, run, What.AGAIN)


def test_without_a_file_of_receivers_the_command_that_sends_is_said(world: World) -> None:
    without_receivers = replace(world.context, sending=Sending())
    with by(world, "ann"):
        ways_shown = ways(without_receivers, world.reported.second)
    assert ways_shown.receivers == ()
    assert f"tidemark reports send {world.reported.second.name} RECEIVER" in ways_shown.no_sending


def test_a_stranger_is_led_to_the_sign_in_and_sees_no_runs(world: World) -> None:
    with by(world, "ann"):
        carry_out(world.context, preview(world.context, world.reported.second, What.AGAIN).asked)
    path = report_path(world.reported.second.name)
    with by(world, None):
        said, making, sending, receivers, runs = report_actions.offered(world.context, path)
    assert (making, sending, receivers, runs) == ("hidden", "hidden", [], None)
    assert f"/sign-in?to={path}" in shown(said)
    with by(world, "bob"):
        said, making, sending, receivers, runs = report_actions.offered(world.context, path)
    assert (making, sending, receivers, runs) == ("hidden", "hidden", [], None)
    assert "or you may not see it" in shown(said)
    with by(world, "ann"):
        _, making, sending, receivers, runs = report_actions.offered(world.context, path)
    assert (making, sending) == ("actions", "actions")
    assert [one.value for one in receivers] == ["team"]
    assert "waits for its executor" in shown(runs)


def test_who_only_looks_changes_nothing(reported: Reported, tmp_path: Path) -> None:
    """Before there is anybody who could sign in, whoever is at this machine may look at jobs."""
    database = Database.at(address_in(tmp_path))
    kept = JobDatabase(address_in(tmp_path))
    context = PageContext(
        LakeData(reported.shelf.lake), lambda: FRESH, visitors=Visitors(kept, is_local=True)
    )
    before = visitors._visit.set(Visit("", "localhost"))
    try:
        assert ways(context, reported.second).visitor.standing is Standing.LOOKS
        for what in What:
            with pytest.raises(NotPermitted):
                preview(context, reported.second, what, "team")
        with pytest.raises(NotPermitted):
            carry_out(context, Asked(What.AGAIN, reported.second.name, "0" * 16, 1))
    finally:
        visitors._visit.reset(before)
        kept.close()
        database.close()


def body_of(world: World, asked: Any) -> dict[str, Any]:
    """What a browser sends when somebody confirms."""
    outputs = ("report-preview.children", "report-deciding.className", "report-asked.data",
               "report-said.children")  # fmt: skip
    clicks = (*report_actions.BUTTONS, "report-cancel", "report-confirm")
    return {
        "output": f"..{'...'.join(outputs)}..",
        "outputs": [dict(zip(("id", "property"), one.split("."), strict=True)) for one in outputs],
        "inputs": [{"id": one, "property": "n_clicks", "value": 1} for one in clicks],
        "changedPropIds": ["report-confirm.n_clicks"],
        "state": [
            {"id": "url", "property": "pathname",
             "value": report_path(world.reported.second.name)},
            {"id": "report-receiver", "property": "value", "value": None},
            {"id": "report-asked", "property": "data", "value": asked},
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("headers", "status", "runs"),
    [
        ({"origin": "http://localhost", "sec-fetch-site": "same-origin"}, 200, 1),
        ({"origin": "http://evil.example"}, 403, 0),
        ({"sec-fetch-site": "cross-site"}, 403, 0),
        ({"content-type": "text/plain"}, 415, 0),
        ({"origin": "null"}, 403, 0),
    ],
)
async def test_only_our_own_pages_change_anything(
    world: World, headers: dict[str, str], status: int, runs: int
) -> None:
    with by(world, "ann"):
        shown_first = preview(world.context, world.reported.second, What.AGAIN)
    body = body_of(world, report_actions.kept_of(shown_first))
    application: Any = build(
        world.reported.shelf.lake, clock=lambda: FRESH, visitors=world.context.visitors
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=application),
        base_url="http://localhost",
        cookies={COOKIE: token_of(world, "ann")},
    ) as web:
        given = {"content-type": "application/json"} | headers
        answer = await web.post(
            "/_dash-update-component", content=msgspec.json.encode(body), headers=given
        )
    assert answer.status_code == status, answer.text
    assert len(world.runs()) == runs
    assert PASSWORD not in answer.text


async def test_without_the_cookie_of_a_session_nothing_is_changed(world: World) -> None:
    with by(world, "ann"):
        shown_first = preview(world.context, world.reported.second, What.AGAIN)
    body = body_of(world, report_actions.kept_of(shown_first))
    application: Any = build(
        world.reported.shelf.lake, clock=lambda: FRESH, visitors=world.context.visitors
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=application), base_url="http://localhost"
    ) as web:
        answer = await web.post(
            "/_dash-update-component", json=body, headers={"origin": "http://localhost"}
        )
    assert answer.status_code == 200
    assert "may not have reports made or sent" in answer.text
    assert world.runs() == []
