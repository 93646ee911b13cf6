"""`tm` never reassures falsely: names are checked, sentences are whole and say to when the data
was judged, and an answer is of one moment. No Spark: the lake is written by a story.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from engine.foundation.errors import ConfigError, LakeError
from engine.telemetry.tables import BY_NAME as BRONZE
from pipelines import tm
from pipelines.lake.lake import Lake, whole_table
from pipelines.marts.groups.sums import SEVERITY
from pipelines.reading.catalogue import BY_NAME, CONSUMER_LAG
from pipelines.tm.arguments import STATES, NoSuchName
from pipelines.tm.engines import NAMES
from tests.gold_lake import END, write_gold_lake
from tests.lake_story import EMITTER, append_rows, complete_cycle

MESSAGE = "7F0000010A2B18B4AAC2166C0D4E0007"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_gold_lake(tmp_path_factory.mktemp("asked") / "lake")


@pytest.fixture(scope="module")
def lake(written: Lake) -> tm.LakeHandle:
    return replace(tm.connect(written.root), clock=lambda: END + timedelta(seconds=9))


class TestNames:
    @pytest.mark.parametrize(
        "question",
        [
            "lag",
            "stalls",
            "why",
            "duplicates",
            "ownership",
            "rebalances",
            "dead_letters",
            "replaced",
            "lost",
            "timeline",
        ],
    )
    def test_a_group_that_is_not_there_is_no_answer_about_nothing(
        self, lake: tm.LakeHandle, question: str
    ) -> None:
        with pytest.raises(NoSuchName) as refused:
            getattr(lake, question)("shiping")
        assert str(refused.value) == "no group 'shiping' in this lake; did you mean 'shipping'?"

    def test_case_does_not_matter(self, lake: tm.LakeHandle) -> None:
        assert lake.stalls("SHIPPING").rows.equals(lake.stalls("shipping").rows)
        assert len(lake.groups(state="stalled")) == len(lake.groups(state="STALLED")) == 1
        assert len(lake.lag("Shipping", topic="ORDERS")) == len(lake.lag("shipping"))
        assert lake.checks("FAILED").df["expectation"].to_list() == ["offsets_known"]

    @pytest.mark.parametrize(
        ("ask", "sentence"),
        [
            (lambda tm: tm.groups(state="stoped"), "did you mean 'STOPPED'"),
            (
                lambda tm: tm.groups(state="fine"),
                "'CATCHING_UP', 'DATA_LOST', 'NO_OFFSET', 'OK'",
            ),
            (lambda tm: tm.lag("shipping", topic="order"), "did you mean 'orders'?"),
            (lambda tm: tm.lag("shipping", topic="payments"), "what group 'shipping' reads"),
            (lambda tm: tm.stalls("shipping", queue=9), "no queue 9 of shipping; there are 0, 1"),
            (lambda tm: tm.checks("faild"), "did you mean 'failed'?"),
            (lambda tm: tm.lag("nobody-like-this"), "there are 'billing', 'ledger', 'shipping'"),
            (
                lambda tm: tm.explain("0123"),
                "window_id of a row of duplicate_risk_windows, ownership, stalled_windows",
            ),
            (lambda tm: tm.lag("shipping", since="yesterday"), '"15m"'),
            (lambda tm: tm.stalls(since="1m", until="5m"), "a moment before until='5m'"),
            (lambda tm: tm.stalls(since="2030-01-01"), "2026-03-01 12:15:00 UTC"),
            (lambda tm: tm.groups(as_of="2030-01-01"), "a moment up to 2026-03-01 12:15:00"),
            (lambda tm: tm.groups(as_of=2), "a complete cycle, 1 to 1"),
        ],
    )
    def test_other_wrong_names_and_moments_say_what_would_be_right(
        self, lake: tm.LakeHandle, ask: Any, sentence: str
    ) -> None:
        with pytest.raises(ConfigError) as refused:
            ask(lake)
        assert sentence in str(refused.value)

    def test_every_state_that_is_computed_may_be_asked_for(self) -> None:
        assert STATES == SEVERITY

    def test_an_attribute_that_is_no_question_names_the_questions(self) -> None:
        assert {"groups", "stalls", "message", "explain", "spark", "connect"} <= set(dir(tm))
        assert "SHOWN_ROWS" not in dir(tm)
        with pytest.raises(AttributeError, match="stalls"):
            tm.stals  # noqa: B018


class TestSentences:
    @pytest.mark.parametrize(
        ("ask", "sentence"),
        [
            (lambda tm: tm.groups("slow"), "No group is SLOW; of 3 groups 2 are OK, 1 is STALLED."),
            (lambda tm: tm.groups("stalled"), "1 of 3 groups is STALLED: shipping."),
            (
                lambda tm: tm.groups(),
                (
                    "1 of 3 groups is not OK; the furthest behind is shipping, stalled, 3,164 "
                    "messages and 6 min 34 s behind. "
                    "This was seen first: orders queue 2: 78 commits in "
                    "390 s, offset unchanged, lag 3,152 messages and growing."
                ),
            ),
            (
                lambda tm: tm.stalls("shipping"),
                (
                    "2 stalled windows of shipping are known; 1 is still open. Group shipping is "
                    "stuck on queue 2 of orders on broker-a: message "
                    "7F0000010A2B18B4AAC2166C0D4E0007 has been in a listener of "
                    "shipping-2@10.0.0.12 since 12:08:26 UTC. It has stood for 6 min 34 s; 3,152 "
                    "messages wait."
                ),
            ),
            (lambda tm: tm.stalls("billing"), "No stalled window of billing is known."),
            (
                lambda tm: tm.lag("shipping", topic="orders", queue=2),
                (
                    "Group shipping is 3,152 messages behind on queue 2 of orders; the oldest has "
                    "waited for 6 min 34 s."
                ),
            ),
            (
                lambda tm: tm.lag("ledger"),
                (
                    "Group ledger is at least 8 messages behind, on the 4 of 5 queues whose lag is "
                    "known; the oldest has waited for at least 400 ms."
                ),
            ),
            (
                lambda tm: tm.duplicates("ledger"),
                (
                    "6 windows of duplicate risk of ledger are known; 2 are confirmed, with 14 "
                    "repeated deliveries."
                ),
            ),
            (lambda tm: tm.dead_letters(), "1 dead letter is known, from orders."),
            (
                lambda tm: tm.replaced("ledger"),
                "No loss of a pulled message of ledger is known.",
            ),
            (
                lambda tm: tm.checks(),
                "1 of 8 checks failed: offsets_known; run of 2026-03-01 12:14:55 UTC.",
            ),
            (
                lambda tm: tm.alerts(),
                "No alert is known in this lake: `tidemark alerts run` watches it.",
            ),
        ],
    )
    def test_a_verdict_is_whole_and_says_to_when_the_data_was_judged(
        self, lake: tm.LakeHandle, ask: Any, sentence: str
    ) -> None:
        assert ask(lake).verdict == f"{sentence} It is judged to 2026-03-01 12:15:00 UTC."

    def test_what_a_person_wants_comes_first_and_is_what_is_printed(
        self, lake: tm.LakeHandle
    ) -> None:
        stalls = lake.stalls("shipping")
        first = ["group", "topic", "queue_id", "rule", "kind", "state"]
        assert stalls.rows.columns[:6] == first
        assert "window_id" in stalls.rows.columns
        assert "window_id" not in repr(stalls)
        assert "[stalled_windows @ version 0, 2 rows, 33 more columns in .df]" in repr(stalls)
        assert "<th>window_id</th>" not in stalls._repr_html_()

    def test_a_group_with_lag_that_nobody_has_judged_is_named(self, tmp_path: Path) -> None:
        written = write_gold_lake(tmp_path / "lake")
        row = _newest_lag(written)
        append_rows(
            written.gold("consumer_lag"),
            CONSUMER_LAG.columns,
            [{**row, "group": "new"}],
            "observed_date",
        )
        said = tm.connect(written.root).groups().verdict
        assert "1 group has lag and has not been judged: new." in said


class TestOneMoment:
    def test_rows_of_a_cycle_that_is_not_complete_are_not_seen(self, tmp_path: Path) -> None:
        written = write_gold_lake(tmp_path / "lake")
        lake = replace(tm.connect(written.root), clock=lambda: END)
        before = lake.lag("shipping")
        row = _newest_lag(written)
        later = END + timedelta(seconds=5)
        half = [
            {**row, "observed_at": later, "seq": row["seq"] + 1000, "lag_messages": 9999},
            # Of the very same second, and yet of the next cycle.
            {**row, "observed_at": END, "seq": row["seq"] + 900, "lag_messages": 8888},
        ]
        append_rows(written.gold("consumer_lag"), CONSUMER_LAG.columns, half, "observed_date")
        assert lake.lag("shipping").verdict == before.verdict
        assert len(lake.lag("shipping")) == len(before)
        counted = "SELECT count(*) AS n FROM consumer_lag WHERE lag_messages > 8000"
        assert lake.sql(counted).df["n"].to_list() == [0]

        complete_cycle(written, {EMITTER: (later, row["seq"] + 1000)})
        after = lake.lag("shipping")
        assert "It is judged to 2026-03-01 12:15:05 UTC." in after.verdict
        assert len(after) == len(before) + 2
        assert lake.lag("shipping", as_of=1).verdict == before.verdict
        assert lake.sql(counted).df["n"].to_list() == [2]

    def test_an_open_window_says_what_is_true_now_not_what_its_revision_recorded(
        self, lake: tm.LakeHandle, written: Lake
    ) -> None:
        recorded = whole_table(written.table(written.gold("stalled_windows"))).to_pylist()
        frozen = next(row for row in recorded if row["kind"] == "FROZEN_HEAD")
        assert frozen["lag_messages"] == 127
        stalls = lake.stalls("shipping").df.set_index("kind")
        assert stalls.loc["FROZEN_HEAD", "lag_messages"] == 3152
        assert stalls.loc["FROZEN_HEAD", "stood_ms"] == 393_900
        assert stalls.loc["UNDETERMINED", "lag_messages"] == 230  # It is over: as recorded.

    def test_an_unchanged_queue_is_known_for_a_snapshot_period_and_waits_longer(
        self, tmp_path: Path
    ) -> None:
        written = write_gold_lake(tmp_path / "lake")
        lake = tm.connect(written.root)
        seq = _newest_lag(written)["seq"] + 10_000
        complete_cycle(written, {EMITTER: (END + timedelta(minutes=10), seq)})
        assert "the oldest has waited for 16 min 34 s" in lake.lag("shipping").verdict
        assert "for 16 min 34 s; 3,152 messages wait" in lake.stalls("shipping").verdict
        assert "3,164 messages and 16 min 34 s behind" in lake.groups().verdict
        assert lake.groups("stalled").df["time_lag_ms"].to_list() == [994_000]
        complete_cycle(written, {EMITTER: (END + timedelta(minutes=13), seq)})
        assert (
            "The lag of shipping is unknown: no report of it came" in lake.lag("shipping").verdict
        )
        assert lake.groups().verdict.startswith("No group has been judged.")

    def test_as_of_a_moment_says_what_was_known_then(self, lake: tm.LakeHandle) -> None:
        then = lake.stalls("shipping", as_of="2026-03-01T12:04:00Z")
        assert then.df["rule"].to_list() == ["SLOW"]
        assert then.df["state"].to_list() == ["OPEN"]
        assert "It is judged to 2026-03-01 12:04:00 UTC." in then.verdict
        ago = lake.stalls("shipping", as_of="11m")
        assert ago.rows.equals(then.rows)
        cycle = lake.stalls("shipping", as_of=1)
        assert cycle.rows.equals(lake.stalls("shipping").rows)

    def test_a_frozen_head_is_explained_with_the_stack_of_its_listener(
        self, lake: tm.LakeHandle
    ) -> None:
        window = lake.stalls("shipping").df.query("kind == 'FROZEN_HEAD'").iloc[0]
        rows = lake.explain(window).rows
        assert rows.filter(pl.col("source") == "stalled_windows")["what"][-1] == (
            "the listener of shipping-2@10.0.0.12 stands at\nat warehouse.reserve(warehouse.py:88)"
        )

    def test_an_open_stall_is_explained_with_what_is_true_now(self, lake: tm.LakeHandle) -> None:
        """Its last revision is older, and says less."""
        said = lake.explain(lake.stalls("shipping", queue=2).df.iloc[-1]).verdict
        assert (
            "since 12:08:26 UTC. It has stood for 6 min 34 s; 3,152 messages wait. Reported last: "
        ) in said

    def test_of_a_broker_that_fell_silent_no_verdict_is_left_standing(self, tmp_path: Path) -> None:
        """Its groups are unknown with the reason, lag and all; its open windows stay open."""
        written = write_gold_lake(tmp_path / "lake")
        other = {"DemoCluster/broker-b/0": (END + timedelta(seconds=26), 5)}
        complete_cycle(written, {EMITTER: (END, 10**9), **other})
        lake = replace(tm.connect(written.root), clock=lambda: END + timedelta(seconds=30))
        groups = lake.groups()
        assert set(groups.rows["state"]) == {"UNKNOWN"}
        assert set(groups.rows["lag_messages"]) == {None}
        silent = f"{EMITTER} has reported nothing since 12:15:00 UTC."
        assert {one.partition(": ")[2] for one in groups.rows["reason"]} == {silent}
        assert groups.verdict.startswith("3 of 3 groups are not OK (3 unknown)")
        rows = lake.stalls("shipping").rows
        [still] = rows.filter(pl.col("closed_at").is_null()).iter_rows(named=True)
        assert (still["unknown_reason"], still["lag_messages"]) == ("EMITTER_SILENT", None)
        assert "unknown" in lake.lag("shipping").verdict.lower()

    def test_a_broker_whose_clock_is_ahead_makes_itself_unknown_and_no_other_one(
        self, tmp_path: Path
    ) -> None:
        written = write_gold_lake(tmp_path / "lake")
        hour = datetime.now(UTC) + timedelta(hours=1)
        complete_cycle(written, {EMITTER: (END, 10**9), "DemoCluster/broker-b/0": (hour, 5)})
        lake = replace(tm.connect(written.root), clock=lambda: END)
        states = dict(lake.groups().rows.select("group", "state").rows())
        assert states == {"billing": "OK", "shipping": "STALLED", "ledger": "OK"}
        said = lake.groups().verdict
        assert "the clock of DemoCluster/broker-b/0 is 59 min " in said

    def test_what_is_asked_about_now_of_a_lake_that_stands_still_is_unknown(
        self, written: Lake
    ) -> None:
        late = replace(tm.connect(written.root), clock=lambda: END + timedelta(seconds=26))
        assert late.groups().verdict.endswith(
            "Nothing has been judged since, for 26 s: nothing later is known."
        )
        assert "what is now" not in late.groups(as_of=1).verdict

    def test_a_range_that_ended_before_says_nothing_of_what_is_judged_since(
        self, written: Lake
    ) -> None:
        lake = replace(tm.connect(written.root), clock=lambda: END)
        until = END - timedelta(seconds=90)
        assert lake.lag("shipping", until=until).verdict.endswith(
            "It is judged to 2026-03-01 12:13:30 UTC."
        )

    def test_an_emitter_that_fell_silent_is_named_and_does_not_hold_back_the_others(
        self, tmp_path: Path
    ) -> None:
        written = write_gold_lake(tmp_path / "lake")
        silent = {"DemoCluster/broker-b/0": (END - timedelta(hours=2), 5)}
        complete_cycle(written, {EMITTER: (END, 10**9), **silent})
        said = replace(tm.connect(written.root), clock=lambda: END).groups().verdict
        assert said.endswith(
            "It is judged to 2026-03-01 12:15:00 UTC; DemoCluster/broker-b/0 only to 2026-03-01 "
            "10:15:00 UTC."
        )

    def test_a_lake_without_a_complete_cycle_says_so(self, tmp_path: Path) -> None:
        written = write_gold_lake(tmp_path / "lake")
        (tmp_path / "lake" / "state" / "plans").rename(tmp_path / "plans")
        with pytest.raises(LakeError, match=r"no cycle of .* is complete yet"):
            tm.connect(written.root).groups()


class TestEmitters:
    def test_each_says_how_far_it_was_judged_what_is_unknown_and_how_far_its_clock_is_off(
        self, tmp_path: Path
    ) -> None:
        written = write_gold_lake(tmp_path / "lake")
        other = "DemoCluster/broker-b/0"
        complete_cycle(written, {EMITTER: (END, 10**9), other: (END - timedelta(minutes=1), 5)})
        health = {"observed_at": END, "observed_date": END.date(), "emitter": EMITTER}
        counts = dict.fromkeys(("rows_expected", "rows_found", "rows_distinct"), 1)
        row = {**health, **counts, "seq_from": 10**6, "seq_to": 10**6, "clock_skew_ms": 11_000}
        columns = BY_NAME["emitter_health"].columns
        append_rows(written.gold("emitter_health"), columns, [row], "observed_date")
        emitters = replace(tm.connect(written.root), clock=lambda: END).emitters()
        names = ("emitter", "state", "clock_skew_ms", "clock_skew_reason")
        assert emitters.rows.select(names).rows() == [
            (other, "UNKNOWN", None, "NOT_TOLD"),
            (EMITTER, "OK", 11_000, None),
        ]
        assert emitters.verdict.startswith(
            f"1 of 2 emitters is unknown: {other} has reported nothing since 12:14:00 UTC; "
            f"the clock of {EMITTER} is 11 s ahead of its shipper's. It is judged to"
        )

    @pytest.mark.parametrize(
        ("events", "reason"),
        [
            (
                [("SPOOL_LOSS", {})],
                "rows were lost at 12:14:59 UTC, and no snapshot came since",
            ),
            ([("SPOOL_LOSS", {}), ("SNAPSHOT", {"seq_from": 10**6 + 1})], None),
            ([("CLOCK_STEPPED", {"step_ms": -60_000})], "its clock was set back by 1 min at "),
            ([("CLOCK_STEPPED", {"step_ms": -60_000}), ("BOOT", {})], None),
        ],
        ids=["lost", "made good", "set back", "another life"],
    )
    def test_what_was_lost_or_set_is_said(
        self, tmp_path: Path, events: list[tuple[str, dict[str, int]]], reason: str | None
    ) -> None:
        written = write_gold_lake(tmp_path / "lake")
        moment = END - timedelta(seconds=1)
        known = {"cluster": "c", "broker": "b", "broker_epoch": 0, "emitter": EMITTER}
        known |= {"event_time": moment, "event_date": moment.date()}
        rows = [
            {**known, "seq": seq, "kind": kind, **values}
            for seq, (kind, values) in enumerate(events, start=10**6)
        ]
        append_rows(written.bronze("lifecycle"), BRONZE["lifecycle"].columns, rows, "event_date")
        complete_cycle(written, {EMITTER: (END, 10**9)})
        [emitter] = replace(tm.connect(written.root), clock=lambda: END).emitters().rows.to_dicts()
        assert emitter["state"] == ("UNKNOWN" if reason else "OK")
        assert (emitter["reason"] or "").startswith(reason or "")


class TestRanges:
    def test_since_and_until_are_moments_texts_or_how_long_ago(self, lake: tm.LakeHandle) -> None:
        ways = [
            lake.lag("shipping", since="5m", until="4m"),
            lake.lag("shipping", since="2026-03-01T12:10:00Z", until="2026-03-01 12:11:00"),
            lake.lag(
                "shipping", since=END - timedelta(minutes=5), until=END - timedelta(minutes=4)
            ),
        ]
        assert len(ways[0]) == 4 * 56  # The broker was down for five of the 61 seconds.
        assert ways[0].rows.equals(ways[1].rows)
        assert ways[0].rows.equals(ways[2].rows)
        assert "It is judged to 2026-03-01 12:11:00 UTC." in ways[0].verdict

    def test_windows_are_those_that_have_a_moment_in_common_with_the_range(
        self, lake: tm.LakeHandle
    ) -> None:
        during = lake.stalls(since="2026-03-01T12:06:00", until="2026-03-01T12:08:00")
        assert during.df["group"].to_list() == ["ledger"]
        assert lake.stalls(since="5m").df["kind"].to_list() == ["FROZEN_HEAD"]

    def test_a_figure_draws_what_was_asked(self, lake: tm.LakeHandle) -> None:
        one = lake.lag("shipping", topic="orders", queue=2, since="5m", until="1m").plot()
        names = {trace.name for trace in one.data if trace.name}
        assert names == {"orders 2"}
        begin, end = one.layout.xaxis.range
        assert (begin, end) == (END - timedelta(minutes=5), END - timedelta(minutes=1))
        stalled = lake.groups("stalled").plot()
        assert list(stalled.layout.yaxis.ticktext) == ["shipping"]
        with pytest.raises(LakeError, match="about no group"):
            lake.groups("slow").plot()
        with pytest.raises(ConfigError, match="a question about groups"):
            lake.checks().plot()

    def test_readers_of_a_range_are_all_that_its_rows_name(self, lake: tm.LakeHandle) -> None:
        """Also those who read two of the queues then, and have gone since."""
        begin, end = END - timedelta(minutes=15), END - timedelta(minutes=10)
        found = lake.ownership("ledger", since=begin, until=end)
        clients, queues = found.df["client_id"].nunique(), found.df["queue_id"].nunique()
        assert (queues, clients) == (4, 2)
        assert found.verdict.startswith("4 queues of ledger were read by 2 clients in this range.")

    def test_figures_and_checks_are_shown_as_of_a_moment_like_all(
        self, lake: tm.LakeHandle
    ) -> None:
        moment = END - timedelta(minutes=5)
        whole = lake.overview(since="2026-03-01T12:00:00Z")
        for figure in (lake.overview(as_of=moment), lake.timeline("shipping", as_of=moment)):
            assert figure.layout.xaxis.range[1] == moment
            assert figure.layout.xaxis.range[1] < whole.layout.xaxis.range[1]
        then = lake.checks(as_of=moment)
        assert (then.verdict.split(" It is judged")[0], len(then)) == (
            "No check had run by then.",
            0,
        )
        assert lake.checks(as_of=1).verdict.startswith("1 of 8 checks failed: offsets_known;")


class TestStories:
    def test_what_the_lake_knows_of_a_message(self, lake: tm.LakeHandle) -> None:
        story = lake.message(MESSAGE.lower())
        assert story.df["source"].to_list() == [
            "retry_dlq_flow",
            "dead_letters",
            "retry_dlq_flow",
            "stalled_windows",
        ]
        assert "sent back after 1 failure" in story.df["what"][0]
        unknown = lake.message("7F00").verdict
        assert unknown.startswith("The lake knows nothing of message '7F00'. It knows messages")

    def test_the_evidence_behind_a_window(self, lake: tm.LakeHandle) -> None:
        hit = lake.duplicates("ledger", queue=2).df
        crash = hit[hit["cause"] == "CONSUMER_CRASH"].iloc[0]
        ways = [lake.explain(crash), lake.explain(crash["window_id"])]
        assert ways[0].rows.equals(ways[1].rows)
        counts = ways[0].df["source"].value_counts().to_dict()
        assert counts["duplicate_risk_windows"] == 2
        assert counts["rebalances"] == 1
        assert counts["redeliveries"] == 1
        assert counts["consumer_lag"] > 10
        assert "was handed [" in " ".join(ways[0].df["what"])
        assert ways[0].plot().data
        assert len(lake.explain(lake.stalls("ledger"))) > 1

    @pytest.mark.parametrize("name", NAMES)
    def test_a_column_may_be_called_as_any_table_is(self, lake: tm.LakeHandle, name: str) -> None:
        assert lake.sql(f"SELECT 7 AS {name} FROM group_state LIMIT 1").rows.item() == 7

    def test_sql_joins_gold_and_bronze(self, lake: tm.LakeHandle) -> None:
        found = lake.sql(
            'SELECT d."group", count(*) AS steps FROM dead_letters d JOIN retry_dlq_flow f '
            'ON d.message_id = f.message_id GROUP BY d."group"'
        )
        assert found.df.to_dict("records") == [{"group": "billing", "steps": 2}]
        assert lake.sql("WITH x AS (SELECT * FROM rebalances) SELECT count(*) AS n FROM x").df[
            "n"
        ].to_list() == [9]

    def test_a_connected_lake_offers_the_questions_and_nothing_of_how_they_are_answered(
        self, lake: tm.LakeHandle
    ) -> None:
        assert set(dir(lake)) <= {*dir(tm), "lake"}
        assert "stalls" in dir(lake)

    def test_in_a_text_nothing_is_a_comment_or_another_statement(self, lake: tm.LakeHandle) -> None:
        odd = ("a--b", "c;d", "/*", "*/", "it''s -- not; one")
        query = (
            "SELECT count(*) AS n -- of all\n FROM rebalances /* each; */ WHERE "
            + " AND ".join(f"\"group\" <> '{text}'" for text in odd)
        )
        assert lake.sql(f"{query};").df["n"].to_list() == [9]

    @pytest.mark.parametrize(
        "query",
        [
            "DROP TABLE consumer_lag",
            "COPY (SELECT * FROM consumer_lag) TO '/dev/null'",
            "SELECT 1 FROM consumer_lag; DROP TABLE consumer_lag",
            "SELECT 1",
            "SELECT nothing FROM consumer_lag",
        ],
    )
    def test_sql_only_reads_and_says_what_is_wrong(self, lake: tm.LakeHandle, query: str) -> None:
        with pytest.raises(ConfigError):
            lake.sql(query)


def _newest_lag(written: Lake) -> dict[str, Any]:
    rows = whole_table(written.table(written.gold("consumer_lag"))).to_pylist()
    mine = [row for row in rows if row["group"] == "shipping" and row["queue_id"] == 2]
    newest = max(mine, key=lambda row: row["observed_at"])
    highest = max(row["seq"] for row in rows)
    return {**newest, "seq": highest}
