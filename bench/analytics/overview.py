"""Benchmark `overview`: cost of the first view of 1,000 groups with four queues each.

The server's share is the CPU time of its process for the content of the page, with and without the
cache of an earlier view. The process has imported the dashboard, as a server that is up has, and
looked at the lake once, as each refresh does; nothing of a page was made in it before. The
browser's share is the longest task of its main thread while the page loads and draws itself.
Scaled, there are fewer groups.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from statistics import median

from playwright.sync_api import Error as BrowserError
from playwright.sync_api import sync_playwright
from plotly.io.json import to_json_plotly

from bench.analytics.figures import Figure
from bench.analytics.live import CHROMIUM_ARGUMENTS
from bench.analytics.reading_browser import traced_load
from bench.bars import OVERVIEW_CPU, OVERVIEW_TASK
from dashboards.page_context import PageContext
from dashboards.pages import overview, shell
from dashboards.reads.lake_data import LakeData
from pipelines.lake.lake import Lake
from provision import chromium
from tests.dashboards.served import serving
from tests.lake_of_days import Size, write_lake_of_days

GROUPS = 1_000
REPORT_EACH_S = 120
SHARED = 20
"""Looks at a page that was made before."""
LOADS = 3
DRAWN_WITHIN_S = 30
SETTLED_S = 1.5
WINDOW = "--window-size=1440,900"
DRAWN = (
    "document.querySelector('#overview-groups tbody tr') && "
    "document.querySelector('.graph .main-svg')"
)


def measure(folder: Path, scale: float) -> list[Figure]:
    """Of the server, and of the browser."""
    groups = max(25, round(GROUPS * scale))
    size = Size(days=1, groups=groups, report_each_s=REPORT_EACH_S, cycle_s=REPORT_EACH_S)
    lake = write_lake_of_days(folder / "lake", size)
    return [*_server(lake, size), _browser(lake, size)]


def _server(lake: Lake, size: Size) -> list[Figure]:
    now = [size.end + timedelta(seconds=5)]
    context = PageContext(LakeData(lake), lambda: now[0])
    shell.beat(context, 0, None)
    first_s, sent_bytes = _looked(context)
    next_s = []
    for _ in range(SHARED):
        now[0] += timedelta(seconds=2)
        next_s.append(_looked(context)[0])
    what = f"overview, {size.groups:,} groups on {size.queues} queues: server's share"
    return [
        Figure(
            f"{what}, first look of a cycle",
            first_s,
            "CPU s",
            OVERVIEW_CPU,
            cpu_s=first_s,
            note=f"{sent_bytes / 1024:.0f} KiB",
        ),
        Figure(
            f"{what}, a further look in the same cycle",
            median(next_s),
            "CPU s",
            OVERVIEW_CPU,
            cpu_s=median(next_s),
        ),
    ]


def _looked(context: PageContext) -> tuple[float, int]:
    """CPU seconds of the page's content, put into words, and its size."""
    begun_s = time.process_time()
    content = overview.content(context, "", "dark")
    sent = to_json_plotly(content)  # As Dash does it.
    return time.process_time() - begun_s, len(sent)


def _browser(lake: Lake, size: Size) -> Figure:
    what = f"overview, {size.groups:,} groups: longest task of the browser's main thread, loading"
    executable = chromium.find()
    if executable is None:
        return Figure(what, None, "ms", OVERVIEW_TASK, note=chromium.MISSING)
    begun_s = time.perf_counter()
    try:
        with serving(lake, size.end + timedelta(seconds=5)) as address:
            loads = [_load(executable, address) for _ in range(LOADS)]
    except (BrowserError, TimeoutError) as error:
        return Figure(what, None, "ms", OVERVIEW_TASK, note=str(error).splitlines()[0])
    longest = sorted(max(tasks) for tasks in loads)
    return Figure(
        what,
        longest[LOADS // 2],
        "ms",
        OVERVIEW_TASK,
        wall_s=(time.perf_counter() - begun_s) / LOADS,
        cpu_s=sum(sum(tasks) for tasks in loads) / LOADS / 1000,
        note=f"CPU time; the middle one of {LOADS} loads by a new browser, not debugged",
    )


def _load(executable: str, address: str) -> list[float]:
    """CPU milliseconds of each task of the main thread, from nothing to a page that is drawn."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=[*CHROMIUM_ARGUMENTS, WINDOW]
        )
        try:
            return traced_load(
                browser, address, drawn=DRAWN, within_s=DRAWN_WITHIN_S, settled_s=SETTLED_S
            )
        finally:
            browser.close()
