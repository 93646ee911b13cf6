"""A critical check that failed withholds the verdicts that rest on it: on every page that shows
one, with check, moment and reason, and never in green."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from plotly.utils import PlotlyJSONEncoder

from dashboards.page_context import PageContext
from dashboards.pages import checks, group, overview
from dashboards.reads.data_docs import docs_file
from dashboards.reads.lake_data import LakeData
from pipelines.lake.lake import DATA_DOCS_FOLDER, Lake
from tests.dashboards.conftest import FRESH
from tests.dashboards.served import Windows, serving, visiting
from tests.failed_check import WORDS, fail
from tests.gold_lake import write_gold_lake
from tests.lake_story import EMITTER


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return write_gold_lake(tmp_path / "lake")


def shown(parts: Any) -> str:
    """Everything a page was given, as text."""
    return json.dumps(parts, cls=PlotlyJSONEncoder)


def context_of(lake: Lake, later: timedelta = timedelta(0)) -> PageContext:
    return PageContext(LakeData(lake), lambda: FRESH + later)


class TestPages:
    def test_the_overview_withholds_every_state_and_says_why(self, lake: Lake) -> None:
        before = shown(overview.content(context_of(lake), "?range=15m", "light"))
        assert "pill-ok" in before
        assert "withheld" not in before

        fail(lake, about_emitter=EMITTER)
        after = shown(overview.content(context_of(lake), "?range=15m", "light"))

        assert WORDS in after
        assert "pill-ok" not in after
        assert "pill-stalled" not in after
        assert "nothing stands still" not in after

    def test_a_failure_about_one_group_leaves_the_states_of_others(self, lake: Lake) -> None:
        fail(lake, about_emitter=EMITTER, about_group="shipping")

        of_shipping = shown(group.content(context_of(lake), "shipping", "?range=15m", "light"))
        of_billing = shown(group.content(context_of(lake), "billing", "?range=15m", "light"))

        assert WORDS in of_shipping
        assert "pill-ok" in of_billing
        assert "withheld" not in of_billing

    def test_the_overview_judges_the_rest_and_says_who_is_withheld(self, lake: Lake) -> None:
        before = shown(overview.content(context_of(lake), "?range=15m", "light"))
        fail(lake, about_emitter=EMITTER, about_group="billing")

        after = shown(overview.content(context_of(lake), "?range=15m", "light"))

        assert f"billing: {WORDS}" in after
        assert "pill-stalled" in after
        assert "1 group withheld" in after
        assert "1 group withheld" not in before

    def test_each_group_is_withheld_for_its_own_reason(self, lake: Lake) -> None:
        fail(
            lake,
            failures=[
                {"about_emitter": EMITTER, "about_group": name, "row_key": f"the row of {name}"}
                for name in ("shipping", "billing")
            ],
        )

        of_billing = shown(group.content(context_of(lake), "billing", "?range=15m", "light"))

        assert "the row of billing" in of_billing
        assert "the row of shipping" not in of_billing

    def test_causes_that_are_not_to_be_believed_are_shown_as_such(self, lake: Lake) -> None:
        fail(lake, table="lag_causes")

        assert WORDS in shown(group.content(context_of(lake), "shipping", "?range=15m", "light"))

    def test_another_emitters_failure_withholds_nothing_here(self, lake: Lake) -> None:
        fail(lake, about_emitter="DemoCluster/another/0")

        assert "pill-ok" in shown(group.content(context_of(lake), "billing", "?range=15m", "light"))

    def test_the_page_of_checks_shows_what_failed_and_its_rows(self, lake: Lake) -> None:
        fail(lake)

        found = shown(checks.content(context_of(lake)))

        assert "facts_gapless" in found
        assert "missing=4" in found
        assert "Data Docs" not in found

    def test_checks_grow_old_to_unknown(self, lake: Lake) -> None:
        fresh = shown(checks.content(context_of(lake)))
        old = shown(checks.content(context_of(lake, timedelta(minutes=15))))

        assert "pill-quality-healthy" in fresh
        assert "pill-quality-healthy" not in old
        assert "The last run is 15 min" in old


def test_a_browser_shows_what_is_withheld(windows: Windows, lake: Lake) -> None:
    fail(lake, about_emitter=EMITTER)
    with serving(lake, FRESH) as origin, visiting(windows, origin) as visit:
        visit.open("/")
        expect(visit.page.locator("#overview-notice")).to_contain_text(WORDS)
        expect(visit.page.locator(".pill-ok")).to_have_count(0)
        visit.open("/group/billing")
        expect(visit.page.locator("#group-notice")).to_contain_text(WORDS)
        assert visit.faults == []


class TestDataDocs:
    @pytest.fixture
    def docs(self, lake: Lake) -> Path:
        folder = Path(lake.root, DATA_DOCS_FOLDER)
        (folder / "static").mkdir(parents=True)
        (folder / "index.html").write_text("<h1>Data Docs</h1>")
        (folder / "static" / "one.css").write_text("h1 {}")
        (folder / "secret.json").write_text("{}")
        return folder

    def test_the_page_of_checks_leads_to_them(self, lake: Lake, docs: Path) -> None:
        assert docs.is_dir()
        assert "/data-docs/index.html" in shown(checks.content(context_of(lake)))

    @pytest.mark.parametrize("name", ["index.html", "static/one.css"])
    def test_their_files_are_found(self, lake: Lake, docs: Path, name: str) -> None:
        assert docs_file(lake, name) == docs / name

    @pytest.mark.parametrize(
        "name",
        [
            *("", "static", "missing.html", "secret.json", "../gold/consumer_lag", "a\0b"),
            *("../outside.html", "/etc/hostname", "linked.html", "..%2foutside.html"),
        ],
    )
    def test_nothing_else_is(self, lake: Lake, docs: Path, name: str) -> None:
        outside = docs.parent / "outside.html"
        outside.write_text("<h1>of somebody else</h1>")
        (docs / "linked.html").symlink_to(outside)

        assert docs_file(lake, name) is None

    def test_a_folder_that_leads_elsewhere_is_not_served(self, lake: Lake, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "index.html").write_text("<h1>of somebody else</h1>")
        Path(lake.root, DATA_DOCS_FOLDER).symlink_to(elsewhere)

        assert docs_file(lake, "index.html") is None

    def test_they_come_in_a_sandbox(self, windows: Windows, lake: Lake, docs: Path) -> None:
        (docs / "index.html").write_text("<h1>Data Docs</h1><script>document.title='ran'</script>")
        with serving(lake, FRESH) as origin, visiting(windows, origin) as visit:
            answer = visit.page.request.get(f"{origin}/data-docs/index.html")
            assert answer.status == 200
            assert "sandbox" in answer.headers["content-security-policy"]
            assert visit.page.request.get(f"{origin}/data-docs/secret.json").status == 404
            visit.page.goto(f"{origin}/data-docs/index.html")
            expect(visit.page.locator("h1")).to_have_text("Data Docs")
            assert visit.page.title() != "ran"
