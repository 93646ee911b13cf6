"""The page of a report: names as text, unknown as a word, and short whatever there is to say."""

from __future__ import annotations

import re
from dataclasses import replace

from pipelines.alerting.objectives import Objective, Objectives
from pipelines.reports import page
from pipelines.reports.lag_report import lag_report
from pipelines.reports.numbers import Numbers
from pipelines.reports.page import document
from tests.unit.reports.gathered import at, course, gathered, risk, stall

HOSTILE = "<img src=x onerror=alert(1)>'\"&"


def numbers_of(**parts: list[dict[str, object]]) -> Numbers:
    rows = [row for n in range(295) for row in course(f"well-{n:03}", [5] * 60)]
    rows += course(HOSTILE, [5] * 30 + [400] * 30) + course("dark", [None] * 60)
    stalls = [stall(HOSTILE, at(1), at(9), evidence=HOSTILE, topic=HOSTILE)]
    risks = [risk(HOSTILE, at(5), "CONFIRMED", redelivered_messages=80, certain_messages=None)]
    found = gathered(rows, stalls=stalls, risks=risks, **parts)
    return lag_report(found, Objectives(Objective(60_000, 99.0)), lake=HOSTILE)


def whole(numbers: Numbers) -> str:
    pieces = [
        page.top(numbers, revised="Revised: 1 < 2"),
        *(
            piece(numbers)
            for piece in (
                page.news, page.groups, page.stalls, page.duplicates, page.dead_letters,
                page.retention, page.quality, page.others, page.origin,
            )
        ),
    ]  # fmt: skip
    return document("Lag report", pieces)


def test_a_page_runs_nothing_fetches_nothing_and_shows_names_as_text() -> None:
    html = whole(numbers_of())
    assert "<img" not in html
    assert "<script" not in html
    assert "&lt;img src=x onerror=alert(1)&gt;" in html
    assert "Revised: 1 &lt; 2" in html
    assert not re.findall(r"(?:src|href)=", html.replace("img src=x", ""))
    assert "default-src 'none'" in html


def test_of_three_hundred_groups_those_with_news_have_rows() -> None:
    html = whole(numbers_of())
    assert html.count("<tr class=") == 2
    assert "295 more groups, never behind" in html
    assert len(html) < 100_000
    assert html.index("Stalls, by cause") < html.index("295 more groups")


def test_each_cluster_that_is_watched_from_outside_has_a_line_that_says_so() -> None:
    def reached(emitter: str, each_ms: int | None = None) -> dict[str, object]:
        return {"emitter": emitter, "judged_to": at(180), "polled_each_ms": each_ms}

    ours = [reached("Prod/a/0"), reached("Prod/b/0")]
    theirs = [reached("Far/a/eye", 10_000), reached("Far/b/eye", 10_000), reached("Old/a/eye")]
    assert "watched from outside" not in whole(numbers_of(reached=ours))
    html = whole(numbers_of(reached=ours + theirs))
    assert "Far is watched from outside each 10 s: times are right to ± 10 s." in html
    assert "Old is watched from outside." in html
    assert html.count("watched from outside") == 2


def test_what_is_unknown_is_called_so() -> None:
    html = whole(numbers_of())
    row = html[html.index("<span>dark") : html.index("</tr>", html.index("<span>dark"))]
    assert row.count("unknown") == 3
    assert "Whether the data is sound is unknown" in html
    assert "Whether offsets moved as they should is unknown" in html


def test_a_quiet_period_says_so_in_sentences() -> None:
    quiet = lag_report(
        gathered(course("orders", [5] * 60), course("orders", [5] * 60, first=-60)),
        Objectives(),
        lake="var/lake",
    )
    html = whole(replace(quiet, checks=()))
    assert quiet.headline == "The one group kept its objective."
    for sentence in (
        "No group was behind its objective at any moment.",
        "Nothing that was not so before.",
        "No queue stood still.",
        "No risk of duplicates began.",
        "No message was given up",
        "No group is known to lose unread messages",
    ):
        assert sentence in html


def test_links_lead_to_the_groups_page_at_that_period() -> None:
    html = page.groups(numbers_of(), pages="https://tidemark.example/")
    assert "https://tidemark.example/group/dark?from=2026-03-01T12%3A00%3A00Z&amp;to=" in html
