"""Pages declare their addresses; the frame, the navigation and the server follow."""

from __future__ import annotations

import pytest

from dashboards.pages import shell
from dashboards.url_state import parse


@pytest.mark.parametrize(
    ("path", "title", "marked"),
    [
        ("/", "Overview", "/"),
        ("/storage", "Storage", "/storage"),
        ("/checks", "Checks", "/checks"),
        ("/reports", "Reports", "/reports"),
        ("/reports/lag-hourly/20260301T120000Z-3600s/1", "Report", "/reports"),
        ("/jobs", "Jobs", "/jobs"),
        ("/jobs/7/source", "Jobs", "/jobs"),
        ("/alerts/rules", "Alerts", "/alerts"),
        ("/group/a%2Fb", "Group", None),
        ("/topic/orders", "Topic", None),
        ("/sign-in", "Sign in", None),
        ("/group/", None, None),
        ("/jobs/none", None, None),
        ("/reports/none", None, None),
        ("/alerts/none", None, None),
        ("/healthz", None, None),
    ],
)
def test_an_address_has_its_page_and_its_place_in_the_navigation(
    path: str, title: str | None, marked: str | None
) -> None:
    found = shell.page_at(path)
    assert (None if found is None else found.title) == title
    links = shell.navigation(path, parse("?range=1h"))
    assert [link.href for link in links] == [
        f"{one}?range=1h" for one in ("/", "/storage", "/checks", "/reports", "/jobs", "/alerts")
    ]
    here = [link.href.partition("?")[0] for link in links if "here" in link.className.split()]
    assert here == ([] if marked is None else [marked])
    skeleton = shell.page(path)
    assert ("No such page" in str(skeleton)) == (title is None)
