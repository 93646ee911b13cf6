"""What pages say of a cluster that does not report itself: how it is known, and how exactly."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from pipelines.lake.lake import Lake
from tests.dashboards.served import Windows, serving, visiting
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.cluster_story import ClusterStory
from tests.pipelines.gold_lake import compute

LENGTH_S = 90
END = datetime.fromtimestamp(START_US / SECOND + LENGTH_S, UTC)
SAID = "watched from outside each 10 s: times are right to ± 10 s"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of two clusters, of which one is watched by an observer."""
    lake = tmp_path_factory.mktemp("watched") / "lake"
    for cluster in ("self", "seen"):
        story = ClusterStory(lake, cluster=cluster)
        if cluster == "seen":
            story.writer.emitter = "seen/broker-a/observer"
            story.writer.report("lifecycle", kind="OBSERVED", report_each_ms=10_000)
        story.group(f"orders-{cluster}", ["c-1"])
        story.run(LENGTH_S, ship_every=5)
        if cluster == "seen":
            story.pop(story.queue("orders-seen", 0), message_id="m", out=3)
        story.writer.ship()
    compute(lake)
    return Lake.at(str(lake))


def test_the_frame_and_the_page_of_a_group_say_that_it_was_polled_and_how_far_it_may_be_off(
    windows: Windows, watched: Lake
) -> None:
    with serving(watched, END) as origin, visiting(windows, origin) as visit:
        visit.open("/?live=off")
        expect(visit.page.locator("#watched")).to_have_text(SAID)
        visit.open("/group/orders-seen?live=off&cluster=seen")
        expect(visit.page.locator(".facts")).to_contain_text(f"how known{SAID}")
        assert visit.faults == []


def test_the_page_of_a_group_that_reads_by_pop_says_so_with_what_is_not_acknowledged(
    windows: Windows, watched: Lake
) -> None:
    with serving(watched, END) as origin, visiting(windows, origin) as visit:
        visit.open("/group/orders-seen?live=off&cluster=seen")
        facts = visit.page.locator(".facts")
        expect(facts).to_contain_text("reads byPOP, invisible time 15 s")
        expect(facts).to_contain_text("not acknowledged3 messages, the oldest since 12:01:")
        visit.open("/group/orders-self?live=off&cluster=self")
        expect(facts).to_contain_text("judged to")
        expect(facts).not_to_contain_text("POP")
        assert visit.faults == []


@pytest.mark.parametrize(
    ("path", "table"),
    [("/", "#overview-groups"), ("/topic/topic-orders-{}", "#topic-groups")],
)
def test_lists_of_groups_say_of_one_that_reads_by_pop_what_is_out_and_what_cannot_be_known(
    windows: Windows, watched: Lake, path: str, table: str
) -> None:
    with serving(watched, END) as origin, visiting(windows, origin) as visit:
        visit.open(f"{path.format('seen')}?live=off&cluster=seen")
        row = visit.page.locator(f"{table} tr", has_text="orders-seen")
        expect(row).to_contain_text(
            "reads by POP, invisible time 15 s. Not acknowledged: 3 messages"
        )
        expect(row).to_contain_text("UTC; what its members hold cannot be asked")
        visit.open(f"{path.format('self')}?live=off&cluster=self")
        row = visit.page.locator(f"{table} tr", has_text="orders-self")
        expect(row).to_have_count(1)
        expect(row).not_to_contain_text("POP")
        assert visit.faults == []


def test_of_a_cluster_that_reports_itself_nothing_of_the_kind_is_said(
    windows: Windows, watched: Lake
) -> None:
    with serving(watched, END) as origin, visiting(windows, origin) as visit:
        visit.open("/group/orders-self?live=off&cluster=self")
        expect(visit.page.locator(".facts")).to_contain_text("judged to")
        expect(visit.page.locator("#watched")).to_be_empty()
        assert "watched from outside" not in visit.text
        assert visit.faults == []
