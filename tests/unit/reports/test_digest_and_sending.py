"""A digest of alerts in words, and what receivers are sent of a report."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.foundation.errors import ConfigError
from pipelines.alerting.store.changes import notice_of as stored_notice
from pipelines.alerting.store.changes import notice_text
from pipelines.reports.digest import counted
from pipelines.reports.numbers import Emitter
from pipelines.reports.sending import checked_receivers, notice_of
from tests.unit.reports.gathered import at
from tests.unit.reports.test_shelf import NUMBERS, RUN

RECEIVERS = """
[[receivers]]
name = "team"
kind = "mail"
host = "mail.example"
sender = "t@example.com"
recipients = ["team@example.com"]
[[receivers]]
name = "on-call"
kind = "pagerduty"
routing_key_env = "KEY"
"""


def change(kind: str, minute: float, rule: str = "QueueFrozen", **fields: Any) -> dict[str, Any]:
    return {
        "kind": kind, "rule": rule, "fingerprint": f"{rule}-{minute}", "observed_at": at(minute),
        "fired_at": at(minute), "summary": f"{rule} stands", "state": "FIRING", **fields,
    }  # fmt: skip


def test_a_digest_counts_by_rule_names_what_was_brief_and_what_is_open() -> None:
    rows = [
        change("FIRED", 1),
        change("RESOLVED", 2, fired_at=at(1)),
        change("FIRED", 5),
        change("RESOLVED", 30, fired_at=at(5)),
        change("FIRED", 9, "LagGrows"),
        change("ACKED", 10, "LagGrows"),
    ]
    still = [change("FIRED", 9, "LagGrows"), change("FIRED", 0, "Watchdog")]
    digest = counted(rows, still, at(0), at(60), is_known=True)
    assert digest.headline == "3 alerts fired, 2 were resolved (1 within 2 min), 1 is open."
    assert digest.lines == (
        "QueueFrozen fired 2 times, 1 of them brief",
        "LagGrows fired 1 time",
        "It is open since 2026-03-01 12:09 UTC: LagGrows stands",
    )
    assert "Nothing is known" in counted([], [], at(0), at(60), is_known=False).headline


def test_a_report_is_sent_once_to_each_receiver_with_its_sentence_link_and_page() -> None:
    page = Path("/lake/reports/report.html")
    first = notice_of(RUN, NUMBERS, "team", page=page, pages="https://t.example/")
    again = notice_of(RUN, NUMBERS, "team", page=page, pages="https://t.example/")
    other = notice_of(RUN, NUMBERS, "boss", page=page)
    revised = notice_of(replace(RUN, number=2, digest="else"), NUMBERS, "team", page=page)
    assert first == again
    assert len({first.notice_id, other.notice_id, revised.notice_id}) == 3
    assert first.subject.startswith("Lag report, 01 March 2026 12:00 to 13:00 (UTC): all ")
    assert first.attachment == str(page)
    texts = first.alerts[0].annotations
    assert texts["page_url"] == f"https://t.example/reports/{RUN.name}"
    assert stored_notice(notice_text(first)) == first


def test_a_report_on_a_cluster_that_is_watched_from_outside_is_sent_with_a_line_on_it() -> None:
    eye = Emitter("Far/a/eye", 0, 0, 0, reaches_end=True, polled_each_ms=10_000)
    page = Path("/lake/report.html")
    texts = notice_of(RUN, replace(NUMBERS, emitters=(eye,)), "team", page=page).alerts[0]
    said = "Far is watched from outside each 10 s: times are right to ± 10 s."
    assert texts.annotations["observed"] == said
    assert "observed" not in notice_of(RUN, NUMBERS, "team", page=page).alerts[0].annotations


def test_a_report_wakes_nobody_and_goes_only_to_receivers_that_there_are(tmp_path: Path) -> None:
    file = tmp_path / "receivers.toml"
    file.write_text(RECEIVERS)
    assert checked_receivers(file, ["team"]) == ("team",)
    assert checked_receivers(None, []) == ()
    with pytest.raises(ConfigError, match="wakes nobody"):
        checked_receivers(file, ["on-call"])
    with pytest.raises(ConfigError, match="one of on-call, team"):
        checked_receivers(file, ["nobody"])
    with pytest.raises(ConfigError, match="--receivers"):
        checked_receivers(None, ["team"])
    assert RUN.end - RUN.begin == timedelta(hours=1)
