"""A topic's page: who is behind on it, how far producers came, what failed, where one message went.

The figures can be counted from `topic_lake`; no browser is needed for them.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from dash import html
from typer.testing import CliRunner

from dashboards import commands, url_state
from dashboards.models import message_path, topic_lines
from dashboards.page_context import PageContext
from dashboards.pages import topic, trace
from dashboards.reads.cluster import (
    NO_ANSWER,
    NO_NAME_SERVER,
    Cluster,
    ClusterStory,
    Route,
    StoredCopy,
    WriteQueues,
    moment_of,
)
from dashboards.reads.lake_data import LakeData
from dashboards.reads.topic_data import Place, TopicData
from dashboards.url_state import Span
from engine.admin import TracedStep
from engine.foundation.errors import ConfigError
from pipelines.lake.lake import Lake
from tests.asynchronous import awaited
from tests.dashboards.topic_lake import (
    BASE,
    DEAD,
    FAILED,
    NOW,
    OFFSET,
    TOPIC,
    UNTRACED,
    write_topic_lake,
)
from tests.lake_story import END, START, Cast, at

MESSAGE = Cast().message_id
SPAN = Span(START, END, END, NOW)
SEARCH = "?range=15m"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_topic_lake(tmp_path_factory.mktemp("topic") / "lake")


@pytest.fixture(scope="module")
def asked(lake: Lake) -> TopicData:
    return TopicData(LakeData(lake).seen())


@pytest.fixture(scope="module")
def context(lake: Lake) -> PageContext:
    return PageContext(LakeData(lake), lambda: NOW)


def words(component: Any) -> str:
    """All texts of a component, in order."""
    if isinstance(component, list | tuple):
        return " ".join(" ".join(words(part) for part in component).split())
    if hasattr(component, "children"):
        return words(component.children)
    return "" if component is None else str(component)


def table_in(card: Any) -> Any:
    """The table below the card's sentences."""
    return next(part for part in card.children[1].children if isinstance(part, html.Div)).children


def steps_in(card: Any) -> list[tuple[str, str, str]]:
    """Time of day, step and group of each row of a trace."""
    rows = table_in(card).children[1].children
    cells = [[words(cell) for cell in row.children] for row in rows]
    return [(at.split()[-1], step, group) for at, step, group, *_ in cells]


def copy_of(message_id: str, keys: str, *, offset: int) -> StoredCopy:
    """A message as queue 0 stores it."""
    return StoredCopy(
        message_id=message_id,
        keys=keys,
        topic=TOPIC,
        broker="broker-a",
        queue_id=0,
        offset=offset,
        stored_at=at(300),
        born_at=at(299),
        born_host="10.0.0.5:5001",
        size_bytes=812,
    )


class TestGroups:
    def test_the_worst_is_first_and_with_a_queue_unknown_it_is_at_least_so_far_behind(
        self, asked: TopicData
    ) -> None:
        shipping, billing = topic_lines.groups_on(
            asked.lag_on(TOPIC, END), asked.stalls_on(TOPIC, START, END)
        )
        assert (shipping.group, shipping.sign.word) == ("shipping", "stalled")
        assert shipping.reason == (
            "Group shipping is stuck on queue 1 of orders on broker-a: a message is not finished. "
            "It has stood for 11 min 40 s; 1,700 messages wait. "
            "This was seen first: 7 commits in 30 s, "
            "offset unchanged."
        )
        assert (shipping.lag_messages, shipping.queues_known, shipping.queues) == (None, 3, 4)
        assert (shipping.messages, shipping.trend) == ("at least 1,710", None)
        assert (billing.group, billing.sign.word, billing.lag_messages) == ("billing", "OK", 20)
        assert billing.observed_at == END

    def test_a_group_without_an_offset_says_why(self, asked: TopicData) -> None:
        lag = asked.lag_on(TOPIC, END).filter(group="shipping", queue_id=3)
        (only,) = topic_lines.groups_on(lag, asked.stalls_on(TOPIC, START, END))
        assert (only.sign.word, only.lag_messages, only.time_lag_ms) == ("no offset", None, None)
        assert only.reason == (
            "The lag of group shipping on queue 3 of orders on broker-a is unknown: no offset was "
            "ever committed."
        )


class TestQueues:
    def test_what_is_not_reported_is_unknown_with_its_reason(self, asked: TopicData) -> None:
        lines = topic_lines.queues_of(asked.produced(TOPIC, START, END), None)
        assert [line.queue_id for line in lines] == [0, 1, 2, 3]
        assert [line.readable for line in lines] == [True, False, True, None]
        assert [line.per_minute for line in lines] == [60.0, 120.0, None, 60.0]
        assert lines[2].rate_unknown == topic_lines.ONE_REPORT
        assert [line.max_offset for line in lines] == [
            BASE + 900,
            BASE + 1800,
            BASE + 900,
            BASE + 900,
        ]
        assert {line.writable for line in lines} == {None}
        assert topic_lines.rate_of(lines) == (240.0, 1)

    def test_who_may_write_is_what_the_name_server_says(self, asked: TopicData) -> None:
        produced = asked.produced(TOPIC, START, END)
        lines = topic_lines.queues_of(produced, [WriteQueues("broker-a", 2, True)])
        assert [line.writable for line in lines] == [True, True, False, False]
        elsewhere = topic_lines.queues_of(produced, [WriteQueues("broker-b", 8, True)])
        assert {(line.writable, line.write_unknown) for line in elsewhere} == {
            (None, topic_lines.NO_ROUTE)
        }

    def test_an_end_that_moved_back_has_no_rate(self, asked: TopicData) -> None:
        produced = asked.produced(TOPIC, START, END).with_columns(fell=True)
        line, *_ = topic_lines.queues_of(produced, None)
        assert (line.per_minute, line.rate_unknown) == (None, topic_lines.MOVED_BACK)

    def test_offsets_keep_every_digit_on_the_page(self, context: PageContext) -> None:
        shown = words(topic.queues(context, TOPIC, SEARCH, Route(None, NO_NAME_SERVER)))
        assert str(BASE + 900) in shown
        assert "unknown " + topic_lines.NOT_REPORTED in shown


class TestFailedMessages:
    def test_a_message_is_one_row_with_its_newest_step(self, asked: TopicData) -> None:
        (row,) = asked.failed(TOPIC, START, END).rows(named=True)
        assert (row["message_id"], row["step"], row["reconsume_times"]) == (
            MESSAGE,
            "DEAD_LETTERED",
            3,
        )
        assert (row["origin_queue_id"], row["origin_offset"]) == (0, OFFSET)
        assert (row["first_at"], row["last_at"]) == (at(FAILED), at(DEAD))

    def test_a_groups_own_topic_shows_what_the_group_failed_on(self, asked: TopicData) -> None:
        for name in ("%RETRY%billing", "%DLQ%billing"):
            assert asked.failed(name, START, END)["message_id"].to_list() == [MESSAGE]
        assert asked.failed("%RETRY%nobody", START, END).is_empty()

    def test_the_range_is_kept(self, asked: TopicData) -> None:
        assert asked.failed(TOPIC, START, at(FAILED - 1)).is_empty()


class TestTrace:
    def test_the_lake_alone_shows_pulls_repeats_tries_and_the_end(
        self, context: PageContext
    ) -> None:
        card = trace.content(context, TOPIC, f"{SEARCH}&q={MESSAGE}", ClusterStory())
        assert steps_in(card) == [
            ("12:05:20.000", "stored", ""),
            ("12:05:20.000", "pulled again", "billing"),
            ("12:05:22.000", "sent back", "billing"),
            ("12:05:30.000", "pulled", "shipping"),
            ("12:05:30.000", "committed", "billing"),
            ("12:05:30.000", "committed", "shipping"),
            ("12:05:32.000", "ready for its next try", "billing"),
            ("12:05:33.000", "sent back", "billing"),
            ("12:06:03.000", "ready for its next try", "billing"),
            ("12:06:10.000", "dead-lettered", "billing"),
        ]
        shown = words(card)
        assert f"offsets {OFFSET - 3} to {OFFSET + 3} handed to billing-2" in shown
        assert "3 failed tries; reconsume times exhausted" in shown
        assert (
            "Group billing, since 2026-03-01 12:06:10 UTC: dead-lettered, after 3 failed tries."
            in shown
        )
        assert "--namesrv HOST:PORT" in shown

    def test_cluster_and_lake_make_one_way_in_order_of_time(self, context: PageContext) -> None:
        def trace_at(second: float, **fields: Any) -> TracedStep:
            return TracedStep(time_ms=int(at(second).timestamp() * 1000), **fields)

        story = ClusterStory(
            asked=True,
            has_trace_topic=True,
            copies=(copy_of(MESSAGE, "order-17", offset=OFFSET),),
            traces=(
                TracedStep(step="consumed", time_ms=None, group="billing", success=False),
                trace_at(299, step="sent", group="shop", cost_ms=3, success=True, topic=TOPIC),
                trace_at(311, step="consuming", group="billing", retry_times=0),
            ),
        )
        # Searched by key: the store says which message has it.
        card = trace.content(context, TOPIC, f"{SEARCH}&q=order-17", story)
        steps = steps_in(card)
        assert [step for _, step, _ in steps[:3]] == ["sent", "stored", "consuming"]
        assert steps[-2:] == [
            ("12:06:10.000", "dead-lettered", "billing"),
            ("unknown", "consumed", "billing"),
        ]
        assert "No client traced" not in words(card)

    def test_several_messages_of_a_key_are_offered_to_choose_from(
        self, context: PageContext
    ) -> None:
        first = copy_of("A1", "k", offset=1)
        second = copy_of("B2", "k", offset=2)
        story = ClusterStory(asked=True, copies=(first, second))
        shown = words(trace.content(context, TOPIC, f"{SEARCH}&q=k", story))
        assert "Several messages have the key k" in shown
        assert "A1" in shown
        assert "B2" in shown

    @pytest.mark.parametrize(
        ("story", "said"),
        [
            (ClusterStory(), "--namesrv HOST:PORT"),
            (ClusterStory(asked=True, fault="refused"), "did not answer (refused)"),
            (ClusterStory(asked=True), "traceTopicEnable=true"),
            (ClusterStory(asked=True, has_trace_topic=True), "enableMsgTrace=true"),
            (ClusterStory(asked=True, has_trace_topic=True), "older than the brokers keep"),
        ],
    )
    def test_nothing_found_says_what_to_do(
        self, context: PageContext, story: ClusterStory, said: str
    ) -> None:
        shown = words(trace.content(context, TOPIC, f"{SEARCH}&q={UNTRACED}", story))
        assert f"Nothing is known of {UNTRACED}" in shown
        assert "searched from 2026-02-28" in shown
        assert "search the last 7d" in shown
        assert said in shown

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("x" * 257, "Too long"),
            ("two words", "no blanks"),
            ("a\tb", "no blanks"),
            ("a\x00b", "cannot be printed"),
            ("a\u202eb", "cannot be printed"),
            ("", None),
            ("order-17", None),
            ("<script>alert(1)</script>", None),
            ("%DLQ%x;'--", None),
        ],
    )
    def test_what_can_be_no_id_and_no_key_is_said(self, text: str, said: str | None) -> None:
        fault = message_path.fault_of(text)
        assert (fault is None) if said is None else (said in str(fault))

    def test_a_message_of_another_topic_leads_there(self, context: PageContext) -> None:
        shown = trace.content(context, "payments", f"{SEARCH}&q={MESSAGE}", ClusterStory())
        assert "It was sent to orders" in words(shown)

    def test_a_lake_in_which_nothing_was_computed_can_be_searched(self, nothing: Lake) -> None:
        empty = PageContext(LakeData(nothing), lambda: NOW)
        shown = words(trace.content(empty, TOPIC, f"?q={MESSAGE}", ClusterStory()))
        assert f"Nothing is known of {MESSAGE}" in shown

    def test_a_time_no_calendar_has_is_no_time(self) -> None:
        assert [moment_of(ms) for ms in (None, 0, 2**62, -(2**62))] == [None] * 4

    def test_a_place_is_looked_at_once(self, asked: TopicData) -> None:
        start, end = message_path.searched(SPAN)
        flow = asked.steps_of(MESSAGE, start, end)
        assert message_path.places(flow, ()) == [Place("broker-a", TOPIC, 0, OFFSET)]


class TestAddress:
    @pytest.mark.parametrize("name", ["orders", "%RETRY%g", "a/b", "../x", "ü €", "<b>", "x?y#z"])
    def test_any_topic_name_is_a_path_and_back(self, name: str) -> None:
        assert url_state.topic_of(url_state.topic_path(name)) == name
        assert url_state.group_of(url_state.topic_path(name)) is None

    def test_what_is_searched_for_is_in_the_address_and_stays_there(self) -> None:
        seen = url_state.parse("?range=1h&q=+a%2Bb%26c+")
        assert seen.query == "a+b&c"
        assert url_state.parse(seen.search(range="24h")).query == "a+b&c"
        assert seen.search(q="") == "?range=1h"
        assert len(url_state.parse("?q=" + "x" * 9_999).query) == url_state.QUERY_MAX + 1


class TestCluster:
    def test_nobody_is_asked_unless_a_name_server_was_named(self) -> None:
        cluster = Cluster()
        assert awaited(cluster.story(TOPIC, MESSAGE)) == ClusterStory()
        route = awaited(cluster.route(TOPIC))
        assert (route.brokers, route.reason) == (None, NO_NAME_SERVER)

    def test_a_name_server_that_is_not_there_is_a_sentence_kept_for_a_while(self) -> None:
        with commands.listen("127.0.0.1", 0) as taken:
            port = taken.getsockname()[1]
        cluster = Cluster(f"127.0.0.1:{port}")

        async def ask_twice() -> tuple[ClusterStory, float]:
            first = await cluster.story(TOPIC, MESSAGE)
            begun = time.monotonic()
            assert await cluster.story(TOPIC, UNTRACED) == first
            assert (await cluster.route(TOPIC)).reason == NO_ANSWER
            return first, time.monotonic() - begun

        story, second_s = awaited(ask_twice())
        assert story.asked
        assert str(port) in story.fault
        assert second_s < 0.1

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--namesrv", "nowhere"], "host:port"),
            (["--namesrv", ""], "at least one host:port"),
            (["--namesrv", "127.0.0.1:9876", "--credentials", "/no/such/file"], "can be read"),
            (["--credentials", "/no/such/file"], "--namesrv"),
        ],
    )
    def test_options_that_cannot_be_are_one_sentence(
        self, lake: Lake, options: list[str], said: str
    ) -> None:
        done = CliRunner().invoke(commands.app, ["--lake", lake.root, "--port", "0", *options])
        assert isinstance(done.exception, ConfigError)
        assert said in str(done.exception)
