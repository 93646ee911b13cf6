"""The judges on literal rows: what goes in, what must come out."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pipelines.lake.schemas import KEY_TEXT
from pipelines.marts.computing import compute
from pipelines.marts.judging.ticks import WORDS
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.gold_lake import SHORT
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze, second
from tests.pipelines.partition import facts_between, horizons_of, run

LIFECYCLE = pa.schema(
    [
        ("emitter", KEY_TEXT),
        ("seq", pa.int64()),
        ("event_us", pa.int64()),
        ("kind", KEY_TEXT),
        ("group", KEY_TEXT),
        ("topic", KEY_TEXT),
        ("seq_from", pa.int64()),
        ("step_ms", pa.int64()),
        ("report_each_ms", pa.int64()),
        ("time_from_us", pa.int64()),
    ]
)


class Story:
    """One broker, played second by second; a queue is as it was reported last."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.broker = Emitter(self.rows)
        self.lifecycle: list[dict[str, Any]] = []
        self.broker.at(0)
        self.broker.boot()

    def at(self, at: float) -> Emitter:
        """The broker at a second, all shipped that was reported before."""
        self.broker.at(at - 0.001)
        self.broker.ship()
        self.broker.at(at)
        return self.broker

    def event(self, kind: str, **values: Any) -> None:
        """A row of lifecycle now."""
        seq = self.broker.report("lifecycle", kind=kind)
        known = {"emitter": self.broker.emitter, "seq": seq, "event_us": self.broker.now_us}
        self.lifecycle.append({**known, "kind": kind, **values})

    def gold(self) -> dict[str, list[dict[str, Any]]]:
        """Rows per mart, over one cycle, in the order in which they were made."""
        reported = bronze(self.rows)
        facts = facts_between(reported, {}, horizons_of(reported)[-1])
        facts["lifecycle"] = self.lifecycle_facts()
        done = compute(JUDGES, facts, {}, SHORT)
        return {name: rows.to_pylist() for name, rows in done.rows.items()}

    def lifecycle_facts(self) -> pa.Table:
        """All rows of lifecycle."""
        boot = {"emitter": self.broker.emitter, "seq": 1, "event_us": START_US, "kind": "BOOT"}
        own = [{name: row.get(name) for name in LIFECYCLE.names} for row in self.lifecycle]
        boots = [{name: boot.get(name) for name in LIFECYCLE.names}]
        return pa.Table.from_pylist([*boots, *own], LIFECYCLE)


def test_lag_is_exact_or_null_with_a_reason() -> None:
    story = Story()
    broker = story.broker
    since = {"store_time_at_committed": START_US + 4 * SECOND}
    marks = [
        {"committed_state": "EXACT", **since},
        {"committed": 100, "committed_state": "AT_END"},
        {"committed": None, "committed_state": "NONE"},
        {"committed": 5, "min_offset": 20, "committed_state": "PURGED"},
        {"committed": 120, "committed_state": "AT_END"},
        {"message_model": "BROADCASTING", **since},
        {"committed_state": "UNREADABLE", **since},
    ]
    for number, values in enumerate(marks):
        broker.at(10 + number)
        broker.watermark(**values)
    story.at(20)
    names = ("lag_messages", "time_lag_ms", "provenance", "unknown_reason", "inflight_messages")
    assert [tuple(row[name] for name in names) for row in story.gold()["consumer_lag"]] == [
        (20, 6000, "EXACT", None, 10),
        (0, 0, "EXACT", None, -10),
        (None, None, "UNKNOWN", "NO_OFFSET", None),
        (95, None, "PURGED", "PURGED", 85),
        (None, None, "UNKNOWN", "BEYOND_END", -30),
        (None, None, "UNKNOWN", "BROADCAST", 10),
        (20, 12000, "UNREADABLE", None, 10),
    ]


def test_a_trend_looks_back_a_minute_over_the_cut() -> None:
    rows: Rows = {}
    broker = Emitter(rows)
    for at, committed, end in ((0, 60, 60), (20, 60, 160), (30, 60, 260), (90, 260, 280)):
        broker.at(at)
        broker.watermark(committed=committed, max_offset=end, pulled=end)
        broker.ship()
    names = ("seq", "lag_messages", "trend", "lag_change_per_minute", "drain_time_ms")
    made = run(JUDGES, bronze(rows), SHORT, ends=[0, 1, 2])["consumer_lag"]
    assert [tuple(row[name] for name in names) for row in made] == [
        (1, 0, None, None, None),
        (2, 100, "GROWING", 300, None),
        (3, 200, "GROWING", 400, None),
        (4, 20, "SHRINKING", -180, 6666),
    ]


def test_rows_before_a_clock_was_set_back_are_no_past_of_a_trend() -> None:
    rows: Rows = {}
    broker = Emitter(rows)
    for at, end in ((100, 100), (40, 500), (60, 520)):
        broker.at(at)
        broker.watermark(committed=0, max_offset=end)
        broker.ship()
    made = run(JUDGES, bronze(rows), SHORT)["consumer_lag"]
    rates = [row["lag_change_per_minute"] for row in sorted(made, key=lambda row: row["seq"])]
    assert rates == [None, None, 60]


def standing(story: Story, *, until: int, head: str | None = "M1") -> None:
    """A queue whose consume offset stands at 80 while messages come."""
    for at in range(2, until, 2):
        broker = story.at(at)
        last_pull = broker.now_us
        broker.watermark(max_offset=100 + at, pulled=90 + at, last_pull_time=last_pull)
        broker.sample(
            held_count=10 if head else 0,
            head_message_id=head,
            head_since=START_US,
            stack="at listener",
        )
    story.at(until)


def test_a_head_that_stands_opens_a_window_that_names_it_and_moving_on_closes_it() -> None:
    story = Story()
    standing(story, until=30)
    story.broker.watermark(committed=150, max_offset=150, pulled=150, committed_state="AT_END")
    story.at(40)
    opened, closed = story.gold()["stalled_windows"]
    assert (opened["rule"], opened["kind"], opened["state"]) == ("STALLED", "FROZEN_HEAD", "OPEN")
    assert opened["evidence"] == (
        "Group g is stuck on queue 0 of t on broker-a: message M1 has been in a listener of "
        "client-1 since 12:00:00 UTC. Offset 80 has not moved for 10 s, while pulls went from 94 "
        "to 104; 34 messages wait, the oldest for 1.0 s. See where its listener stands."
    )
    assert (opened["head_message_id"], opened["stack"]) == ("M1", "at listener")
    assert (second(opened["opened_at"]), second(opened["observed_at"])) == (12, 14)
    assert (closed["revision"], closed["state"]) == (2, "CLOSED")
    assert closed["evidence"] == (
        "Group g is well again on queue 0 of t on broker-a. It is at offset 150, 0 messages behind."
    )
    assert closed["window_id"] == opened["window_id"]


def test_what_a_crash_would_repeat_is_reported_on_the_grid_while_a_head_stands() -> None:
    story = Story()
    standing(story, until=32)
    reported = bronze(story.rows)
    facts = facts_between(reported, {}, horizons_of(reported)[-1])
    judged = compute(JUDGES, facts, {}, SHORT).state["exposures"]["open"].to_pylist()
    [exposure] = judged
    assert (exposure["from_offset"], exposure["to_offset"]) == (80, 120)
    assert exposure["revision"] == 3, "opened, and revised at 20 and 30 s"


def test_a_group_is_reported_when_it_changed_and_otherwise_each_ten_minutes() -> None:
    story = Story()
    broker = story.at(8)
    story.event("SNAPSHOT", seq_from=1)
    broker.watermark(committed=105, committed_state="AT_END", max_offset=105)
    broker.watermark(1, committed=100, committed_state="AT_END")
    story.at(1300)
    made = story.gold()["group_state"]
    assert [second(row["observed_at"]) for row in made] == [10, 20, 600, 1200]
    first = made[0]
    assert (first["state"], first["reason"]) == (
        "OK",
        "Group g is 0 messages behind on 2 queues.",
    )
    assert (first["queues"], first["lag_messages"], first["members"]) == (2, 0, 1)


@pytest.mark.parametrize(
    ("values", "state", "reason"),
    [
        (
            {"committed": None, "committed_state": "NONE"},
            "UNKNOWN",
            "Group g has no offset on queue 0 of t on broker-a.",
        ),
        (
            {"message_model": "BROADCASTING"},
            "BROADCAST",
            "Group g broadcasts: each client keeps its",
        ),
        (
            {"committed": 3, "min_offset": 9, "committed_state": "PURGED"},
            "DATA_LOST",
            "Group g loses messages of queue 0 of t on broker-a: they are deleted before it reads",
        ),
    ],
)
def test_a_group_is_as_its_worst_queue(values: dict[str, Any], state: str, reason: str) -> None:
    story = Story()
    for at in (1, 3, 5, 7, 9):
        story.at(at).watermark(**values)
    story.at(11)
    newest = story.gold()["group_state"][-1]
    assert newest["state"] == state
    assert newest["reason"].startswith(reason)


def test_a_queue_that_says_nothing_is_unchanged_while_its_broker_s_horizon_goes_on() -> None:
    """A group that stopped consuming is stalled after minutes without a row, too."""
    story = Story()
    broker = story.at(2)
    broker.watermark(committed=10, max_offset=10, pulled=10, committed_state="AT_END")
    broker.watermark(1, committed=10, max_offset=90, pulled=20)
    story.event("SNAPSHOT", seq_from=1)
    for at in (60, 120, 180):
        story.at(at)
    windows = story.gold()["stalled_windows"]
    assert {(row["queue_id"], row["rule"], row["state"]) for row in windows} == {
        (1, "STALLED", "OPEN")
    }


@pytest.mark.parametrize(
    "ending",
    [
        {"kind": "GROUP_GONE", "group": "g"},
        {"kind": "TOPIC_GONE", "topic": "t"},
        {"kind": "TOPIC_LEFT", "group": "g", "topic": "t"},
        {"kind": "SNAPSHOT", "seq_from": 10**9},
    ],
    ids=lambda ending: str(ending["kind"]),
)
def test_what_is_gone_leaves_nothing_open(ending: dict[str, Any]) -> None:
    story = Story()
    story.event("SNAPSHOT", seq_from=1)
    standing(story, until=30)
    story.event(**ending)
    story.at(60)
    gold = story.gold()
    *_, last = gold["stalled_windows"]
    assert last["state"] == "CLOSED"
    assert last["evidence"] == (
        "Group g does not read queue 0 of t on broker-a any more: it left the topic, its offsets "
        "there were deleted, or the queue is gone."
    )
    assert max(second(row["observed_at"]) for row in gold["group_state"]) <= 32


def test_a_group_made_again_is_compared_with_nothing_of_its_earlier_life() -> None:
    story = Story()
    story.event("SNAPSHOT", seq_from=1)
    standing(story, until=30)
    story.event("GROUP_GONE", group="g")
    story.broker.watermark(committed=80, max_offset=130, pulled=130)
    story.at(38)
    windows = story.gold()["stalled_windows"]
    assert [row["state"] for row in windows] == ["OPEN", "CLOSED"], "at 80 as before, yet new"


def test_a_loss_of_rows_makes_everything_of_a_broker_unknown_until_its_next_snapshot() -> None:
    story = Story()
    story.event("SNAPSHOT", seq_from=1)
    story.at(4).watermark(committed=95)
    story.at(31)
    story.event("SPOOL_LOSS")
    story.at(65)
    loss = story.broker.seq
    story.event("SNAPSHOT", seq_from=loss)
    story.broker.watermark(committed=96)
    story.at(71)
    story.event("SNAPSHOT", seq_from=loss + 1)
    story.at(85)
    lags = [
        (second(row["observed_at"]), row["state"], row["lag_messages"])
        for row in story.gold()["group_state"]
    ]
    assert (32, "UNKNOWN", None) in lags
    assert not [row for row in lags if 32 < row[0] < 72], "nothing is concluded in between"
    assert (72, "OK", 4) in lags
    unknown = [row for row in story.gold()["group_state"] if row["state"] == "UNKNOWN"]
    assert {row["reason"] for row in unknown} == {
        f"Nothing is known of group g on broker-a: {WORDS['SPOOL_LOSS']}."
    }


def test_a_broker_that_was_dead_for_a_while_makes_its_groups_unknown() -> None:
    rows: Rows = {}
    broker = Emitter(rows)
    broker.at(0)
    broker.boot()
    broker.watermark(committed=95)
    broker.at(21)
    broker.ship()
    broker.at(81)
    broker.boot()
    broker.watermark(committed=96)
    broker.ship()
    broker.at(91)
    broker.ship()
    lags = [
        (second(row["observed_at"]), row["state"], row["lag_messages"])
        for row in run(JUDGES, bronze(rows), SHORT)["group_state"]
    ]
    assert lags == [
        (0, "OK", 5),
        (10, "OK", 5),
        (22, "UNKNOWN", None),
        (82, "OK", 4),
        (90, "OK", 4),
    ]


def consuming(*, produced: int, consumed: int, commit_s: int, behind: int, seconds: int) -> Story:
    """Rows each second of a queue that is written and read at these rates a second."""
    story = Story()
    for at in range(1, seconds):
        broker = story.at(at)
        done = at // commit_s * commit_s * consumed
        end = behind + at * produced
        begin = broker.now_us - behind // produced * SECOND
        broker.watermark(
            committed=1000 + done,
            pulled=1000 + at * consumed,
            max_offset=1000 + end,
            min_offset=500,
            store_time_at_committed=begin,
        )
    story.at(seconds)
    return story


@pytest.mark.parametrize("commit_s", [1, 2, 5])
def test_a_group_that_falls_behind_by_one_in_a_hundred_is_slow_as_soon_as_it_is_far_behind(
    commit_s: int,
) -> None:
    """1,045,000 messages and 17 minutes behind, and falling further: SLOW from the second window
    on, whatever share of what is produced is missing, and however often offsets are reported; at
    what rate it falls behind is said when that is certain.
    """
    rates = {"produced": 1000, "consumed": 990, "behind": 1_045_000}
    gold = consuming(**rates, commit_s=commit_s, seconds=310).gold()
    opened, window = gold["stalled_windows"]
    assert {(row["rule"], row["state"]) for row in (opened, window)} == {("SLOW", "OPEN")}
    assert 10 <= second(opened["observed_at"]) <= 20
    assert "the oldest for 17 min" in opened["evidence"]
    assert 240 <= second(window["observed_at"]) <= 250
    assert abs(window["growth_per_hour"] - 36_000) <= 36_000 // 5
    assert "are deleted unread in about" in window["evidence"]
    assert gold["group_state"][-1]["state"] == "SLOW"
    assert gold["consumer_lag"][-1]["trend"] != "SHRINKING"


@pytest.mark.parametrize(
    ("consumed", "seconds", "state", "trend", "words"),
    [
        (
            1000,
            11,
            "UNKNOWN",
            None,
            "Whether group g gains on queue 0 of t on broker-a is not certain yet",
        ),
        (1000, 20, "SLOW", "STEADY", "behind, for longer than is allowed"),
        (1010, 310, "CATCHING_UP", "SHRINKING", "done in about 28 h 56 min at this rate"),
    ],
)
def test_a_group_far_behind_is_slow_in_its_second_window_until_it_is_certain_to_catch_up(
    consumed: int, seconds: int, state: str, trend: str | None, words: str
) -> None:
    rates = {"produced": 1000, "consumed": consumed, "behind": 1_045_000}
    gold = consuming(**rates, commit_s=5, seconds=seconds).gold()
    newest = gold["group_state"][-1]
    assert (newest["state"], newest["trend"]) == (state, trend)
    assert words in newest["reason"]
    shown = [(row["rule"], row["state"]) for row in gold.get("stalled_windows", [])]
    assert (
        shown
        == {
            "UNKNOWN": [],
            "SLOW": [("SLOW", "OPEN")],
            "CATCHING_UP": [("SLOW", "OPEN"), ("SLOW", "CLOSED")],
        }[state]
    )


def test_a_lag_that_grows_by_a_tenth_in_an_hour_is_not_steady() -> None:
    rates = {"produced": 1000, "consumed": 970, "behind": 1_045_000}
    last = consuming(**rates, commit_s=1, seconds=70).gold()["consumer_lag"][-1]
    assert (last["trend"], last["lag_change_per_minute"]) == ("GROWING", 1800)


def test_a_row_of_a_clock_that_was_ahead_does_not_overrule_a_newer_one() -> None:
    """The clock was at 20 s when it said 0 behind, and right again when 50 waited."""
    story = Story()
    broker = story.at(2)
    broker.at(20)
    broker.watermark(committed=100, committed_state="AT_END")
    broker.at(3)
    broker.watermark(committed=50)
    story.at(31)
    states = story.gold()["group_state"]
    assert {row["lag_messages"] for row in states} == {50}
