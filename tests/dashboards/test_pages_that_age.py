"""A page grows old by itself: with its server gone it says so, and what it shows turns unknown.

The servers' clocks stand still, so every second that passes on a page is the browser's own.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from datetime import timedelta

import pytest
from playwright.sync_api import FloatRect, expect

from pipelines.lake.lake import Lake
from tests.dashboards.conftest import FRESH
from tests.dashboards.served import Visit, Windows, serving, visiting
from tests.gold_lake import END

WITHIN_MS = 30_000
NEARLY_STALE = END + timedelta(seconds=24)
"""Six seconds before the data is too old to say anything about now."""
CHECKS_NEARLY_OLD = END + timedelta(minutes=14, seconds=52)
"""The checks ran five seconds before the end of data, and count for 15 minutes."""


def expect_chip(visit: Visit, level: str, text: str) -> None:
    shown = visit.page.locator("#freshness-chip")
    expect(shown).to_have_attribute("data-freshness", level, timeout=WITHIN_MS)
    expect(shown).to_contain_text(re.compile(text))


@pytest.mark.parametrize("path", ["/", "/group/shipping"])
def test_with_the_server_gone_a_page_says_since_when_and_nothing_stays_green(
    windows: Windows, story: Lake, path: str
) -> None:
    with ExitStack() as server:
        origin = server.enter_context(serving(story, NEARLY_STALE))
        with visiting(windows, origin) as visit:
            visit.open(path)
            expect_chip(visit, "late", r"judged to 12:15:00 UTC \(2\d s ago\)")
            banner = visit.page.locator(".banner")
            pill = visit.page.locator(".pill-state.pill-stalled").first
            expect(banner).to_have_count(0)
            before = pill.evaluate("one => getComputedStyle(one).color")

            server.close()

            expect(banner.first).to_contain_text(
                re.compile(r"Disconnected since \d\d:\d\d:\d\d UTC"), timeout=WITHIN_MS
            )
            expect_chip(visit, "stale", "UNKNOWN now: judged to 12:15:00 UTC")
            expect(banner.nth(1)).to_contain_text("the states below are of then, and unknown now")
            said = pill.evaluate("one => getComputedStyle(one, '::before').content")
            assert said == '"unknown, was"'
            assert pill.evaluate("one => getComputedStyle(one).color") != before
            expect(visit.page.locator("#health-chip")).to_have_text(re.compile("checks unknown"))

            with serving(story, FRESH, port=int(origin.rsplit(":", 1)[1])):
                expect(banner).to_have_count(0, timeout=WITHIN_MS)
                expect_chip(visit, "fresh", r"judged to 12:15:00 UTC \((8|9)\.\d s ago\)")
                expect(pill).to_have_css("color", before)


def test_figures_grow_older_each_second_also_when_nothing_is_refreshed(
    windows: Windows, story: Lake
) -> None:
    with serving(story, FRESH) as origin, visiting(windows, origin) as visit:
        visit.open("/?live=off")
        for age in (r"9\.\d s", "1[0-9] s", "1[2-9] s"):
            expect(visit.page.locator("#freshness-chip")).to_contain_text(
                re.compile(rf"\({age} ago\)"), timeout=WITHIN_MS
            )
        expect(visit.page.locator(".banner")).to_have_count(0)
        assert visit.faults == []


def test_checks_grow_old_to_unknown_with_the_reason(windows: Windows, story: Lake) -> None:
    with serving(story, CHECKS_NEARLY_OLD) as origin, visiting(windows, origin) as visit:
        visit.open("/checks?live=off")
        health = visit.page.locator("#health-chip")
        expect(health).to_have_text(re.compile("checks warning"))
        expect(health).to_have_text(
            re.compile("checks unknown: the last run is 15 min"), timeout=WITHIN_MS
        )
        assert "1 of 8 checks fails: offsets_known" in str(health.get_attribute("title"))
        assert visit.faults == []


def test_a_range_of_the_past_is_no_statement_about_now(windows: Windows, story: Lake) -> None:
    with serving(story, END + timedelta(hours=1)) as origin, visiting(windows, origin) as visit:
        visit.open("/?from=2026-03-01T12:05:00Z&to=2026-03-01T12:10:00Z")
        expect_chip(visit, "stale", "UNKNOWN now: judged to 12:15:00 UTC")
        expect(visit.page.locator(".banner")).to_have_count(0)
        assert visit.page.locator("html").get_attribute("data-aged") == ""
        assert "shipping" in visit.text
        assert visit.faults == []


LONG = "; ".join(f"nothing comes from DemoCluster/broker-{name}/0 any more" for name in "abcd")


@pytest.mark.parametrize("width_px", [1280, 1440, 1920])
def test_however_much_the_header_says_its_button_stays_and_nothing_leaves_the_window(
    windows: Windows, story: Lake, width_px: int
) -> None:
    late = END + timedelta(seconds=100)
    with serving(story, late) as origin, visiting(windows, origin) as visit:
        visit.page.set_viewport_size({"width": width_px, "height": 900})
        visit.open("/?live=off")
        expect_chip(visit, "stale", "UNKNOWN now: judged to 12:15:00 UTC")
        button = box_of(visit, "#theme-toggle")
        assert abs(middle(button) - middle(box_of(visit, ".brand"))) < 2, "they are on one line"
        assert width_px - button["x"] - button["width"] == pytest.approx(20, abs=1)
        if width_px >= 1440:
            assert box_of(visit, ".top")["height"] < 60, "one line is enough for what it says"

        visit.page.evaluate(SILENT, LONG)
        expect(visit.page.locator("#freshness-chip")).to_contain_text("broker-d/0 any more")
        chip = box_of(visit, "#freshness-chip")
        assert box_of(visit, "#theme-toggle") == button
        assert chip["x"] >= 0
        assert chip["x"] + chip["width"] <= width_px
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width_px
        assert visit.faults == []


SILENT = """silent => {
    const heard = {beat: 1, now: "2026-03-01T12:16:40Z", observed_at: "2026-03-01T12:15:00Z",
        lost_after_ms: 1e6, late_after_ms: 1e4, stale_after_ms: 3e4, silent: [silent]};
    window.dash_clientside.set_props("heard", {data: heard});
}"""


RECTANGLE = """element => {
    const box = document.querySelector(element)?.getBoundingClientRect();
    return box?.width && {x: box.x, y: box.y, width: box.width, height: box.height};
}"""


def box_of(visit: Visit, element: str) -> FloatRect:
    """Where an element stands; it may be drawn anew by a beat at any time, so it is waited for."""
    box = visit.page.wait_for_function(RECTANGLE, arg=element, timeout=WITHIN_MS)
    rectangle: FloatRect = box.json_value()
    return rectangle


def middle(box: FloatRect) -> float:
    return box["y"] + box["height"] / 2
