"""Reports as a reader meets them: the list, a report, what differs, and one made again.

A real centre and executor are at work; only the job itself needs no Spark here. Row G5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import expect

from dashboards.access.visitors import Visitors
from dashboards.reads.job_database import JobDatabase
from dashboards.reads.report_shelf import Sending
from dashboards.url_state import report_path
from pipelines.platform_jobs.job_commands import VARIABLE
from pipelines.scheduler.store.audit import audit_of
from tests.dashboards.conftest import FRESH
from tests.dashboards.jobs_at_work import PASSWORD, at_work, write_jobs
from tests.dashboards.served import Windows, serving, visiting
from tests.dashboards.test_pages_in_chromium import THEMES, keep_picture
from tests.gold_lake import write_gold_lake
from tests.reported_lake import HOSTILE, Reported, write_reports
from tests.sqlite_databases import address_in
from tests.unit.reports.test_digest_and_sending import RECEIVERS

AT_WORK_MS = 60_000
HANDLERS = "tests.dashboards.report_handlers"


@dataclass(frozen=True, slots=True)
class Place:
    """A dashboard with reports."""

    origin: str
    reported: Reported


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Where nobody is known, and some names want to be markup."""
    reported = write_reports(tmp_path_factory.mktemp("shown") / "lake", hostile=True)
    with serving(reported.shelf.lake, FRESH) as origin:
        yield Place(origin, reported)


@pytest.mark.parametrize("theme", THEMES)
def test_the_list_and_a_report_are_shown(windows: Windows, place: Place, theme: str) -> None:
    with visiting(windows, place.origin, theme=theme) as visit:
        visit.open("/reports")
        keep_picture(visit, "reports", theme, "hostile")
        assert "All 3 groups kept their objective." in visit.text
        assert visit.page.locator("#reports-list tbody tr").count() == 5

        visit.page.locator("#reports-list a").first.click()
        expect(visit.page).to_have_url(
            re.compile(re.escape(report_path(place.reported.second.name)))
        )
        framed = visit.page.frame_locator("#report-frame iframe")
        expect(framed.locator("h1")).to_have_text("01 March 2026 12:00 to 13:00 (UTC)")
        expect(visit.page.locator("#report-differences")).to_contain_text("kept → missed")
        keep_picture(visit, "report", theme, "hostile")
        assert visit.page.locator("html").get_attribute("data-theme") == theme
        assert HOSTILE.replace("\u202e", "\N{REPLACEMENT CHARACTER}") in visit.text
        assert visit.page.locator("img").count() == 0
        assert visit.faults == []


def test_the_frame_has_the_paper_and_none_of_our_rights(windows: Windows, place: Place) -> None:
    with visiting(windows, place.origin) as visit:
        visit.open(report_path(place.reported.second.name))
        frame = visit.page.locator("#report-frame iframe")
        assert frame.get_attribute("sandbox") == "allow-top-navigation-by-user-activation"
        assert frame.get_attribute("title") == (
            "The page of the report: 01 March 2026 12:00 to 13:00 (UTC)"
        )
        assert frame.evaluate("node => node.contentDocument") is None, "it is of another origin"
        assert visit.faults == []


def test_a_group_of_a_report_leads_to_its_page_in_that_period(
    windows: Windows, place: Place
) -> None:
    with visiting(windows, place.origin) as visit:
        visit.open(report_path(place.reported.second.name))
        visit.page.locator("#report-groups a", has_text="shipping").click()
        expect(visit.page.locator("h1")).to_have_text("shipping")
        assert "from=2026-03-01T12%3A00%3A00Z&to=2026-03-01T13%3A00%3A00Z" in visit.page.url
        assert visit.faults == []


def test_a_link_in_the_frame_leads_the_whole_window_to_the_group(
    windows: Windows, tmp_path: Path
) -> None:
    lake = write_gold_lake(tmp_path / "empty")
    with serving(lake, FRESH) as address:
        reported = write_reports(tmp_path / "lake", pages=address)
        # The same server shows the lake whose reports name its own address.
        with serving(reported.shelf.lake, FRESH) as origin, visiting(windows, origin) as visit:
            visit.open(report_path(reported.second.name))
            framed = visit.page.frame_locator("#report-frame iframe")
            framed.get_by_role("link", name="shipping").click()
            visit.page.wait_for_url(f"{address}/group/shipping?*")
            expect(visit.page.locator("h1")).to_have_text("shipping")


def test_a_report_is_compared_with_the_run_before_it_and_with_any_other(
    windows: Windows, place: Place
) -> None:
    with visiting(windows, place.origin) as visit:
        visit.open(report_path(place.reported.second.name))
        visit.page.locator("#report-runs").get_by_role("link", name="with this one").click()
        differences = visit.page.locator("#report-differences")
        expect(differences).to_contain_text("32 min → 50 min")
        expect(visit.page.locator("#report-against")).to_contain_text("run 1, to this one")
        assert f"against={place.reported.first.name.replace('/', '%2F')}" in visit.page.url

        visit.page.locator("#report-choices summary").click()
        visit.page.locator("#report-choices").get_by_role("link", name="11:00 to 12:00").click()
        expect(differences).to_contain_text("kept → missed")
        visit.page.go_back()
        expect(differences).to_contain_text("32 min → 50 min")
        visit.page.locator("#report-choices").get_by_role("link", name="the period before").click()
        expect(differences).to_contain_text("kept → missed")
        assert visit.faults == []


def test_the_list_is_searched_by_kind_and_text(windows: Windows, place: Place) -> None:
    with visiting(windows, place.origin) as visit:
        visit.open("/reports")
        visit.page.get_by_role("link", name="daily", exact=True).click()
        expect(visit.page.locator("#reports-list tbody tr")).to_have_count(1)
        visit.page.get_by_role("link", name="all", exact=True).click()
        expect(visit.page.locator("#reports-list tbody tr")).to_have_count(5)  # It has turned.
        visit.page.locator("#reports-search").fill("kept their")
        visit.page.locator("#reports-search").press("Enter")
        expect(visit.page.locator("#reports-list tbody tr")).to_have_count(2)
        expect(visit.page).to_have_url(re.compile(r"/reports\?q=kept\+their$"))
        assert visit.faults == []


@pytest.mark.parametrize("theme", THEMES)
def test_what_is_not_there_has_its_sentence(
    windows: Windows, place: Place, origins: dict[str, str], theme: str
) -> None:
    with visiting(windows, place.origin, theme=theme) as visit:
        visit.open(report_path(place.reported.gone.name), state="gone")
        keep_picture(visit, "report", theme, "gone")
        assert f"--again {place.reported.gone.name}" in visit.text
        visit.open("/reports/lag-daily/20200101T000000Z-86400s/1", state="missing")
        assert "There is no such report" in visit.text
        assert visit.faults == []
    with visiting(windows, origins["first-run"], theme=theme) as visit:
        visit.open("/reports", state="empty")
        keep_picture(visit, "reports", theme, "empty")
        assert "tidemark jobs install" in visit.text
        assert visit.faults == []


def test_somebody_signs_in_has_a_report_made_from_the_newest_opens_it_and_has_it_sent(
    windows: Windows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = write_reports(tmp_path / "lake")
    (tmp_path / "own.toml").write_text(f'lake = "{reported.shelf.lake.root}"\n')
    (tmp_path / "receivers.toml").write_text(RECEIVERS)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "own.toml"))
    database = write_jobs(tmp_path)
    kept = JobDatabase(address_in(tmp_path))
    path = report_path(reported.second.name)
    with (
        at_work(database, tmp_path / "executor", HANDLERS),
        serving(
            reported.shelf.lake,
            FRESH,
            visitors=Visitors(kept, is_local=True),
            sending=Sending(tmp_path / "receivers.toml"),
        ) as origin,
        visiting(windows, origin, fresh=True) as visit,
    ):
        page = visit.page
        visit.open(path)
        page.locator("#report-ways").get_by_role("link", name="Sign in").click()
        page.locator("#sign-in-name").fill("cy")
        page.locator("#sign-in-password").fill(PASSWORD)
        page.locator("#sign-in-do").click()
        page.wait_for_url(f"{origin}{path}")
        card = page.locator("#report-actions-card")

        card.get_by_role("button", name="Newest data").click()
        preview = card.locator("#report-preview")
        expect(preview).to_contain_text(f"again={reported.second.name} newest=yes")
        expect(preview).to_contain_text("Job 1, lag report, hourly, of tidemark runs once, now")
        card.get_by_role("button", name="Leave it").click()
        expect(preview).to_be_empty()
        assert [one.action for one in audit_of(database, "job:1")] == ["add"]

        card.get_by_role("button", name="Newest data").click()
        card.get_by_role("button", name="Do it").click()
        expect(card.locator("#report-said")).to_have_text("asked for: run 1 of job 1")
        run = card.locator("[data-run='1']")
        expect(run).to_have_attribute("data-run-state", "DONE", timeout=AT_WORK_MS)
        expect(run).to_contain_text("done: run 3 is there")
        assert run.get_by_role("link", name="run 1 of job 1").get_attribute("href") == (
            "/jobs/1?run=1"
        )
        keep_picture(visit, "report", "light", "data")
        expect(page.locator("#report-runs tbody tr")).to_have_count(3, timeout=AT_WORK_MS)
        run.get_by_role("link", name="open it").click()
        third = reported.second.name[:-1] + "3"
        page.wait_for_url(f"{origin}{report_path(third)}")
        expect(page.locator(".report-head .exact")).to_have_text(third)  # The page has turned.
        expect(page.locator("#report-runs")).to_contain_text("What came later changed")

        page.get_by_label("Send it to").fill("team")
        card.get_by_role("button", name="Send", exact=True).click()
        expect(preview).to_contain_text("team is sent the sentence")
        card.get_by_role("button", name="Do it").click()
        expect(card.locator("#report-said")).to_have_text("team is sent it")
        assert visit.faults == []
    done = [(one.author, one.action, one.subject) for one in audit_of(database)]
    assert done[0] == ("cy", "send", f"report:{reported.second.name[:-1]}3")
    assert ("cy", "run", "job:1") in done
    kept.close()
    database.close()
