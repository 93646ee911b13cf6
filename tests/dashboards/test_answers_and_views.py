"""What pages say and what a URL means: pure functions, held against figures one can count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from dashboards import formatting, url_state
from dashboards.models import lag_overview, message_path
from dashboards.pages import overview
from dashboards.reads.lake_data import LakeData, Seen
from dashboards.reads.topic_data import TopicData, is_about
from dashboards.url_state import Span
from pipelines.base.time_units import micros
from pipelines.lake.lake import Lake
from pipelines.reading.moment import Moment, Reached
from pipelines.sentences.losses import left_text
from tests.gold_lake import END, START
from tests.lake_story import EMITTER

MINUTE = timedelta(minutes=1)
NOW = END + timedelta(seconds=8)
SPAN = Span(END - timedelta(minutes=15), END, END, NOW)


def lines_of(seen: Seen) -> list[lag_overview.GroupLine]:
    standing = lag_overview.open_at_end(seen.stalls(START, END), SPAN)
    groups = lag_overview.group_table(
        seen.newest_states(), seen.newest_lag(), standing, seen.moment
    )
    return lag_overview.group_lines(groups, standing)


class TestView:
    @pytest.mark.parametrize(
        "search",
        [
            "",
            "?range=1h",
            "?range=6h&live=off",
            "?from=2026-03-01T12:00:00Z&to=2026-03-01T12:05:00Z",
            "?q=ship&sort=name&page=3",
        ],
    )
    def test_a_view_survives_its_own_address(self, search: str) -> None:
        seen = url_state.parse(search)
        assert url_state.parse(seen.search()) == seen

    @pytest.mark.parametrize(
        "search",
        [
            "?range=1e9&live=<script>",
            "?from=2026-03-01&to=never",
            "?from=2026-03-02T00:00:00Z&to=2026-03-01T00:00:00Z",
            "?from=1000-01-01T00:00:00Z&to=3000-01-01T00:00:00Z",
            "?%ff=%ff&range=",
            "?sort=;drop&page=-1",
            "?page=99999999999999999999",
        ],
    )
    def test_what_does_not_parse_counts_as_not_given(self, search: str) -> None:
        assert url_state.parse(search) == url_state.View()

    def test_a_relative_range_ends_now_so_that_silence_shows(self) -> None:
        now = END + timedelta(minutes=6)
        span = url_state.resolve(url_state.View(), now=now, data_end=END)
        assert (span.end, span.silent_from) == (now, END)

    def test_an_old_lake_opens_on_its_last_minutes(self) -> None:
        span = url_state.resolve(url_state.View(), now=END + timedelta(days=30), data_end=END)
        assert span.start < END < span.end
        assert span.length == timedelta(minutes=15)
        assert span.silent_from == END

    def test_fresh_data_has_no_silent_edge(self) -> None:
        assert url_state.resolve(url_state.View(), now=NOW, data_end=END).silent_from is None

    @pytest.mark.parametrize("name", ["orders", "a/b", "../x", "%2F", "ü €", "<b>", "x?y#z"])
    def test_any_group_name_is_a_path_and_back(self, name: str) -> None:
        assert url_state.group_of(url_state.group_path(name)) == name


class TestWords:
    @pytest.mark.parametrize(
        ("milliseconds", "text"),
        [
            (0, "0 s"),
            (999, "999 ms"),
            (1500, "1.5 s"),
            (59_400, "59 s"),
            (60_000, "1 min"),
            (394_000, "6 min 34 s"),
            (3_600_000, "1 h"),
            (200_000_000, "2 d 7 h"),
        ],
    )
    def test_a_span_of_time_reads_like_speech(self, milliseconds: int, text: str) -> None:
        assert formatting.duration(milliseconds) == text

    def test_unknown_is_a_word_with_its_reason(self) -> None:
        assert formatting.duration(None) == "unknown"
        assert formatting.count(None, reason="NO_OFFSET") == "unknown: no offset was ever committed"

    def test_two_hostile_names_stay_two_names(self) -> None:
        assert formatting.plain("<a>x</a>") != formatting.plain("<b>x</b>")
        assert "<" not in formatting.plain("<a>&lt;script>")
        assert formatting.visible("a\u202eb") == "a\ufffdb"


class TestAnswers:
    def test_the_worst_group_is_first(self, story: Lake) -> None:
        lines = lines_of(LakeData(story).seen())
        assert [(line.group, line.state, line.messages) for line in lines] == [
            ("shipping", "STALLED", "3,164"),
            ("billing", "OK", "16"),
            ("ledger", "OK", "at least 8"),
        ]
        said = (
            "Group ledger is at least 8 messages behind, on the 4 of 5 queues whose lag is known."
        )
        assert lines[-1].reason == said

    def test_a_group_that_is_well_is_behind_on_the_queues_where_messages_wait(
        self, story: Lake
    ) -> None:
        data = LakeData(story).seen()
        lag = data.newest_lag().with_columns(
            lag_messages=pl.when((pl.col("group") == "billing") & (pl.col("queue_id") > 0))
            .then(0)
            .otherwise("lag_messages")
        )
        none = data.stalls(START, END).clear()
        table = lag_overview.group_table(data.newest_states(), lag, none, data.moment)
        [line] = [one for one in lag_overview.group_lines(table, none) if one.group == "billing"]
        assert line.reason.endswith(f"behind on 1 of {line.queues} queues.")

    def test_the_newest_revision_of_a_window_is_the_one_shown(self, story: Lake) -> None:
        data = LakeData(story).seen()
        risks = lag_overview.of_group(data.present("duplicate_risk_windows", START, END), "ledger")
        assert sorted(risks["outcome"].to_list()) == ["CONFIRMED"] * 2 + ["PASSED"] * 4
        assert lag_overview.open_at_end(risks, SPAN).is_empty()
        stalls = data.stalls(START, END)
        assert lag_overview.open_at_end(stalls, SPAN)["kind"].to_list() == ["FROZEN_HEAD"]

    def test_queues_that_fell_together_are_one_entry_of_the_feed(self, story: Lake) -> None:
        data = LakeData(story).seen()
        found = lag_overview.changes(
            stalls=data.stalls(START, END),
            risks=data.present("duplicate_risk_windows", START, END),
            rebalances=data.rows("rebalances", START, END),
            dead_letters=data.rows("dead_letters", START, END),
            span=Span(START, END, END, NOW),
        )
        assert [change.at for change in found] == sorted((c.at for c in found), reverse=True)
        said = [change.text for change in found if change.group == "ledger"]
        assert (
            "Group ledger risks a second delivery of 100 messages of queues 0, 1, 2, 3 of "
            "payments: broker crash." in said
        )
        assert (
            "The risk of group ledger on queues 2, 3 of payments is over, confirmed (consumer "
            "crash), with 14 repeated deliveries." in said
        )

    def test_offsets_beyond_a_browsers_numbers_keep_every_digit(self, story: Lake) -> None:
        data = LakeData(story).seen()
        lag = lag_overview.of_group(data.newest_lag(), "ledger")
        rows = lag_overview.queue_rows(lag, data.stalls(START, END).clear())
        assert {row["max_offset"] for row in rows} == {str(offset) for offset in lag["max_offset"]}
        unknown = rows[0]
        assert (unknown["lag"], unknown["lag_text"]) == (None, "unknown")
        assert unknown["provenance"] == "unknown: no offset was ever committed"

    def test_quality_speaks_of_the_newest_run_and_of_the_tables_that_govern(
        self, story: Lake
    ) -> None:
        results = LakeData(story).seen().everything("dq_results")
        assert lag_overview.quality(results).level == "warning"
        assert lag_overview.quality(results, ["emitter_health"]).level == "healthy"
        older = results.with_columns(
            pl.lit("older").alias("run_id"),
            pl.col("started_at", "observed_at") - timedelta(hours=1),
            pl.lit(False).alias("success"),
            pl.lit("CRITICAL").alias("severity"),
        )
        assert lag_overview.quality(pl.concat([results, older])).failing == 1
        assert lag_overview.quality(results.clear()).level == "unknown"

    def test_a_check_with_nothing_to_check_is_no_reassurance(self, story: Lake) -> None:
        results = LakeData(story).seen().everything("dq_results")
        empty = results.with_columns(
            pl.lit(0, pl.Int64).alias("checked_rows"), pl.lit(False).alias("success")
        )
        assert lag_overview.quality(empty).level == "unknown"

    def test_a_run_of_the_checks_that_is_too_old_says_nothing_about_now(self, story: Lake) -> None:
        results = LakeData(story).seen().everything("dq_results")
        assert lag_overview.quality(results, now=END + 14 * MINUTE).level == "warning"
        old = lag_overview.quality(results, now=END + 15 * MINUTE)
        assert (old.level, old.failing) == ("unknown", 0)
        assert old.sentence == "The last run is 15 min 5 s old: `tidemark check` runs them again."


class TestBrokers:
    def test_a_restart_takes_with_it_the_clients_that_came_back(self, story: Lake) -> None:
        data = LakeData(story).seen()
        brokers = lag_overview.broker_events(data.lifecycle(START, END), data.silences(START, END))
        assert [(event.broker, event.kind) for event in brokers] == [("broker-a", "BOOT")]
        found = lag_overview.changes(
            stalls=data.stalls(START, END).clear(),
            risks=data.present("duplicate_risk_windows", START, END).clear(),
            rebalances=data.rows("rebalances", START, END),
            dead_letters=data.rows("dead_letters", START, END),
            span=Span(START, END, END, NOW),
            brokers=brokers,
        )
        said = [change.text for change in found if change.kind == "broker"]
        assert said == [
            (
                "Broker broker-a restarted after a crash (after SIGKILL); 1 client of 1 group came "
                "back."
            )
        ]
        joined = [
            change for change in found if "joined" in change.text and change.at > brokers[0].at
        ]
        assert joined == []

    def test_a_crash_that_costs_nobody_anything_is_shown_as_a_restart_alone(
        self, story: Lake
    ) -> None:
        data = LakeData(story).seen()
        risks = data.present("duplicate_risk_windows", START, END)
        crashed = risks.filter(pl.col("cause") == "BROKER_CRASH")
        assert crashed.height > 1

        def is_shown(windows: pl.DataFrame) -> list[str]:
            changes = lag_overview.changes(
                stalls=data.stalls(START, END).clear(),
                risks=windows,
                rebalances=data.rows("rebalances", START, END).clear(),
                dead_letters=data.rows("dead_letters", START, END).clear(),
                span=Span(START, END, END, NOW),
                brokers=lag_overview.broker_events(data.lifecycle(START, END), pl.DataFrame()),
            )
            return [change.kind for change in changes]

        free = crashed.with_columns(
            pl.lit(0, pl.Int64).alias("at_risk_messages"),
            pl.lit(0, pl.Int64).alias("redelivered_messages"),
        )
        assert is_shown(free) == ["broker"]
        assert len(is_shown(crashed)) > 1

    @pytest.mark.parametrize(
        ("first_seen", "said"),
        [
            (
                True,
                "Broker broker-a was first seen at 12:00:00 UTC; it has been up since 2026-03-01",
            ),
            (False, "Broker broker-a restarted; it has been up since 2026-03-01"),
            (None, "Broker broker-a restarted; it has been up since 2026-03-01"),
        ],
    )
    def test_the_first_sight_of_a_broker_is_no_restart_and_nobody_came_back(
        self, first_seen: bool | None, said: str
    ) -> None:
        noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
        boot = {
            "event_time": noon,
            "cluster": "c",
            "broker": "broker-a",
            "emitter": "c/broker-a/observer",
            "broker_epoch": micros(noon - timedelta(hours=2)),
            "kind": "BOOT",
            "detail": "seen from outside at 1795806413639; it says it began at 1795806346840",
            "clean": None,
            "first_seen": first_seen,
        }
        silences = pl.DataFrame(schema={"emitter": pl.String, "since": pl.Datetime("us", "UTC")})
        lifecycle = pl.DataFrame([boot], schema_overrides={"clean": pl.Boolean})
        [event] = lag_overview.broker_events(lifecycle, silences)
        joined = {"observed_at": noon, "cluster": "c", "broker": "broker-a", "kind": "JOINED"}
        rebalances = pl.DataFrame([{**joined, "group": "g"}])
        returned, rest = lag_overview._returned(rebalances, [event])
        text = lag_overview.broker_text(event, returned.get(event, []))
        assert text.startswith(f"{said} 10:00:00 UTC")
        assert ("came back" in text, len(rest)) == (not first_seen, int(first_seen or 0))
        assert "17958" not in text

    def test_a_topic_that_a_group_has_left_is_said_with_its_time_and_what_is_unread(self) -> None:
        row = {
            "event_time": datetime(2026, 3, 1, 14, 5, tzinfo=UTC),
            "cluster": "c",
            "group": "g",
            "topic": "t",
            "detail": "2,410 messages unread",
        }
        assert left_text(row) == "g left t at 14:05 UTC; 2,410 messages unread"
        [change] = lag_overview._left(pl.DataFrame([row]))
        assert (change.group, change.text) == ("g", "left t at 14:05 UTC; 2,410 messages unread")

    def test_a_silence_is_said_with_its_length(self) -> None:
        silences = pl.DataFrame(
            {
                "emitter": ["DemoCluster/broker-b/0"],
                "since": [END - 5 * MINUTE],
                "until": [END - 3 * MINUTE],
            }
        )
        (event,) = lag_overview.broker_events(pl.DataFrame(), silences)
        assert lag_overview.broker_text(event) == (
            "Broker broker-b reported nothing for 2 min: states in that time are unknown."
        )

    @pytest.mark.parametrize(
        ("topic", "messages"),
        [
            ("t", ["a", "b"]),
            ("%RETRY%g_t", ["a"]),
            ("%RETRY%g+t", ["a"]),
            ("%RETRY%g", ["a", "c"]),
            ("%DLQ%g", ["a", "c"]),
            ("%DLQ%g_t", []),
        ],
    )
    def test_a_retry_topic_of_pop_has_the_messages_of_its_group_and_topic(
        self, topic: str, messages: list[str]
    ) -> None:
        steps = pl.DataFrame(
            [("a", "g", "t"), ("b", "h", "t"), ("c", "g", None)],
            schema=["message_id", "group", "origin_topic"],
            orient="row",
        )
        assert steps.filter(is_about(topic))["message_id"].to_list() == messages

    def test_messages_delivered_twice_are_no_good_news(self, story: Lake) -> None:
        data = LakeData(story).seen()
        found = lag_overview.changes(
            stalls=data.stalls(START, END),
            risks=data.present("duplicate_risk_windows", START, END),
            rebalances=data.rows("rebalances", START, END),
            dead_letters=data.rows("dead_letters", START, END),
            span=Span(START, END, END, NOW),
        )
        kinds = {change.kind for change in found if "confirmed" in change.text}
        assert kinds == {"delivered twice"}
        assert overview.CHANGE_SIGNS["delivered twice"][1] != "ok"

    def test_states_that_a_silent_emitter_reported_are_unknown(self, story: Lake) -> None:
        """Another broker spoke for a minute longer: what is now here is unknown, lag and all."""
        data = LakeData(story).seen()
        [own] = data.moment.reached
        other = Reached("c/broker-z/0", END + timedelta(minutes=1), 1)
        moment = Moment("run", 1, (own, other))
        silent = lag_overview.group_table(
            data.newest_states(), data.newest_lag(), data.stalls(START, END).clear(), moment
        )
        assert set(silent["state"]) == {"UNKNOWN"}
        why = f"{EMITTER} has reported nothing since 12:15:00 UTC."
        assert {one.partition(": ")[2] for one in silent["reason"]} == {why}
        assert set(silent["lag_messages"]) == {None}
        assert set(silent["queues_known"]) == {0}

    def test_a_group_is_as_fresh_as_its_worst_broker(self, story: Lake) -> None:
        data = LakeData(story).seen()
        other = Reached("c/broker-z/0", END + timedelta(minutes=1), 1)
        moment = Moment("run", 1, (*data.moment.reached, other))
        states, lag = (
            pl.concat(
                [
                    frame,
                    frame.with_columns(broker=pl.lit("broker-z"), emitter=pl.lit("c/broker-z/0")),
                ]
            )
            for frame in (data.newest_states(), data.newest_lag())
        )
        groups = lag_overview.group_table(states, lag, data.stalls(START, END).clear(), moment)
        assert set(groups["judged_to"]) == {END}
        [billing] = groups.filter(pl.col("group") == "billing").iter_rows(named=True)
        assert billing["state"] == "UNKNOWN"
        assert billing["queues_known"] * 2 == billing["queues"], "one broker's are known"

    def test_a_dead_letter_s_origin_reads_the_same_everywhere(self, story: Lake) -> None:
        data = LakeData(story).seen()
        gold = data.rows("dead_letters", START, END).row(0, named=True)
        failed = TopicData(data).failed("orders", START, END).row(0, named=True)
        assert lag_overview.origin_text(gold) == "orders queue 1 offset 123311"
        assert lag_overview.origin_text(failed) == lag_overview.origin_text(gold)
        steps = TopicData(data).steps_of(gold["message_id"], START, END)
        steps_said = [step.text for step in message_path.flow_steps(steps)]
        assert all("orders queue 1 offset 123311 on broker-a" in text for text in steps_said)
