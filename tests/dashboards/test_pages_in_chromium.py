"""Every page, in both themes, in every state, in a real browser: nothing fails, nothing leaves
the origin, and the reader sees what the lake says.

TIDEMARK_SCREENSHOTS names the folder in which to keep the three pictures of the README,
TIDEMARK_ALL_SCREENSHOTS one for all of them; without either, nothing is written.
"""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import expect

from dashboards.url_state import around, group_path
from pipelines.lake.lake import Lake, whole_table
from pipelines.reading.catalogue import CONSUMER_LAG
from tests.dashboards.conftest import FRESH, HOSTILE
from tests.dashboards.served import Visit, Windows, serving, visiting
from tests.gold_lake import END, START, write_gold_lake
from tests.lake_story import EMITTER, append_rows, complete_cycle

THEMES = ("light", "dark")
EMPTY = around(START - timedelta(days=2))
PAGES = {
    "overview": "/",
    "group": "/group/shipping",
    "topic": "/topic/orders",
    "storage": "/storage",
    "checks": "/checks",
}
WITHOUT_FIGURE = ("topic", "checks")


README_PICTURES = ("overview", "group", "report")


def keep_picture(visit: Visit, name: str, theme: str, state: str) -> None:
    for_readme = state == "data" and theme == "light" and name in README_PICTURES
    if for_readme and (folder := os.environ.get("TIDEMARK_SCREENSHOTS")):
        visit.page.screenshot(path=Path(folder) / f"{name}.png")
    if folder := os.environ.get("TIDEMARK_ALL_SCREENSHOTS"):
        visit.page.screenshot(path=Path(folder) / f"{name}-{state}-{theme}.png")


EVERY = [(page, theme) for page in PAGES for theme in THEMES]
# A state has no colours of its own: the suite shows each on half of the pages in either theme.
IN_ONE_THEME = [
    pytest.param(page, theme, marks=[pytest.mark.slow] if (at + at // 2) % 2 else [])
    for at, (page, theme) in enumerate(EVERY)
]
WITH_A_RANGE = [one for one in IN_ONE_THEME if one.values[0] != "checks"]


class TestEveryPage:
    @pytest.mark.parametrize(("page", "theme"), EVERY)
    def test_shows_data(
        self, windows: Windows, origins: dict[str, str], page: str, theme: str
    ) -> None:
        with visiting(windows, origins["data"], theme=theme) as visit:
            visit.open(PAGES[page])
            keep_picture(visit, page, theme, "data")

            expected = {
                "overview": ("6 min 34 s", "is stuck on queue 2 of orders", "3,188"),
                "group": ("offset unchanged", "would repeat 191 finished messages", "still"),
                "topic": ("7 commits in 30 s, offset unchanged", "shipping", "dead-lettered"),
                "storage": ("10.0.0.33:10912 lacks 4.3 MiB", "965 messages wait", "replica joined"),
                "checks": ("offsets_known", "committed unknown: NO_OFFSET"),
            }[page]
            for sentence in expected:
                assert sentence in visit.text
            assert visit.page.locator("html").get_attribute("data-theme") == theme
            chip = visit.page.locator("#freshness-chip")
            assert chip.get_attribute("data-observed-at") == END.isoformat()
            assert chip.get_attribute("data-freshness") == "fresh"
            assert visit.faults == []

    @pytest.mark.parametrize(("page", "theme"), IN_ONE_THEME)
    def test_says_how_to_begin_when_nothing_was_ever_computed(
        self, windows: Windows, origins: dict[str, str], page: str, theme: str, nothing: Lake
    ) -> None:
        with visiting(windows, origins["first-run"], theme=theme) as visit:
            visit.open(PAGES[page], state="first-run")
            keep_picture(visit, page, theme, "first-run")

            assert "make demo" in visit.text
            assert f"tidemark pipeline run --lake {nothing.root}" in visit.text
            assert visit.faults == []

    @pytest.mark.parametrize(("page", "theme"), IN_ONE_THEME)
    def test_says_since_when_nothing_came(
        self, windows: Windows, origins: dict[str, str], page: str, theme: str
    ) -> None:
        with visiting(windows, origins["stale"], theme=theme) as visit:
            visit.open(PAGES[page])
            keep_picture(visit, page, theme, "stale")

            chip = visit.page.locator("#freshness-chip")
            assert chip.get_attribute("data-freshness") == "stale"
            expect(chip).to_contain_text(re.compile(r"UNKNOWN now: judged to 12:15:00 UTC \(6 min"))
            if page not in WITHOUT_FIGURE:
                graph = visit.page.locator(".graph").first
                expect(graph).to_contain_text("no data since 12:15:00")
                # The edge is hatched, not only coloured.
                assert graph.locator("pattern").count() > 0
            assert visit.faults == []

    @pytest.mark.parametrize(("page", "theme"), IN_ONE_THEME)
    def test_shows_hostile_names_as_text(
        self, windows: Windows, origins: dict[str, str], page: str, theme: str
    ) -> None:
        path = group_path(HOSTILE.billing) if page == "group" else PAGES[page]
        with visiting(windows, origins["hostile"], theme=theme) as visit:
            visit.open(path)
            keep_picture(visit, page, theme, "hostile")

            expected = {
                "overview": HOSTILE.shipping,
                "group": HOSTILE.reason,
                "topic": HOSTILE.message_id,
                "storage": HOSTILE.replica,
            }.get(page, "javascript:")
            assert expected in visit.text
            assert (
                visit.page.locator(
                    "img[src='x'], a[href^='javascript'], script[src*='evil']"
                ).count()
                == 0
            )
            assert visit.faults == []


@pytest.mark.parametrize(("page", "theme"), WITH_A_RANGE)
def test_an_empty_range_offers_the_way_to_data(
    windows: Windows, origins: dict[str, str], page: str, theme: str
) -> None:
    with visiting(windows, origins["data"], theme=theme) as visit:
        visit.open(PAGES[page] + EMPTY, state="empty")
        keep_picture(visit, page, theme, "empty")
        assert "The newest data is of 2026-03-01 12:15:00 UTC" in visit.text

        visit.page.get_by_role("link", name="Go there").click()

        shown = ".graph .main-svg" if page not in WITHOUT_FIGURE else "#topic-summary .facts"
        expect(visit.page.locator(shown).first).to_be_visible()
        assert "12:10:00 to 12:20:00" in visit.text
        assert visit.faults == []


@pytest.mark.parametrize("page", ["overview", "group", "topic"])
def test_a_torn_table_is_named_and_the_frame_lives_on(
    windows: Windows, origins: dict[str, str], page: str
) -> None:
    with visiting(windows, origins["torn"]) as visit:
        visit.open(PAGES[page], state="error")
        keep_picture(visit, page, "light", "error")

        assert "consumer_lag" in visit.text
        assert "missing or damaged" in visit.text
        assert visit.page.locator("#freshness-chip").get_attribute("data-freshness") == "error"
        assert visit.faults == []


def test_every_number_of_the_strip_leads_to_what_it_counts(
    windows: Windows, origins: dict[str, str]
) -> None:
    with visiting(windows, origins["data"]) as visit:
        visit.open("/")
        tiles = visit.page.locator(".tile")
        expect(tiles).to_have_count(8)
        assert [tiles.nth(at).get_attribute("href") for at in range(tiles.count())] == [
            "#overview-groups-card",
            "/group/shipping",
            "#overview-groups-card",
            "/group/shipping#group-stalls-card",
            "/group/shipping#group-duplicates-card",
            "/group/ledger#group-duplicates-card",
            "/group/billing#group-dead-card",
            "/checks",
        ]

        tiles.nth(1).click()
        expect(visit.page.locator("h1")).to_have_text("shipping")
        visit.page.go_back()
        expect(visit.page.locator(".strip")).to_be_visible()
        assert visit.faults == []


def test_a_cell_of_the_heatmap_opens_its_group_at_that_moment(
    windows: Windows, origins: dict[str, str]
) -> None:
    with visiting(windows, origins["data"]) as visit:
        visit.open("/")
        box = visit.page.locator("#overview-heatmap .nsewdrag").first.bounding_box()
        assert box is not None
        visit.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 6)
        visit.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 6)

        expect(visit.page.locator("h1")).to_have_text("shipping")
        expect(visit.page).to_have_url(
            re.compile(r"/group/shipping\?from=2026-03-01T12%3A0\d.*&to=")
        )
        expect(visit.page.locator("#group-timeline .main-svg").first).to_be_visible()
        assert visit.faults == []


def test_range_and_refresh_are_the_address(windows: Windows, origins: dict[str, str]) -> None:
    with visiting(windows, origins["data"]) as visit:
        visit.open("/group/ledger?range=5m")
        assert "No message of this group was at risk" not in visit.text
        assert "consumer crash" not in visit.text

        visit.page.get_by_role("link", name="1h", exact=True).click()
        expect(visit.page.locator("#group-duplicates")).to_contain_text("consumer crash")
        visit.page.get_by_role("link", name="off", exact=True).click()

        expect(visit.page).to_have_url(re.compile(r"/group/ledger\?range=1h&live=off$"))
        expect(visit.page.locator(".choice.here")).to_have_text(["1h", "off"])
        assert visit.faults == []


def test_offsets_are_exact_and_unknown_says_why(windows: Windows, origins: dict[str, str]) -> None:
    with visiting(windows, origins["data"]) as visit:
        visit.open("/group/ledger")
        grid = visit.page.locator("#group-queues")

        cells = grid.locator('.ag-cell[col-id="committed"]')
        expect(cells).to_have_count(5)  # The grid draws its rows after the page's data came.
        committed = cells.all_inner_texts()
        assert committed[0] == "unknown"
        assert all(int(offset) > 2**53 for offset in committed[1:])
        assert len({int(offset) for offset in committed[1:]}) == 4
        expect(grid.locator('.ag-cell[col-id="provenance"]').first).to_have_text(
            "unknown: no offset was ever committed"
        )
        assert visit.faults == []


def test_the_theme_is_kept_and_reaches_the_figures(
    windows: Windows, origins: dict[str, str]
) -> None:
    with visiting(windows, origins["data"], theme="light", fresh=True) as visit:
        visit.open("/group/shipping")
        tick = visit.page.locator("#group-timeline .ytick text").first
        before = tick.evaluate("node => getComputedStyle(node).fill")

        visit.page.get_by_role("button", name="Switch light and dark theme").click()

        expect(visit.page.locator("html")).to_have_attribute("data-theme", "dark")
        expect(tick).not_to_have_css("fill", before)
        visit.page.reload()
        expect(visit.page.locator("html")).to_have_attribute("data-theme", "dark")
        grid = visit.page.locator("#group-queues .ag-root-wrapper")
        expect(grid).to_have_css("background-color", "rgb(21, 28, 38)")
        assert visit.faults == []


def test_the_page_follows_the_lake_by_itself(windows: Windows, tmp_path: Path) -> None:
    lake = write_gold_lake(tmp_path / "lake")
    with serving(lake, FRESH) as origin, visiting(windows, origin) as visit:
        visit.open("/")
        rows = whole_table(lake.table(lake.gold("consumer_lag"))).to_pylist()
        newest = max(rows, key=lambda row: row["observed_at"])
        later = {"group": "newcomer", "observed_at": END + timedelta(seconds=3), "seq": 10**9}
        append_rows(
            lake.gold("consumer_lag"), CONSUMER_LAG.columns, [{**newest, **later}], "observed_date"
        )
        complete_cycle(lake, {EMITTER: (END + timedelta(seconds=3), 10**9)})

        expect(visit.page.locator("#overview-heatmap")).to_contain_text("newcomer", timeout=15_000)
        chip = visit.page.locator("#freshness-chip")
        expect(chip).to_have_attribute("data-observed-at", (END + timedelta(seconds=3)).isoformat())
        assert visit.faults == []
