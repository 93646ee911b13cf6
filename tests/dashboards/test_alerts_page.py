"""The page of alerts: what is open, over, silenced and watched; and what the frame says of it.

An old page must not look well: where nobody keeps alerts up to date, each place says so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from playwright.sync_api import expect

from dashboards.models import alert_lines
from dashboards.page_context import PageContext
from dashboards.pages import alerts, group, shell
from dashboards.reads.lake_data import LakeData
from pipelines.alerting.alerts import Alert, State, entry_of
from pipelines.alerting.board import AWAY_US, AlertBoard, Life, Past, PastAlerts
from pipelines.alerting.gold_view import Gold
from pipelines.alerting.history import HistoryTable
from pipelines.alerting.matchers import matcher_of
from pipelines.alerting.notification_settings import NoReceivers
from pipelines.alerting.outbox.courier import Chances, Courier
from pipelines.alerting.runner import Alerting
from pipelines.alerting.store import people, steps
from pipelines.base.time_units import micros
from pipelines.database import leads
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from tests.calls_made import calls_made
from tests.dashboards.alerts_shown import (
    NOW_US,
    an_alert,
    later,
    of_the_story,
    say,
    source_of,
    store_alerts,
)
from tests.dashboards.served import Visit, Windows, serving, visiting
from tests.gold_lake import END

WITHIN_MS = 30_000
HOSTILE = "<img src=x onerror=alert(1)>\u202e'\"; rm -rf ~ #"


@pytest.fixture(scope="module")
def file(story: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which the alerts of the story are, stored a second after the end of data."""
    file = tmp_path_factory.mktemp("alerts") / "tidemark.db"
    database = Database.at(f"sqlite:///{file}")
    store_alerts(database, story.root, of_the_story())
    say(database, story.root, of_the_story()[0])
    database.close()
    return file


def context_of(lake: Lake, file: Path, *, after_s: float = 8) -> PageContext:
    source = source_of(file, lake.root)
    return PageContext(LakeData(lake), lambda: later(after_s), alerts=source)


def shown(part: Any) -> str:
    return json.dumps(part, default=_props, ensure_ascii=False)


def _props(one: Any) -> Any:
    to_plain = getattr(one, "to_plotly_json", None)
    return to_plain() if to_plain is not None else str(one)


def seen(context: PageContext, path: str = "/alerts", search: str = "") -> str:
    return shown(alerts.content(context, path, search))


class TestOpenAlerts:
    def test_say_what_since_when_whose_and_what_to_do(self, story: Lake, file: Path) -> None:
        page = seen(context_of(story, file))
        for sentence in (
            *("orders 2 stands still, 867 messages wait", "7 commits in 30 s, offset unchanged"),
            *("payments", "12:11:00", "acked by ada: I look at it", "silenced by ada to 13:15:08"),
            *("Look at the stack of its listener.", "https://wiki.example/runbooks/frozen"),
            *("firing", "pending", "withheld", "always fires", "4 alerts open"),
        ):
            assert sentence in page, sentence

    def test_lead_to_the_page_of_their_group_at_that_moment(self, story: Lake, file: Path) -> None:
        page = seen(context_of(story, file))
        assert "/group/shipping?from=2026-03-01T12%3A07%3A00Z&to=2026-03-01T12%3A17%3A00Z" in page

    def test_bring_the_commands_to_ack_and_to_silence_them(self, story: Lake, file: Path) -> None:
        page = seen(context_of(story, file))
        alert = of_the_story()[0]
        place = f"--lake {story.root} --database sqlite:///{file}"
        assert f"tidemark alerts ack {alert.fingerprint} {place}" in page
        for matcher in ('alertname="QueueFrozen"', 'group="shipping"'):
            assert json.dumps(matcher)[1:-1] in page

    def test_say_why_nobody_is_notified_of_them(self, story: Lake, tmp_path: Path) -> None:
        muted = an_alert("LagGrows", muted="BrokerSilent fires <for> the same broker")
        store_alerts(Database.at(f"sqlite:///{tmp_path / 'a.db'}"), story.root, [muted])
        page = seen(context_of(story, tmp_path / "a.db"))
        assert "nobody is notified: BrokerSilent fires <for> the same broker" in page

    def test_may_be_searched_and_say_how_many_were_found(self, story: Lake, file: Path) -> None:
        page = seen(context_of(story, file), search="?q=QUEUEfro")
        assert "1 of 4 alerts open" in page
        assert "LagGrows" not in page
        assert "No open alert holds that." in seen(
            context_of(story, file), search="?q=nothing+such"
        )

    def test_of_a_cluster_are_its_own_and_those_of_the_lake(
        self, story: Lake, tmp_path: Path
    ) -> None:
        both = [*of_the_story("east"), *of_the_story("west")]
        store_alerts(Database.at(f"sqlite:///{tmp_path / 'a.db'}"), story.root, set_of(both))
        page = seen(context_of(story, tmp_path / "a.db"), search="?cluster=east")
        assert "4 alerts open" in page
        assert "Watchdog" in page
        assert "west" not in page

    def test_with_hostile_labels_are_text_and_make_no_command(
        self, story: Lake, tmp_path: Path
    ) -> None:
        labels = {"group": HOSTILE, "topic": "a'b\"c"}
        bad = an_alert("Bad", labels=labels, annotations={"runbook_url": "javascript:alert(1)"})
        fine = an_alert("Fine", labels={"topic": "a'b\"c"})
        store_alerts(Database.at(f"sqlite:///{tmp_path / 'a.db'}"), story.root, [bad, fine])
        page = seen(context_of(story, tmp_path / "a.db"))
        assert '"href": "javascript' not in page
        assert "\u202e" not in page
        assert "hold characters that cannot be typed" in page
        source = source_of(tmp_path / "a.db", story.root)
        assert alert_lines.silence_command(bad, "lake", source) is None
        typed = alert_lines.silence_command(fine, "lake", source)
        assert typed is not None
        assert matcher_of('topic="a\'b\\"c"').matches(fine.labels)
        assert "'topic=\"a'\"'\"'b\\\"c\"'" in typed


def set_of(alerts: list[Alert]) -> list[Alert]:
    """The one about the lake itself is one."""
    return list({one.fingerprint: one for one in alerts}.values())


class TestOtherParts:
    def test_history_has_what_was_over_in_the_range(self, story: Lake, file: Path) -> None:
        page = seen(context_of(story, file), "/alerts/history")
        for sentence in ("12:06:00", "12:09:00", "3 min", "14 messages may come a second time"):
            assert sentence in page, sentence
        assert "QueueFrozen" not in page
        before = "?from=2026-03-01T11:00:00Z&to=2026-03-01T12:00:00Z"
        assert "DuplicatesThreaten" not in seen(context_of(story, file), "/alerts/history", before)

    def test_history_has_what_the_lake_remembers_and_the_store_forgot(
        self, file: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "lake").mkdir()  # Alerting makes no lake.
        lake = Lake.at(str(tmp_path / "lake"))
        long_ago = END - timedelta(hours=3)
        alert = an_alert(
            "LagGrows",
            State.RESOLVED,
            labels={"group": "pay"},
            fired_at_us=micros(long_ago),
            resolved_at_us=micros(long_ago) + 300_000_000,
        )
        ended_us = alert.resolved_at_us or 0
        entry = entry_of(alert, "RESOLVED", observed_us=ended_us, recorded_us=ended_us)
        past = PastAlerts(lake)
        start = END - timedelta(hours=6)
        assert past.within(start, END) == Past()
        table = HistoryTable(lake)
        table.taken("h")
        table.append("h", [(1, entry)])
        found = past.within(start, END)
        assert found.since == long_ago + timedelta(minutes=5)
        (kept,) = found.alerts
        assert (kept.rule, kept.labels, kept.owner) == ("LagGrows", {"group": "pay"}, "payments")
        assert (kept.fired_at_us, kept.resolved_at_us) == (alert.fired_at_us, alert.resolved_at_us)
        assert not past.within(END - timedelta(hours=1), END).alerts
        board = source_of(file, lake.root).look(NOW_US)
        lane = alert_lines.lane_of(
            replace(board, process=replace(board.process, life=Life.LATE)),
            *(found, "pay"),
            cluster="",
            now_us=NOW_US,
        )
        assert lane is not None
        assert lane.bars["words"].to_list() == ["LagGrows (critical)"]
        assert lane.unknown_until == found.since

    def test_silences_say_whether_they_hold_and_when_they_come_back(
        self, story: Lake, file: Path
    ) -> None:
        page = seen(context_of(story, file), "/alerts/silences")
        for sentence in (
            *("active", "between", "coming", "expired", "Sat, Sun at 22:00 Europe/Berlin, for 8 h"),
            f"tidemark alerts unsilence silence0 --lake {story.root}",
        ):
            assert sentence in page, sentence
        assert "unsilence silence3" not in page

    def test_rules_say_which_cannot_be_judged_and_why(self, story: Lake, file: Path) -> None:
        page = seen(context_of(story, file), "/alerts/rules", "?q=DeadLetters")
        assert "withheld: rows_are_unique failed at 12:14:55 UTC" in page
        assert "a check of its data failed" in page
        assert "last judged at 12:15:01 UTC" in page
        assert "its evaluation fails: no column lag (judged last at 12:13:21)" in page
        assert "eval error" not in page
        frozen = seen(context_of(story, file), "/alerts/rules", "?q=QueueFrozen")
        assert "no trouble reported" in frozen
        assert "3 rows" in frozen
        never = seen(context_of(story, file), "/alerts/rules", "?q=OrderlyQueueBlocked")
        assert "never: no process has judged it yet" in never

    def test_a_broken_file_of_rules_is_reported(
        self, story: Lake, file: Path, tmp_path: Path
    ) -> None:
        broken = tmp_path / "mine.toml"
        broken.write_text("[[rule]]\nname = 'X'\ntable = 'no_such'\nwhen = 'true'\n")
        source = source_of(file, story.root, broken)
        page = seen(PageContext(LakeData(story), lambda: later(8), alerts=source), "/alerts/rules")
        assert "A file of rules is broken" in page
        assert f"{broken}: rule X" in page
        broken.unlink()
        assert "it cannot be read" in shown(
            alerts.content(
                PageContext(LakeData(story), lambda: later(8), alerts=source), "/alerts/rules", ""
            )
        )


class TestWhoWatches:
    def test_where_no_process_has_ever_run_the_page_and_the_frame_say_so(
        self, story: Lake, nothing: Lake, file: Path
    ) -> None:
        other = context_of(nothing, file)
        page = seen(other)
        assert "Nobody watches this lake" in page
        assert f"tidemark alerts run --lake {nothing.root}" in page
        assert firing(other)["level"] == "unknown"
        assert "Nobody watches this lake" in seen(PageContext(LakeData(story), lambda: END))

    def test_while_it_is_at_work_the_frame_counts_what_fires_loudly(
        self, story: Lake, file: Path
    ) -> None:
        found = firing(context_of(story, file))
        assert found["said"] == "1"
        assert "of 1 alert nobody knows" in str(found["sentence"])
        assert found["level"] == "degraded"
        assert "process 7 on alpha is at work" in str(found["sentence"])
        assert "1 alert firing, and 1 of severity info" in str(found["sentence"])

    def test_of_a_process_that_died_nothing_is_believed(self, story: Lake, file: Path) -> None:
        dead = context_of(story, file, after_s=40)
        assert (firing(dead)["level"], firing(dead)["said"]) == ("unknown", "")
        page = seen(dead)
        assert "These alerts are old" in page
        assert "nothing is heard of the alert process (process 7 on alpha) for 39 s" in page
        assert "nobody judges it now" in seen(dead, "/alerts/rules")

    def test_one_that_judges_nothing_is_not_at_work(self, story: Lake, tmp_path: Path) -> None:
        database = Database.at(f"sqlite:///{tmp_path / 'a.db'}")
        lead = store_alerts(database, story.root, of_the_story())
        leads.renew(database, lead, now_us=NOW_US + 100_000_000)
        found = firing(context_of(story, tmp_path / "a.db", after_s=110))
        assert found["level"] == "unknown"
        assert "is there and judges nothing; it last judged at 12:15:01" in str(found["sentence"])

    def test_one_that_was_stopped_is_shown(self, story: Lake, tmp_path: Path) -> None:
        database = Database.at(f"sqlite:///{tmp_path / 'a.db'}")
        leads.release(database, store_alerts(database, story.root, of_the_story()))
        assert "was stopped" in str(firing(context_of(story, tmp_path / "a.db"))["sentence"])

    def test_a_database_that_cannot_be_read_is_shown(self, story: Lake, tmp_path: Path) -> None:
        torn = tmp_path / "a.db"
        torn.write_bytes(b"this is no database" * 100)
        assert "cannot be read" in str(firing(context_of(story, torn))["sentence"])

    def test_a_database_that_is_there_again_is_read_again(
        self, story: Lake, tmp_path: Path
    ) -> None:
        torn = tmp_path / "a.db"
        torn.write_bytes(b"this is no database" * 100)
        board = AlertBoard(story.root, f"sqlite:///{torn}")
        assert "cannot be read" in board.look(NOW_US).process.sentence(NOW_US)
        torn.unlink()
        store_alerts(Database.at(f"sqlite:///{torn}"), story.root, of_the_story())
        assert not board.look(NOW_US + 1).alerts
        assert len(board.look(NOW_US + AWAY_US).alerts) == 5

    def test_the_lead_is_looked_for_where_the_process_takes_it(
        self, story: Lake, tmp_path: Path
    ) -> None:
        database = Database.at(f"sqlite:///{tmp_path / 'a.db'}")
        party = process_on(database, story)
        party.look()
        board = AlertBoard(story.root, f"sqlite:///{tmp_path / 'a.db'}").look(NOW_US)
        assert board.process.is_believed
        assert board.process.holder == "process 1"


def process_on(database: Database, lake: Lake) -> Alerting:
    def courier(channels: Any) -> Courier:
        chances = Chances(lambda: NOW_US, lambda: 0.5, lambda: "x")
        return Courier(database, lake.root, channels, chances)

    return Alerting(
        Gold(lake),
        database,
        lake=lake.root,
        holder="process 1",
        rules=list,
        places=NoReceivers(),
        courier=courier,
        now_us=lambda: NOW_US,
    )


def firing(context: PageContext) -> dict[str, Any]:
    _, heard = shell.beat(context, 0, None)
    found: dict[str, Any] = heard["alerts"]
    return found


class TestManyAlerts:
    def test_ten_thousand_stay_usable(self, story: Lake, tmp_path: Path) -> None:
        many = [
            an_alert(
                f"Rule{number % 20}",
                severity="warning",
                labels={"cluster": "demo", "group": f"group-{number}"},
            )
            for number in range(10_000)
        ]
        database = Database.at(f"sqlite:///{tmp_path / 'a.db'}")
        lead = store_alerts(database, story.root, many)
        many_context = context_of(story, tmp_path / "a.db")
        page = seen(many_context)
        assert "10,000 alerts open" in page
        assert "1 to 25 of 10,000" in page
        assert "and 8 rules more" in page
        assert len(page) < 200_000
        changed = [replace(many[7], figures={"lag_messages": 9})]
        steps.take(database, story.root, steps.Step(changed), lead=lead, now_us=NOW_US)
        found: list[str] = []
        calls = calls_made(lambda: found.append(seen(many_context, search="?q=group-7")))
        assert "1 to 25 of 1,111" in found[0]
        assert calls < 500_000, "measured: 343,000, 34 an alert"
        assert "group-9999" in seen(many_context, search="?q=group-9999&page=400")

    def test_what_did_not_change_is_reported_once(self, story: Lake, file: Path) -> None:
        board = AlertBoard(story.root, f"sqlite:///{file}")
        first, second = board.look(NOW_US), board.look(NOW_US + 1)
        assert first.version == second.version
        assert first.alerts is second.alerts

    def test_an_ack_and_an_end_of_a_silence_are_news(self, story: Lake, tmp_path: Path) -> None:
        address = f"sqlite:///{tmp_path / 'a.db'}"
        database, board = Database.at(address), AlertBoard(story.root, address)
        alert = of_the_story()[0]
        store_alerts(database, story.root, [alert])
        first = board.look(NOW_US)
        say(database, story.root, alert)
        second = board.look(NOW_US)
        people.expire_silence(database, story.root, "silence0", now_us=NOW_US)
        third = board.look(NOW_US)
        assert first.version < second.version < third.version
        assert first.ack_of(alert) is None
        assert second.ack_of(alert) is not None
        assert second.silence_of(alert, NOW_US) is not None
        assert third.silence_of(alert, NOW_US) is None


class TestTheGroupsChart:
    def test_has_a_lane_of_its_alerts_from_firing_to_resolved(
        self, story: Lake, file: Path
    ) -> None:
        chart = chart_of(context_of(story, file), "ledger")
        assert list(chart.layout.yaxis.ticktext)[-1] == "alerts"
        (bar,) = bars_of(chart, "DuplicatesThreaten")
        assert bar.text == "DuplicatesThreaten (warning), payments 3"
        assert [str(moment)[11:19] for moment in bar.x[:2]] == ["12:06:00", "12:09:00"]
        (fires,) = bars_of(chart_of(context_of(story, file), "shipping"), "QueueFrozen")
        assert [str(moment)[11:19] for moment in fires.x[:2]] == ["12:12:00", "12:15:00"]
        assert not bars_of(chart_of(context_of(story, file), "billing"), "QueueFrozen")

    def test_has_no_lane_where_nobody_has_ever_watched(self, story: Lake) -> None:
        chart = chart_of(PageContext(LakeData(story), lambda: later(8)), "ledger")
        assert "alerts" not in chart.layout.yaxis.ticktext

    def test_is_hatched_where_nobody_knows(self, story: Lake, file: Path) -> None:
        chart = chart_of(context_of(story, file, after_s=1810), "shipping")
        lane = [one for one in chart.data if one.hoverinfo == "skip" and one.yaxis == "y"]
        assert len(lane) == 2

    def test_leaves_out_alerts_of_an_equally_named_group(self, story: Lake, tmp_path: Path) -> None:
        store_alerts(
            Database.at(f"sqlite:///{tmp_path / 'a.db'}"), story.root, of_the_story("other")
        )
        source = source_of(tmp_path / "a.db", story.root)
        lane = alert_lines.lane_of(
            source.look(NOW_US), Past(), "shipping", cluster="demo", now_us=NOW_US
        )
        assert lane is not None
        assert lane.bars.is_empty()


def chart_of(context: PageContext, name: str) -> go.Figure:
    return go.Figure(group.content(context, name, "", "light")[3])


def bars_of(chart: go.Figure, rule: str) -> list[Any]:
    return [one for one in chart.data if str(one.text or "").startswith(rule)]


@pytest.fixture(scope="module")
def origin(
    hostile_story: Lake, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Database, str]]:
    """A dashboard over alerts whose names want to be markup, and the database behind it."""
    file = tmp_path_factory.mktemp("hostile") / "tidemark.db"
    database = Database.at(f"sqlite:///{file}")
    labels = {"cluster": "demo", "group": HOSTILE}
    texts = {
        "summary": "<script>alert(4)</script> stands still",
        "runbook_url": "https://wiki.example/frozen",
        "notebook_url": "javascript:alert(5)",
    }
    bad = an_alert("QueueFrozen", labels=labels, annotations=texts)
    many = [
        an_alert("LagGrows", State.PENDING, severity="warning", labels={"group": f"g{number}"})
        for number in range(40)
    ]
    store_alerts(database, hostile_story.root, [bad, *many, *of_the_story()[1:]])
    say(database, hostile_story.root, bad)
    source = source_of(file, hostile_story.root)
    with serving(hostile_story, later(8), alerts=source) as address:
        yield address, database, hostile_story.root


class TestInABrowser:
    def test_alerts_are_text_are_found_and_turned_and_lead_on(
        self, windows: Windows, origin: tuple[str, Database, str]
    ) -> None:
        with visiting(windows, origin[0]) as visit:
            visit.open("/alerts?range=1h")
            picture(visit, "alerts")
            page = visit.page
            assert "<script>alert(4)</script> stands still" in visit.text
            assert page.locator("a[href^='javascript'], img[src='x']").count() == 0
            runbook = page.get_by_role("link", name="runbook").first
            assert runbook.get_attribute("rel") == "noopener noreferrer"
            expect(page.locator("#alerts-chip")).to_have_text(re.compile("1firing"))
            expect(page.locator("#alerts-chip")).to_have_class(re.compile("degraded"))
            expect(page.locator("#alerts-sentence")).to_contain_text(
                "process 7 on alpha is at work"
            )

            page.locator(".pager").get_by_role("link", name="next").click()
            expect(page.locator("#alerts-pager")).to_contain_text(
                "26 to 44 of 44", timeout=WITHIN_MS
            )
            page.locator("#alerts-search").fill("g39")
            page.locator("#alerts-search").press("Enter")
            expect(page.locator("#alerts-list tbody tr")).to_have_count(1, timeout=WITHIN_MS)
            assert "range=1h" in page.url
            assert "q=g39" in page.url
            for part in ("History", "Silences", "Rules"):
                page.locator("#alerts-parts").get_by_role("link", name=part).click()
                expect(page.locator("#alerts-parts .here")).to_contain_text(part)
                expect(page.locator("#alerts-list")).not_to_be_empty(timeout=WITHIN_MS)
                picture(visit, f"alerts-{part.lower()}")
            assert visit.faults == []

    def test_what_is_opened_stays_open_while_the_page_follows_the_store(
        self, windows: Windows, origin: tuple[str, Database, str]
    ) -> None:
        address, database, lake = origin
        with visiting(windows, address, theme="dark") as visit:
            visit.open("/alerts?q=LagGrows")
            page = visit.page
            opened = page.locator("details.commands").first
            opened.locator("summary").click()
            expect(opened).to_have_attribute("open", "")
            picture(visit, "alerts-opened")
            alert = of_the_story()[1]
            ack = people.Ack(alert.fingerprint, alert.active_at_us, "grace", "mine", NOW_US)
            people.acknowledge(database, lake, ack)
            expect(page.locator("#alerts-list")).to_contain_text(
                "acked by grace: mine", timeout=WITHIN_MS
            )
            expect(page.locator("details.commands[open]")).to_have_count(1)
            assert visit.faults == []


def picture(visit: Visit, name: str) -> None:
    """Kept where TIDEMARK_ALL_SCREENSHOTS says; else not."""
    if folder := os.environ.get("TIDEMARK_ALL_SCREENSHOTS"):
        visit.page.screenshot(path=Path(folder) / f"{name}.png")
