"""Every alert leads on: to the page at its moment, the notebook of its kind, its runbook."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlparse

import pytest

from dashboards.url_state import group_of, parse, topic_of
from pipelines.alerting.alert_context import SHOWN_MAX, Bases, absolute, links_of
from pipelines.alerting.alerts import Alert, Notice, State
from pipelines.alerting.rule_files import read_rules, shipped_files
from pipelines.base.time_units import moment_at
from tests.alert_stories import NOON, NOON_US, Story, behind, rows, rule

RUNBOOKS = Path(__file__).parents[3] / "docs" / "runbooks.md"
RULES = {one.name: one for one in read_rules(shipped_files()).rules}


def alert(lasted_s: int = 60, **labels: str) -> Alert:
    end_us = NOON_US
    begin_us = end_us - lasted_s * 1_000_000
    return Alert(
        *("f", "Behind", "warning", "", labels, {}, {}, State.FIRING, ""),
        active_at_us=begin_us,
        fired_at_us=begin_us,
        resolved_at_us=None,
        last_true_us=end_us,
    )


@pytest.mark.parametrize("group", ["orders", "a/b?c&d#é", "..", "%41 b"])
def test_the_page_link_asks_the_dashboard_for_that_group_at_that_moment(group: str) -> None:
    link = urlparse(links_of(alert(group=group, cluster="shop & co"), "group_state")["page_url"])
    view = parse(link.query)
    assert group_of(link.path) == group
    assert view.cluster == "shop & co"
    assert view.start == NOON - timedelta(minutes=6)
    assert view.end == NOON + timedelta(minutes=5)


def test_what_names_a_topic_alone_leads_to_its_page_and_checks_to_theirs() -> None:
    page = links_of(alert(topic="t/1"), "duplicate_risk_windows")["page_url"]
    assert topic_of(urlparse(page).path) == "t/1"
    assert links_of(alert(expectation="x"), "dq_results")["page_url"].startswith("/checks?from=")
    assert links_of(alert(), "pipeline")["page_url"].startswith("/?from=")


def test_an_alert_that_has_lasted_for_days_leads_to_its_last_hours() -> None:
    view = parse(urlparse(links_of(alert(40 * 86_400, group="g"), "group_state")["page_url"]).query)
    assert view.start == NOON - SHOWN_MAX - timedelta(minutes=5)


def test_a_lag_of_nobody_in_particular_leads_to_the_notebook_of_the_platform() -> None:
    query = urlparse(links_of(alert(cluster="c"), "group_state")["notebook_url"]).query
    assert dict(parse_qsl(query))["kind"] == "platform"
    query = urlparse(links_of(alert(group="g"), "stalled_windows")["notebook_url"]).query
    assert dict(parse_qsl(query)) == {
        "kind": "stalls",
        "group": "g",
        "since": "2026-03-01T11:54:00Z",
        "until": "2026-03-01T12:00:00Z",
        "as_of": "2026-03-01T12:00:00Z",
    }


def test_who_sends_an_alert_out_says_where_pages_lab_and_runbooks_are() -> None:
    own = {"runbook_url": "https://wiki/x", "page_url": "/group/g?a=b", "notebook_url": "/t?c"}
    one = alert(group="g")
    one.annotations.update(own)  # type: ignore[attr-defined]
    notice = Notice("n", "r", "k", {}, (one,), 0, NOON_US)
    linked = absolute(notice, Bases(pages="https://t.example/", lab="http://lab:8888")).alerts[0]
    assert linked.annotations == {
        "runbook_url": "https://wiki/x",
        "page_url": "https://t.example/group/g?a=b",
        "notebook_url": "http://lab:8888/t?c",
    }
    assert absolute(notice, Bases()).alerts[0].annotations == {"runbook_url": "https://wiki/x"}


def test_an_alert_has_its_links_from_when_it_begins_and_a_rule_may_have_its_own() -> None:
    story = Story(rule(annotations={"summary": "x", "page_url": "https://own/{{ labels.group }}"}))
    story.look(rows("group_state", behind(90)))
    (made,) = story.alerts
    assert made.annotations["page_url"] == "https://own/orders"
    assert f"until={moment_at(made.last_true_us):%Y-%m-%dT%H}" in made.annotations["notebook_url"]


@pytest.mark.parametrize("name", RULES)
def test_every_shipped_rule_says_what_to_do_first_and_has_a_runbook(name: str) -> None:
    annotations = RULES[name].annotations
    assert annotations["first_step"]
    page, _, anchor = annotations["runbook_url"].partition("#")
    assert (page, anchor) == (RUNBOOKS.name, name.lower())
    section = RUNBOOKS.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]
    assert re.search(r"^- Look: \S", section, re.MULTILINE)
    assert re.search(r"^- Do: \S", section, re.MULTILINE)


def test_no_runbook_is_about_a_rule_that_there_is_not() -> None:
    assert set(re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)) == set(RULES)
