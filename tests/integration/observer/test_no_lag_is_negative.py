"""A consume offset that lies beyond the end of its queue, as on an Apache broker whose topic was
made again under a running consumer: in every face the lag is unknown, and no number.
"""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dashboards.page_context import PageContext
from dashboards.pages import group, overview, topic
from dashboards.reads.lake_data import LakeData
from engine.admin.api.groups import QueueProgress, total
from engine.protocol.bodies import TopicOffset
from pipelines import tm
from pipelines.alerting.metrics.families import Process
from pipelines.alerting.metrics.page import Page
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.marts.declared import gold_tables
from tests.integration.alerting.stores import sqlite_address
from tests.integration.observer.played_cluster import PlayedBroker, played_cluster
from tests.pipelines.bronze_lake import START_US
from tests.pipelines.emitted_in_steps import Story, keeps_up, report_marks, stands
from tests.shipped_alerts import fired
from tidemark import app

GROUP, MOVED, COMMITTED, END = "anew", "moved", 1007, 6
SENTENCE = (
    f"Topic t was made again at 12:01:05 UTC. Group {MOVED} passed over 6 messages of its new life."
)
LESS_THAN_NOTHING = re.compile(r"-1,?001\b")
"""What a lag would be that is no lag."""
WHY = f"the offset is beyond the queue's end (committed {COMMITTED}, end {END})"


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    beyond, behind = QueueProgress(END, COMMITTED, 1007, 0), QueueProgress(9, 5, 7, 0)
    assert (beyond.lag, beyond.inflight, beyond.why_unknown) == (None, None, WHY)
    assert (behind.lag, behind.inflight, behind.why_unknown) == (4, 2, None)
    assert QueueProgress(9, 5, 0, 0).inflight == 0
    assert total([4, 2]) == 6
    assert total([4, None, 2]) is None
    assert total([]) == 0


async def admin(namesrv: str, *words: str) -> str:
    """What a command prints."""
    answer = await asyncio.to_thread(
        CliRunner().invoke, app, ["admin", *words], env={"NAMESRV_ADDR": namesrv}
    )
    assert answer.exit_code == 0, answer.output
    return answer.stdout


async def test_the_commands_of_an_administrator_say_why_it_is_unknown(tmp_path: Path) -> None:
    broker = PlayedBroker("theirs")
    broker.queues = {("t", 0): TopicOffset(0, END, 0), ("t", 1): TopicOffset(0, 9, 0)}
    broker.groups = {GROUP: {("t", 0): COMMITTED, ("t", 1): 5}}
    async with played_cluster(tmp_path, broker) as cluster:
        texts = {
            words: await admin(cluster.namesrv, *words)
            for words in (
                ("group", "progress", GROUP),
                ("group", "progress"),
                ("broker", "progress", "theirs"),
            )
        }
        documents = [json.loads(await admin(cluster.namesrv, *words, "--json")) for words in texts]
    of_group, in_short, of_broker = texts.values()
    for text in texts.values():
        assert not LESS_THAN_NOTHING.search(text)
    assert f"unknown: {WHY}" in of_group
    assert f"lag unknown: {WHY}, inflight unknown" in of_group.splitlines()[-1]
    assert "unknown: 1 of 2 offsets are beyond the end of their queue" in in_short
    assert f"unknown: {WHY}" in of_broker
    for rows in (documents[0], documents[2]):
        assert [(row["lag"], row["inflight"], row["lag_unknown"]) for row in rows] == [
            (None, None, WHY),
            (4, 0, None),
        ]
    assert [(row["lag"], row["inflight"]) for row in documents[1]] == [(None, None)]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """A watched broker: topic t is made again at 65 s, and the group keeps its offset of old; on u
    it is four behind. Another group is sent to the end at 100 s.
    """
    story = Story(tmp_path_factory.mktemp("beyond") / "lake")
    theirs = story.broker("theirs")
    theirs.emitter = "cluster-1/theirs/observer"
    theirs.report("lifecycle", kind="OBSERVED", observed_by="observer", report_each_ms=5_000)
    for _ in story.steps(60, theirs):
        keeps_up(theirs, GROUP, COMMITTED)
        keeps_up(theirs, MOVED, COMMITTED)
        stands(theirs, GROUP, 9, topic="u")
    for at_s in story.steps(150, theirs):
        if at_s == 65:
            life = {"topic": "t", "time_from": theirs.now_us - 5_000_000}
            theirs.report("lifecycle", kind="TOPIC_GONE", **life)
            theirs.report("lifecycle", kind="TOPIC_MADE_AGAIN", **life)
        times = {"last_pull_time": theirs.now_us, "last_commit_time": theirs.now_us}
        ends = {"max_offset": END, "committed_state": "AT_END", "store_time_at_committed": None}
        report_marks(theirs, GROUP, committed=COMMITTED, pulled=None, **ends, **times)
        at = COMMITTED if at_s < 100 else END
        report_marks(theirs, MOVED, committed=at, pulled=None, **ends, **times)
        stands(theirs, GROUP, 9, topic="u")
    story.judge()
    return story


def test_gold_has_no_number_below_nothing(story: Story) -> None:
    reading = story.reading()
    for table in gold_tables():
        rows = reading.rows(table.name)
        for name in rows.columns:
            if "lag" in name and "change" not in name and rows[name].dtype.is_integer():
                assert not (rows[name] < 0).any(), f"{table.name}.{name}"
    newest = reading.newest("consumer_lag").filter(topic="t", group=GROUP)
    assert newest.select("lag_messages", "time_lag_ms", "unknown_reason").rows() == [
        (None, None, "BEYOND_END")
    ]
    gold = {table.name: reading.rows(table.name).to_dicts() for table in gold_tables()}
    assert ("GroupBeyondEnd", GROUP) in fired(gold)
    assert gold["offset_violations"] == []
    assert [row["topic"] for row in gold["topic_lives"]] == ["t"]
    assert [(row["group"], row["messages"]) for row in gold["passed_over_messages"]] == [(MOVED, 6)]
    assert ("MessagesPassedOver", MOVED) in fired(gold)


def test_answers_pages_and_figures_say_that_it_is_unknown(story: Story, tmp_path: Path) -> None:
    lake = tm.connect(str(story.lake))
    asked = {
        "lag": lake.lag(GROUP).verdict,
        "groups": lake.groups().verdict,
        "stalls": lake.stalls(GROUP).verdict,
        "lives": lake.passed_over().verdict,
    }
    assert "on the 1 of 2 queues whose lag is known" in asked["lag"]
    assert asked["lives"].startswith(f"{SENTENCE} ")
    nothing = f"No topic of {GROUP} that was made again is known. "
    assert lake.passed_over(GROUP).verdict.startswith(nothing)
    end = datetime.fromtimestamp(START_US / 1e6 + story.at_s + 1, UTC)
    context = PageContext(LakeData(Lake.at(str(story.lake))), lambda: end)
    pages = {
        "overview": overview.content(context, "", "light"),
        "group": group.content(context, GROUP, "", "light"),
        "moved": group.content(context, MOVED, "", "light"),
        "topic": topic.content(context, "t", "", None),
    }
    shown = {name: json.dumps(page, default=_props) for name, page in pages.items()}
    assert "the consume offset lies beyond the end of the queue" in shown["group"]
    for name in ("overview", "topic", "moved"):
        assert SENTENCE in shown[name], name
    assert SENTENCE not in shown["group"]
    page = Page(
        Lake.at(str(story.lake)),
        Database.at(sqlite_address(tmp_path)),
        process=lambda: Process(leads=True, rules=1),
        now_us=lambda: START_US + (story.at_s + 1) * 1_000_000,
        queues=True,
    )
    scraped = page.text()
    assert [
        line
        for line in scraped.splitlines()
        if "lag" in line and not line.startswith("#") and re.search(r" -\d", line)
    ] == []
    for name, text in {**asked, **shown, "metrics": scraped}.items():
        assert not LESS_THAN_NOTHING.search(text), name


def _props(one: Any) -> Any:
    to_plain = getattr(one, "to_plotly_json", None)
    return to_plain() if to_plain is not None else str(one)
