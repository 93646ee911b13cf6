"""A topic's page as a reader meets it: reached by a link, searched, and left again.

What it says is counted in `test_topic_page`; here a browser clicks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from dashboards.url_state import topic_path
from pipelines.lake.lake import Lake
from tests.dashboards.conftest import HOSTILE
from tests.dashboards.served import Visit, Windows, serving, visiting
from tests.dashboards.test_pages_in_chromium import keep_picture
from tests.dashboards.topic_lake import NOW, TOPIC, UNTRACED, write_topic_lake
from tests.lake_story import Cast

MESSAGE = Cast().message_id


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_topic_lake(tmp_path_factory.mktemp("topic") / "lake")


@pytest.fixture(scope="module")
def origin(lake: Lake) -> Iterator[str]:
    with serving(lake, NOW) as address:
        yield address


def search_for(visit: Visit, text: str) -> None:
    visit.page.get_by_label("message id, unique id or key").fill(text)
    visit.page.get_by_role("button", name="Find").click()


def test_a_link_leads_here_and_a_message_shows_its_way(windows: Windows, origin: str) -> None:
    with visiting(windows, origin) as visit:
        visit.open("/")
        visit.page.locator("#overview-changes").get_by_role("link", name="orders").first.click()
        expect(visit.page.locator("h1")).to_have_text("orders")
        groups = visit.page.locator("#topic-groups tbody tr")
        expect(groups.first).to_contain_text("7 commits in 30 s, offset unchanged")
        expect(visit.page.locator("#topic-queues tbody tr")).to_have_count(4)

        search_for(visit, MESSAGE)
        steps = visit.page.locator("#topic-trace tbody tr")
        expect(steps.last).to_contain_text("dead-lettered")
        expect(steps.first).to_contain_text("stored")
        expect(visit.page).to_have_url(re.compile(rf"/topic/orders\?.*q={MESSAGE}"))
        keep_picture(visit, "topic", "light", "trace")

        visit.page.go_back()
        expect(steps).to_have_count(0)
        visit.page.locator("#topic-failed").get_by_role("link", name=MESSAGE).click()
        expect(steps.last).to_contain_text("dead-lettered")
        expect(visit.page.locator("#topic-search")).to_have_value(MESSAGE)

        groups.first.get_by_role("link", name="shipping").click()
        expect(visit.page.locator("h1")).to_have_text("shipping")
        visit.page.locator("#group-queues").get_by_role("link", name="orders").first.click()
        expect(visit.page.locator("h1")).to_have_text("orders")
        expect(steps).to_have_count(0)
        assert visit.faults == []


def test_nothing_found_says_where_was_searched_and_what_to_do(
    windows: Windows, origin: str
) -> None:
    with visiting(windows, origin) as visit:
        visit.open(topic_path(TOPIC))
        search_for(visit, UNTRACED)
        found = visit.page.locator('[data-state="not-found"]')
        expect(found).to_contain_text(f"Nothing is known of {UNTRACED}")
        expect(found.locator("code")).to_have_text("--namesrv HOST:PORT")
        keep_picture(visit, "topic", "light", "not-found")
        found.get_by_role("link", name="search the last 7d").click()
        expect(visit.page).to_have_url(re.compile(r"range=7d.*q=|q=.*range=7d"))
        expect(found).to_contain_text("Nothing is known of")

        search_for(visit, "two words")
        bad = visit.page.locator('[data-state="bad-input"]')
        expect(bad).to_contain_text("there are no blanks within one")
        keep_picture(visit, "topic", "light", "bad-input")
        assert visit.faults == []


def test_hostile_ids_and_reasons_are_text(
    windows: Windows, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = write_topic_lake(tmp_path_factory.mktemp("hostile-topic") / "lake", cast=HOSTILE)
    with serving(lake, NOW) as origin, visiting(windows, origin) as visit:
        visit.open(topic_path(TOPIC))
        search_for(visit, HOSTILE.message_id)
        steps = visit.page.locator("#topic-trace tbody tr")
        expect(steps.last).to_contain_text(HOSTILE.reason)
        expect(visit.page.locator("#topic-failed")).to_contain_text(HOSTILE.message_id)
        assert visit.page.locator("script[src*='evil'], img[src='x']").count() == 0
        assert visit.faults == []


def test_a_dead_letter_of_a_group_leads_to_where_it_went(windows: Windows, origin: str) -> None:
    with visiting(windows, origin) as visit:
        visit.open("/group/billing")
        visit.page.locator("#group-dead").get_by_role("link", name=MESSAGE).click()

        expect(visit.page.locator("h1")).to_have_text(TOPIC)
        expect(visit.page.locator("#topic-trace")).to_contain_text(": dead-lettered, after")
        assert visit.faults == []
