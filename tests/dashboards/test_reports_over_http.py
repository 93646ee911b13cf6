"""Reports by their addresses: what is served, to whom, and what no address leads to.

Row G5: a page shows reports as they were made, and nothing else that lies on the machine.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from dashboards.page_context import PageContext
from dashboards.pages import report, reports
from dashboards.pages.report import runs_table
from dashboards.reads.lake_data import LakeData
from dashboards.reads.report_shelf import FILE_BYTES_MAX, ReportShelf, TooLarge
from dashboards.url_state import View, report_file_path, report_of, report_path
from dashboards.web.app import build
from dashboards.web.routes import TYPES
from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.reports.shelf import NUMBERS_FILE, PAGE_FILE, PAPER_FILE, Shelf
from tests.dashboards.conftest import FRESH
from tests.dashboards.test_alerts_page import shown
from tests.gold_lake import write_gold_lake
from tests.reported_lake import HOSTILE, HOUR, Reported, hour, write_reports

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    made = write_reports(tmp_path_factory.mktemp("reported") / "lake", hostile=True)
    (made.shelf.place(made.second) / "beside.txt").write_text("<html>root:")
    return made


@pytest.fixture
def own(tmp_path: Path) -> Reported:
    """The same, to be spoiled."""
    return write_reports(tmp_path / "lake")


@asynccontextmanager
async def asked(lake: Lake, host: str = "localhost") -> AsyncIterator[httpx.AsyncClient]:
    application: Any = build(lake, clock=lambda: FRESH)
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as web:
        yield web


def context_of(lake: Lake) -> PageContext:
    return PageContext(LakeData(lake), lambda: FRESH)


def outputs_of(context: PageContext, name: str, search: str = "") -> dict[str, Any]:
    found = report.content(context, report_path(name), search)
    return {element: value for (element, _), value in zip(report.OUTPUTS, found, strict=True)}


async def test_the_page_of_a_report_comes_in_a_sandbox_that_only_we_may_frame(
    reported: Reported,
) -> None:
    async with asked(reported.shelf.lake) as web:
        answer = await web.get(report_file_path(reported.second.name, PAGE_FILE))
        elsewhere = await web.get("/")
    assert answer.status_code == 200
    assert answer.text.startswith("<!DOCTYPE html>")
    (policy,) = answer.headers.get_list("content-security-policy")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["frame-ancestors"] == "'self'"
    assert rules["form-action"] == "'none'"
    assert rules["sandbox"].split() == ["allow-top-navigation-by-user-activation"]
    assert "script-src" not in rules
    assert answer.headers.get_list("x-frame-options") == ["SAMEORIGIN"]
    assert elsewhere.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in elsewhere.headers["content-security-policy"]


@pytest.mark.parametrize("name", [name for name in TYPES if name != PAGE_FILE])
async def test_other_files_are_kept_under_a_name_of_their_own(
    reported: Reported, name: str
) -> None:
    async with asked(reported.shelf.lake) as web:
        answer = await web.get(report_file_path(reported.second.name, name))
    assert answer.content == reported.shelf.file(reported.second, name).read_bytes()
    assert answer.headers["content-type"] == TYPES[name]
    disposition = answer.headers["content-disposition"]
    assert disposition.startswith('attachment; filename="lag-hourly-20260301T120000Z-3600s-2.')


@pytest.mark.parametrize(
    "path",
    [
        "lag-hourly/20260301T120000Z-3600s/3/report.html",
        "lag-hourly/20260301T120000Z-3600s/2/beside.txt",
        "lag-hourly/20260301T120000Z-3600s/2/../../../../etc/passwd",
        "lag-hourly/20260301T120000Z-3600s/..%2f..%2f/report.html",
        "lag-hourly/20260301T120000Z-3600s/2/..%2f1%2freport.html",
        "..%2f..%2f..%2fetc/passwd/1/report.html",
        "%2e%2e/%2e%2e/%2e%2e/report.html",
        "lag-hourly/20260301T120000Z-3600s/2%00/report.html",
        "lag-hourly/20260301T120000Z-3600s/02/report.html",
        "lag-hourly/" + quote("x' OR '1'='1", safe="") + "/1/report.html",
        "lag-hourly/20260301T120000Z-3600s/2/report.html/",
        "//etc/passwd",
    ],
)
async def test_an_address_leads_to_files_of_reports_and_nowhere_else(
    reported: Reported, path: str
) -> None:
    async with asked(reported.shelf.lake) as web:
        answer = await web.get("/report-files/" + path)
    assert answer.status_code in (307, 404), answer.text
    assert "root:" not in answer.text
    assert "<html" not in answer.text


async def test_what_is_no_longer_there_is_said_with_the_command_that_makes_it_again(
    reported: Reported,
) -> None:
    async with asked(reported.shelf.lake) as web:
        answer = await web.get(report_file_path(reported.gone.name, PAGE_FILE))
    assert answer.status_code == 404
    assert f"--again {reported.gone.name}" in answer.text


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_link_in_place_of_a_file_is_not_followed(own: Reported, place: str) -> None:
    secret = Path(own.shelf.lake.root).parent / "secret"
    secret.mkdir()
    (secret / PAGE_FILE).write_text("secret")
    folder = own.shelf.place(own.second)
    if place == "file":
        (folder / PAGE_FILE).unlink()
        (folder / PAGE_FILE).symlink_to(secret / PAGE_FILE)
    else:
        folder.rename(folder.with_name("9"))
        folder.symlink_to(secret)
    shelf = ReportShelf(own.shelf.lake)
    with pytest.raises(LakeError, match="is not followed"):
        shelf.file(own.second, PAGE_FILE)


async def test_a_file_beyond_all_measure_is_refused_and_its_place_is_said(own: Reported) -> None:
    page = own.shelf.place(own.second) / PAGE_FILE
    os.truncate(page, FILE_BYTES_MAX + 1)
    os.truncate(page.with_name(NUMBERS_FILE), FILE_BYTES_MAX + 1)
    async with asked(own.shelf.lake) as web:
        answer = await web.get(report_file_path(own.second.name, PAGE_FILE))
    assert answer.status_code == 413
    assert f"tidemark reports open {own.second.name}" in answer.text
    numbers = ReportShelf(own.shelf.lake).numbers(own.second)
    assert numbers.numbers is None
    assert "bytes, more than" in numbers.trouble
    with pytest.raises(TooLarge):
        ReportShelf(own.shelf.lake).file(own.second, PAGE_FILE)


async def test_reports_are_served_by_our_names_only_and_to_who_reads(reported: Reported) -> None:
    address = report_file_path(reported.second.name, PAGE_FILE)
    async with asked(reported.shelf.lake, "evil.example") as web:
        assert (await web.get(address)).status_code == 421
    async with asked(reported.shelf.lake) as web:
        assert (await web.post(address, json={}, headers=JSON)).status_code == 405
        assert (await web.head(address)).status_code in (200, 405)


async def test_the_addresses_of_pages_are_answered_with_the_application(
    reported: Reported,
) -> None:
    async with asked(reported.shelf.lake) as web:
        for path in ("/reports", report_path(reported.second.name)):
            answer = await web.get(path)
            assert (answer.status_code, "_dash-config" in answer.text) == (200, True), path
        for path in ("/reports/", "/reports/lag-hourly", "/reports/../x/1"):
            assert (await web.get(path)).status_code == 404, path
    assert report_of(report_path(reported.second.name)) == reported.second.name
    assert report_of("/reports/lag-daily/../../1") is None


def test_the_list_has_the_newest_first_and_says_what_each_was_like(reported: Reported) -> None:
    notice, css, _, note, listed, pager = reports.content(context_of(reported.shelf.lake), "")
    assert (notice, css, pager) == (None, "reports-body", None)
    assert note == "5 reports"
    text = shown(listed)
    order = [text.index(run.name) for run in (reported.second, reported.first, reported.previous)]
    assert order == sorted(order)
    for said in ("3 kept", "2 missed", "▼ 5 worse", "no PDF", "gone: kept for 14 days"):
        assert said in text, said
    assert reported.second.revised in text


def test_a_report_that_was_rebuilt_says_so_in_the_lists(own: Reported, tmp_path: Path) -> None:
    rebuilt = replace(own.second, number=3, rebuilt="Rebuilt from the numbers kept on a day.")
    made = tmp_path / "made"
    made.mkdir()
    own.shelf.add(rebuilt, made)
    assert shown(reports.content(context_of(own.shelf.lake), "")[4]).count(rebuilt.rebuilt) == 1
    about_its_period = runs_table(own.second, [rebuilt, own.second, own.first], View())
    assert shown(about_its_period).count(rebuilt.rebuilt) == 1


@pytest.mark.parametrize(
    ("search", "note"),
    [
        ("?period=daily", "1 report"),
        ("?period=weekly", "0 reports"),
        ("?period=yearly", "5 reports"),
        ("?q=All+3+groups", "2 reports"),
        ("?q=%25", "3 reports"),
        ("?q=nothing+is+like+this", "0 reports"),
        ("?page=7", "5 reports; there is no page 7, this is the last"),
        ("?cluster=Prod", "5 reports; each is about the whole lake"),
    ],
)
def test_the_list_is_searched_and_filtered(reported: Reported, search: str, note: str) -> None:
    found = reports.content(context_of(reported.shelf.lake), search)
    assert found[3] == note
    assert ("No report is like that." in shown(found[4])) == note.startswith("0")


def test_a_lake_without_reports_says_which_two_commands_make_one(nothing: Lake) -> None:
    notice, css, *_ = reports.content(context_of(nothing), "")
    assert css == "reports-body hidden"
    assert "tidemark reports run --lake" in shown(notice)
    assert "tidemark jobs install" in shown(notice)


def test_a_table_that_is_damaged_is_named_on_these_pages_and_no_others(own: Reported) -> None:
    lake = own.shelf.lake
    for file in Path(lake.gold("reports")).rglob("*.parquet"):
        file.unlink()
    assert "a data file is missing" in shown(reports.content(context_of(lake), "")[0])
    assert "a data file is missing" in shown(
        outputs_of(context_of(lake), own.second.name)["report-notice"]
    )
    for file in Path(lake.gold("reports"), "_delta_log").iterdir():
        file.write_text("torn")
    assert LakeData(lake).reports_version() != ""
    assert context_of(lake).look("").pulse.moment is not None


def test_a_report_is_announced_with_what_differs_from_the_period_before(reported: Reported) -> None:
    page = outputs_of(context_of(reported.shelf.lake), reported.second.name)
    assert page["report-title"] == "01 March 2026 12:00 to 13:00 (UTC)"
    assert page["report-headline"] == reported.second.headline
    assert page["report-against"].startswith("from 01 March 2026 11:00 to 12:00 (UTC), run 1")
    differences = shown(page["report-differences-tree"])
    assert "kept → missed" in differences
    assert "/group/shipping?from=2026-03-01T12%3A00%3A00Z&to=2026-03-01T13%3A00%3A00Z" in (
        differences
    )
    assert HOSTILE.replace("\u202e", "\N{REPLACEMENT CHARACTER}") in shown(
        page["report-groups-tree"]
    )
    runs = shown(page["report-runs-tree"])
    assert (page["report-runs-card"], "run 2, this one" in runs) == ("card", True)


def test_two_runs_of_a_period_are_held_against_each_other(reported: Reported) -> None:
    page = outputs_of(
        context_of(reported.shelf.lake), reported.second.name, f"?against={reported.first.name}"
    )
    text = shown(page["report-differences-tree"])
    assert "frozen head" in text
    assert "32 min → 50 min" in text
    assert "kept → missed" not in text
    same = outputs_of(
        context_of(reported.shelf.lake), reported.second.name, f"?against={reported.second.name}"
    )
    assert "They have the same numbers." in shown(same["report-differences-tree"])
    strange = outputs_of(
        context_of(reported.shelf.lake), reported.second.name, "?against=lag-x/../../1"
    )
    assert strange["report-against"].startswith("from 01 March 2026 11:00")


def test_without_a_report_of_the_period_before_its_command_is_said(reported: Reported) -> None:
    page = outputs_of(context_of(reported.shelf.lake), reported.previous.name)
    text = shown(page["report-differences-tree"])
    assert "--period hourly --at 2026-03-01T11:00:00Z --zone UTC" in text


def test_without_files_a_report_still_shows_what_its_row_knows(reported: Reported) -> None:
    page = outputs_of(context_of(reported.shelf.lake), reported.gone.name)
    assert f"--again {reported.gone.name}" in shown(page["report-frame"])
    assert "its numbers are not there" in shown(page["report-facts"])
    assert "not there any more" in shown(page["report-files"])


def test_a_name_that_none_has_is_refused(reported: Reported) -> None:
    page = outputs_of(context_of(reported.shelf.lake), "lag-daily/20200101T000000Z-86400s/1")
    assert page["report-body"] == "report-body hidden"
    assert "There is no such report" in shown(page["report-notice"])


def test_of_one_cluster_only_its_groups_are_reported(reported: Reported) -> None:
    page = outputs_of(context_of(reported.shelf.lake), reported.second.name, "?cluster=Elsewhere")
    assert "No group of this cluster is in it." in shown(page["report-groups-tree"])
    assert page["report-groups-note"] == "0 groups of cluster Elsewhere"


def test_a_row_that_is_none_of_ours_is_shown_as_text_and_leads_nowhere(tmp_path: Path) -> None:
    shelf = Shelf(write_gold_lake(tmp_path / "lake"))
    made = tmp_path / "made"
    made.mkdir()
    (made / PAGE_FILE).write_text("x")
    strange = replace(
        _run(), report="../../etc", window="<img src=x onerror=alert(1)>", period="yearly"
    )
    shelf.folder = tmp_path / "deep" / "er" / "folder"
    shelf.add(strange, made)
    listed = reports.content(context_of(shelf.lake), "")[4]
    assert "Its row is none of ours." in shown(listed)
    assert "href" not in shown(listed)
    with pytest.raises(LakeError, match="no files here"):
        ReportShelf(shelf.lake, shelf.folder).file(strange, PAGE_FILE)


def test_numbers_that_are_none_are_no_page_of_faults(own: Reported) -> None:
    own.shelf.file(own.second, NUMBERS_FILE).write_bytes(b'{"format": 99}')
    page = outputs_of(context_of(own.shelf.lake), own.second.name)
    assert "cannot be read" in shown(page["report-differences-tree"])
    assert page["report-body"] == "report-body"
    assert own.shelf.file(own.second, PAPER_FILE).exists()


def _run() -> Any:
    from tests.reported_lake import run_of  # noqa: PLC0415

    return run_of(HOUR, hour())
