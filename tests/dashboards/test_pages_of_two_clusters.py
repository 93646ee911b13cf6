"""Two clusters in one lake, everything in them called the same: no page mixes them, and each says
of which cluster it is. A lake of one cluster says nothing about clusters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from dash import html

from dashboards.page_context import PageContext
from dashboards.pages import group, overview, shell, topic, trace
from dashboards.reads.cluster import ClusterStory, Route, WriteQueues
from dashboards.reads.lake_data import LakeData
from dashboards.url_state import parse
from pipelines.lake.lake import Lake
from tests.dashboards.served import SIZE, Windows, serving, visiting
from tests.pipelines.two_clusters import (
    EAST,
    END,
    GROUP,
    ONLY_WEST,
    TOPIC,
    WEST,
    lakes_of_two_clusters,
)

NOW = END + timedelta(seconds=5)
ROUTE = Route([WriteQueues("broker-a", 2, True, WEST)])


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return lakes_of_two_clusters(tmp_path_factory)


def context_of(lake: Path) -> PageContext:
    return PageContext(LakeData(Lake.at(str(lake))), lambda: NOW)


def plain(shown: Any) -> str:
    """All that a page is sent, as text."""
    return json.dumps(shown, default=_props, sort_keys=True, ensure_ascii=False)


def _props(one: Any) -> Any:
    to_plain = getattr(one, "to_plotly_json", None)
    return to_plain() if to_plain is not None else str(one)


def without_names(shown: str, cluster: str) -> str:
    """The same without what is said of the cluster itself."""
    fact = _fact(cluster)
    assert fact in shown, shown[:2000]
    return shown.replace(fact, "").replace(f"{cluster} / ", "")


def _fact(cluster: str) -> str:
    return plain(html.Div([html.Dt("cluster"), html.Dd(cluster)])) + ", "


@pytest.mark.parametrize("cluster", [EAST, WEST])
class TestAPageOfOneCluster:
    def test_of_a_group_is_what_it_would_be_without_the_other(
        self, lakes: dict[str, Path], cluster: str
    ) -> None:
        search = f"?cluster={cluster}"
        there, here = (
            plain(group.content(context_of(lakes[lake]), GROUP, search, "dark"))
            for lake in ("both", cluster)
        )
        assert without_names(there, cluster) == here
        assert (WEST if cluster == EAST else EAST) not in there

    def test_of_a_topic_is_what_it_would_be_without_the_other(
        self, lakes: dict[str, Path], cluster: str
    ) -> None:
        search = f"?cluster={cluster}"
        there, here = (
            plain(topic.content(context_of(lakes[lake]), TOPIC, search))
            for lake in ("both", cluster)
        )
        assert there == here
        assert (WEST if cluster == EAST else EAST) not in there

    def test_of_a_message_knows_what_its_cluster_knows(
        self, lakes: dict[str, Path], cluster: str
    ) -> None:
        search = f"?cluster={cluster}&q=POISON"
        there, here = (
            plain(trace.content(context_of(lakes[lake]), TOPIC, search, ClusterStory()))
            for lake in ("both", cluster)
        )
        assert there == here
        assert ("dead-lettered" in there) is (cluster == WEST)

    def test_who_may_write_is_said_of_the_cluster_that_was_asked(
        self, lakes: dict[str, Path], cluster: str
    ) -> None:
        shown = plain(topic.queues(context_of(lakes["both"]), TOPIC, f"?cluster={cluster}", ROUTE))
        assert ("the name server has no route to it" in shown) is (cluster == EAST)


class TestPagesThatName:
    def test_a_group_of_several_clusters_is_shown_of_the_one_that_is_chosen(
        self, lakes: dict[str, Path]
    ) -> None:
        notice, body, *rest = group.content(context_of(lakes["both"]), GROUP, "?range=1h", "dark")
        assert "hidden" in body
        shown = plain(notice)
        assert "is in 2 clusters" in shown
        assert f'"/group/{GROUP}?range=1h&cluster={EAST}"' in shown
        assert f'"/group/{GROUP}?range=1h&cluster={WEST}"' in shown
        assert not any(rest)

    def test_a_group_of_one_cluster_needs_no_choice(self, lakes: dict[str, Path]) -> None:
        shown = plain(group.content(context_of(lakes["both"]), ONLY_WEST, "", "dark"))
        assert _fact(WEST) in shown
        assert "messages behind" in shown
        assert EAST not in shown

    def test_a_topic_of_several_clusters_is_shown_of_the_one_that_is_chosen(
        self, lakes: dict[str, Path]
    ) -> None:
        shown = plain(topic.content(context_of(lakes["both"]), TOPIC, ""))
        assert f'"/topic/{TOPIC}?cluster={WEST}"' in shown
        assert topic.queues(context_of(lakes["both"]), TOPIC, "", ROUTE) == []
        searched = trace.content(context_of(lakes["both"]), TOPIC, "?q=POISON", ClusterStory())
        assert "Choose a cluster first" in plain(searched)


class TestOverview:
    def test_each_group_of_each_cluster_is_a_line(self, lakes: dict[str, Path]) -> None:
        shown = overview.content(context_of(lakes["both"]), "", "dark")
        rows = [_texts(row) for row in _rows(shown[6])]
        assert {tuple(row[1:3]) for row in rows} == {
            (WEST, GROUP),
            (WEST, ONLY_WEST),
            (EAST, GROUP),
        }
        assert [row[1:3] for row in rows if "OK" not in row[0]] == [[WEST, GROUP]]
        ticks = go.Figure(shown[3]).layout.yaxis.ticktext
        assert set(ticks) == {f"{EAST} / {GROUP}", f"{WEST} / {GROUP}", f"{WEST} / {ONLY_WEST}"}

    def test_lines_are_those_of_lakes_of_their_own(self, lakes: dict[str, Path]) -> None:
        both = _lines(lakes["both"])
        alone = {
            (cluster, *row)
            for cluster in (EAST, WEST)
            for row in _lines(lakes[cluster], has_cluster=False)
        }
        assert both == alone

    def test_it_may_keep_one_cluster(self, lakes: dict[str, Path]) -> None:
        shown = overview.content(context_of(lakes["both"]), f"?cluster={EAST}", "dark")
        assert {tuple(_texts(row)[1:3]) for row in _rows(shown[6])} == {(EAST, GROUP)}
        assert WEST not in plain(shown)

    def test_each_number_says_what_each_cluster_has_of_it(self, lakes: dict[str, Path]) -> None:
        notes = _tiles(lakes["both"])
        alone = {cluster: _tiles(lakes[cluster]) for cluster in (EAST, WEST)}
        assert notes["groups"] == f"{WEST} 2 · {EAST} 1 · 3 groups"
        for label in ("stalled windows", "dead letters", "repeated deliveries", "messages behind"):
            shares = [
                f"{cluster} {value}"
                for cluster in (WEST, EAST)
                if (value := alone[cluster][f"{label}: value"]) != "0"
            ]
            assert notes[label].startswith(" · ".join(shares) + " · "), label
        assert notes["stalled windows"].startswith(f"{WEST} 1 · {WEST}: Group")

    def test_a_number_of_nothing_says_over_how_many_clusters(self, lakes: dict[str, Path]) -> None:
        before = "?from=2026-03-01T12:00:00Z&to=2026-03-01T12:00:15Z"
        assert _tiles(lakes["both"], before)["dead letters"] == "none · in 2 clusters"

    def test_of_a_chosen_cluster_and_of_one_alone_no_number_is_divided(
        self, lakes: dict[str, Path]
    ) -> None:
        chosen = _tiles(lakes["both"], f"?cluster={EAST}")
        assert chosen.pop("worst time lag") == f"{EAST} / {GROUP}"
        assert chosen.items() <= _tiles(lakes[EAST]).items()
        assert "cluster" not in " ".join(chosen.values())

    def test_one_cluster_alone_is_not_named(self, lakes: dict[str, Path]) -> None:
        shown = overview.content(context_of(lakes[EAST]), "", "dark")
        assert EAST not in plain(shown)
        assert EAST not in plain(group.content(context_of(lakes[EAST]), GROUP, "", "dark"))
        assert EAST not in plain(topic.content(context_of(lakes[EAST]), TOPIC, ""))

    def test_a_restart_of_a_broker_brings_nobody_back_to_its_namesake(
        self, lakes: dict[str, Path]
    ) -> None:
        feed = plain(overview.content(context_of(lakes["both"]), "", "dark")[7])
        assert f"{WEST} / broker-a restarted after a crash" in feed
        assert f"{EAST} / broker-a restarted after a crash" not in feed


class TestTheFilterOfTheFrame:
    def test_leads_to_the_same_page_of_each_cluster_and_of_all(
        self, lakes: dict[str, Path]
    ) -> None:
        found = shell.clusters_of(context_of(lakes["both"]), None)
        menu = plain(shell.cluster_menu("/checks", parse(f"?range=1h&cluster={EAST}"), found))
        assert found == [EAST, WEST]
        assert f'"/checks?range=1h&cluster={WEST}"' in menu
        assert '"/checks?range=1h"' in menu

    def test_is_not_there_in_a_lake_of_one_cluster(self, lakes: dict[str, Path]) -> None:
        found = shell.clusters_of(context_of(lakes[EAST]), None)
        assert shell.cluster_menu("/", parse(""), found) is None

    def test_says_when_a_lake_does_not_hold_what_an_address_asks_for(self) -> None:
        menu = plain(shell.cluster_menu("/", parse("?cluster=gone"), [EAST]))
        assert '"gone"' in menu
        assert "(not in this lake)" in menu
        assert '"/"' in menu

    def test_goes_with_the_reader_to_every_page(self) -> None:
        links = plain(shell.navigation("/checks", parse(f"?cluster={EAST}&q=x&range=1h")))
        for path in ("/", "/alerts", "/checks"):
            assert f'"{path}?range=1h&cluster={EAST}"' in links


def _tiles(lake: Path, search: str = "") -> dict[str, str]:
    """The note of each number of the strip by its label, and the number as "label: value"."""
    strip = json.loads(plain(overview.content(context_of(lake), search, "dark")[2]))
    notes: dict[str, str] = {}
    for tile in strip:
        label, value, note = (
            _text_of(part["props"]["children"]) for part in tile["props"]["children"]
        )
        notes |= {label: note, f"{label}: value": value}
    return notes


def _text_of(shown: Any) -> str:
    if isinstance(shown, list):
        return " ".join(_text_of(one) for one in shown)
    return _text_of(shown["props"]["children"]) if isinstance(shown, dict) else str(shown)


def _rows(shown: Any) -> list[Any]:
    """The rows of the first table in a tree."""
    if isinstance(shown, list):
        return next((rows for one in shown if (rows := _rows(one))), [])
    if not isinstance(shown, dict):
        return []
    if shown["tag"] == "tbody":
        return list(shown["children"])
    return _rows(shown["children"])


def _texts(row: Any) -> list[str]:
    return [_text(cell["children"]) for cell in row["children"]]


def _text(shown: Any) -> str:
    if isinstance(shown, list):
        return " ".join(_text(one) for one in shown)
    return _text(shown["children"]) if isinstance(shown, dict) else str(shown)


def _lines(lake: Path, *, has_cluster: bool = True) -> set[tuple[str, ...]]:
    rows = [_texts(row) for row in _rows(overview.content(context_of(lake), "", "dark")[6])]
    return {(row[1], row[0], *row[2:]) if has_cluster else tuple(row) for row in rows}


@pytest.fixture(scope="module")
def origin(lakes: dict[str, Path]) -> Iterator[str]:
    with serving(Lake.at(str(lakes["both"])), NOW) as address:
        yield address


def test_a_browser_leads_to_the_group_of_the_chosen_cluster(origin: str, windows: Windows) -> None:
    with visiting(windows, origin) as visit:
        visit.open("/")
        line = visit.page.locator("#overview-groups tr", has_text=EAST).first
        assert "OK" in line.inner_text()
        line.locator("a.name").click()
        visit.page.locator("#group-summary .facts").wait_for()
        visit.page.wait_for_load_state("networkidle")
        assert visit.page.url.endswith(f"/group/{GROUP}?cluster={EAST}")
        assert "stopped" not in visit.page.locator("#group-queues-card").inner_text()
        visit.open(f"/group/{GROUP}", state="clusters")
        visit.page.locator(".notice-clusters").get_by_role("link", name=WEST).click()
        visit.page.locator("#group-summary .facts").wait_for()
        assert visit.page.url.endswith(f"?cluster={WEST}")
        visit.page.get_by_role("link", name="Overview").first.click()
        visit.page.locator("#overview-groups tr", has_text=WEST).first.wait_for()
        assert visit.page.url.endswith(f"/?cluster={WEST}")
        visit.page.locator("#cluster-choice summary").click()
        visit.page.locator("#cluster-choice").get_by_role("link", name=EAST).click()
        visit.page.locator("#overview-groups tr", has_text=EAST).first.wait_for()
        assert visit.page.url.endswith(f"/?cluster={EAST}")
        assert visit.page.locator("#overview-groups tr", has_text=WEST).count() == 0
        assert not visit.faults


OVERLAPS = """() => {
  const shown = [...document.querySelectorAll('header *')].filter(one => {
    const box = one.getBoundingClientRect();
    return !one.children.length && box.width > 1 && box.height > 1 && one.checkVisibility()
      && !one.closest('.menu-list');
  });
  const met = [];
  shown.forEach((one, n) => shown.slice(n + 1).forEach(other => {
    const a = one.getBoundingClientRect(), b = other.getBoundingClientRect();
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 1) met.push([one.textContent, other.textContent]);
  }));
  return met;
}"""


def test_a_frame_of_1440_pixels_has_room_for_any_name_of_a_cluster(
    origin: str, windows: Windows
) -> None:
    """And for a range that was named by its ends, beside it."""
    long = "production-eu-central-1-payments-and-orders-of-the-north"
    ends = "from=2026-03-01T12:00:00Z&to=2026-03-01T12:02:00Z"
    with visiting(windows, origin) as visit:
        for search in ("", f"?cluster={WEST}&{ends}", f"?cluster={long}&{ends}"):
            visit.page.goto(f"{origin}/alerts{search}")
            visit.page.locator("#cluster-choice").wait_for()
            visit.page.locator("#freshness .pill-sign").wait_for()
            assert visit.page.evaluate(OVERLAPS) == []
            assert visit.page.evaluate("document.documentElement.scrollWidth") <= SIZE["width"]
        summary = visit.page.locator("#cluster-choice summary")
        beside = summary.locator("span").last
        assert beside.inner_text() == "(not in this lake) ▾"
        ends_at, box = beside.bounding_box(), summary.bounding_box()
        assert ends_at is not None
        assert box is not None
        assert ends_at["x"] + ends_at["width"] <= box["x"] + box["width"] + 1
