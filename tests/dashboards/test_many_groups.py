"""The overview with many groups: the server pages, sorts and searches them, and a browser is never
given more than it can draw at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import plotly.utils
import pytest
from playwright.sync_api import Browser, Page, expect

from bench.analytics.overview import DRAWN
from bench.analytics.reading_browser import traced_load
from dashboards.page_context import PageContext
from dashboards.pages import overview, shell
from dashboards.pages.overview import GROUPS_PER_PAGE
from dashboards.reads.lake_data import LakeData
from pipelines.lake.lake import Lake
from tests.calls_made import calls_made
from tests.dashboards.served import Windows, serving, visiting
from tests.lake_of_days import Size, write_lake_of_days

SIZE = Size(days=1, groups=600, report_each_s=120, cycle_s=120)
NOW = SIZE.end + timedelta(seconds=5)
PAYLOAD_BYTES_MAX = 1_000_000
CALLS_MAX = 200_000
"""Measured: 146,000 to 147,000 with 25 groups, with 600 and with 1,200."""
TASK_CPU_MS_MAX = 1_000
"""Of the browser's main thread, in CPU time: what a reader's click waits for. The bar of 200 ms is
the bench's, which is measured on a quiet machine (130); all groups drawn at once took 23,000."""


@contextmanager
def traced(browser: Browser, page: Page) -> Iterator[list[float]]:
    """CPU milliseconds of every task that any thread of the browser carries out meanwhile."""
    tasks: list[float] = []
    browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
    try:
        yield tasks
    finally:
        events = json.loads(browser.stop_tracing())["traceEvents"]
        tasks += [
            one["tdur"] / 1000 for one in events if "RunTask" in one["name"] and "tdur" in one
        ]


def test_a_first_load_never_holds_up_its_reader(browser: Browser, origin: str) -> None:
    tasks_ms = traced_load(browser, origin, drawn=DRAWN, within_s=20, settled_s=0.5)
    assert len(tasks_ms) > 10
    assert max(tasks_ms) < TASK_CPU_MS_MAX


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_lake_of_days(tmp_path_factory.mktemp("many") / "lake", SIZE)


@pytest.fixture(scope="module")
def origin(many: Lake) -> Iterator[str]:
    with serving(many, NOW) as address:
        yield address


def test_a_page_of_groups_is_all_that_is_computed_and_sent(many: Lake) -> None:
    context = PageContext(LakeData(many), lambda: NOW)
    shell.beat(context, 0, None)
    content: list[Any] = []
    calls = calls_made(lambda: content.extend(overview.content(context, "?sort=name", "dark")))
    sent = json.dumps(content, cls=plotly.utils.PlotlyJSONEncoder)
    assert len(content[3]["data"][0]["y"]) == GROUPS_PER_PAGE
    assert len(sent) < PAYLOAD_BYTES_MAX
    assert "group-0024" in sent
    assert "group-0025" not in sent
    assert calls < CALLS_MAX


def test_the_second_reader_of_a_cycle_costs_nothing(many: Lake) -> None:
    now = [NOW]
    context = PageContext(LakeData(many), lambda: now[0])
    first = overview.content(context, "", "dark")
    now[0] += timedelta(seconds=7)
    assert overview.content(context, "", "dark")[2] is first[2], "the range ends with the data"


def test_groups_are_paged_sorted_and_searched_by_address(
    windows: Windows, browser: Browser, origin: str
) -> None:
    with visiting(windows, origin) as visit:
        visit.open("/?sort=name")
        rows = visit.page.locator("#overview-groups tbody tr")
        expect(rows).to_have_count(GROUPS_PER_PAGE)
        expect(rows.first).to_contain_text("group-0000")
        expect(visit.page.locator(".pager .here")).to_have_text("1 to 25 of 600")

        with traced(browser, visit.page) as tasks_ms:
            visit.page.get_by_role("link", name="next").click()
            expect(rows.first).to_contain_text("group-0025")
            expect(visit.page.locator("#overview-heatmap")).to_contain_text("group-0025")
        assert len(tasks_ms) > 10
        assert max(tasks_ms) < TASK_CPU_MS_MAX
        expect(visit.page).to_have_url(re.compile(r"sort=name&page=2"))

        visit.page.locator("#overview-search").fill("0-GROUP")
        visit.page.locator("#overview-search").press("Enter")
        expect(visit.page.locator("#overview-groups")).to_contain_text("No group's name holds")
        visit.page.locator("#overview-search").fill("GROUP-059")
        visit.page.locator("#overview-search").press("Enter")
        expect(rows).to_have_count(10)
        expect(visit.page.locator("#overview-found")).to_have_text("10 of 600 groups")

        visit.page.get_by_role("link", name="messages", exact=True).click()
        expect(visit.page).to_have_url(re.compile(r"sort=messages"))
        expect(visit.page.locator("#overview-groups th").nth(3)).to_have_text("messages ▾")
        behind = [
            int(text.replace(",", ""))
            for text in visit.page.locator(
                "#overview-groups tbody td:nth-child(4)"
            ).all_inner_texts()
        ]
        assert behind == sorted(behind, reverse=True)
        assert visit.faults == []
