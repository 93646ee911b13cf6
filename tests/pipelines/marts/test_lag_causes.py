"""Why a group is behind: each cause from literal rows, and the story in which it is none."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.base.settings import Evaluation
from pipelines.marts.lag_causes import period_us
from tests.pipelines.bronze_lake import SECOND
from tests.pipelines.gold_lake import SHORT
from tests.pipelines.marts.lagging_group import STEPS, Story, behind
from tests.pipelines.marts.reported_story import Emitter, bronze, second
from tests.pipelines.partition import horizons_of, run


def test_a_group_that_keeps_up_has_no_causes_whatever_its_members_report() -> None:
    story = Story()
    story.stats(listeners_busy=20, listeners_queued=900, flow_count_ms=50_000)
    assert story.run(40, sent=(20, 20), done=(20, 20)).cause_rows() == []


def test_a_saturated_pool_is_named_with_its_listeners_and_what_they_can_do() -> None:
    found = behind(listeners_busy=20, listeners_queued=700, consume_us_mean=50_000).causes()
    row = found["LISTENERS_SATURATED"]
    assert (row["measured"], row["expected"], row["unit"]) == (20, 20, "listener calls at once")
    assert (row["client_id"], row["share_percent"]) == ("c@1", 100)
    assert row["evidence"] == (
        "Group g has no free listener: all 20 listeners of c@1 are at work and 700 batches wait "
        "for one. A call takes 50 ms on average, so that client makes at most 24,000 calls a "
        "minute. Add consumers or listeners, or see what the calls wait for."
    )


@pytest.mark.parametrize(
    "stats",
    [
        {"listeners_busy": 19, "listeners_queued": 700},
        {"listeners_busy": 20, "listeners_queued": 0},
        {"listeners_busy": None, "listeners_queued": None},
    ],
)
def test_a_pool_with_a_free_listener_or_nothing_that_waits_is_not_saturated(
    stats: dict[str, Any],
) -> None:
    assert "LISTENERS_SATURATED" not in behind(**stats).causes()


@pytest.mark.parametrize("kind", ["count", "bytes", "span"])
def test_rests_of_pulls_are_named_by_what_there_was_too_much_of(kind: str) -> None:
    found = behind(**{f"flow_{kind}_ms": 30_000}).causes()
    assert set(found) == {f"FLOW_CONTROL_{kind.upper()}"}
    [row] = found.values()
    assert (row["measured"], row["unit"]) == (30_000, "ms of rest a minute")
    assert row["share_percent"] == 25, "30 s of two queues' minutes"
    assert (row["topic"], row["client_id"]) == ("t", "c@1")
    assert "30.0 s of the last minute" in row["evidence"]


def at_rest(story: Story, queue: int = 0, **values: Any) -> None:
    """A member says that it pulls a queue no more: too much lies behind an unfinished message."""
    fields = {"first_held": 7, "held_count": 1, "finished_count": 2_000, "resting": "SPAN"}
    now_us = story.broker.now_us
    times = {"head_since": now_us - 40 * SECOND, "last_pull_time": now_us}
    story.broker.sample(queue, **{"client_id": "c@1", **fields, **times, **values})


def test_a_queue_that_is_not_pulled_for_its_head_is_named_with_what_is_behind() -> None:
    story = behind()
    at_rest(story)
    story.stats(flow_span_ms=30_000)
    row = story.run(6, sent=(20, 20), done=(5, 5)).causes()["FLOW_CONTROL_SPAN"]
    seconds = 40 + round(second(row["observed_at"])) - 46
    assert row["evidence"] == (
        "Group g pulls less than it could: too much lies beyond an unfinished message. Queue 0 of "
        f"t is not pulled: offset 7 has been in a listener of c@1 for {seconds} s, and 2,000 "
        "messages behind it are finished or held (queue_span_max). Pulls rested for 30.0 s of the "
        "last minute, summed over the queues, those of c@1 for t longest. See where the listener "
        "of that message stands."
    )
    assert (row["queue_id"], row["measured"]) == (0, 30_000)


def test_of_queues_that_are_not_pulled_the_one_with_most_behind_its_head_is_named() -> None:
    story = behind()
    at_rest(story)
    at_rest(story, 1, head_since=None, finished_count=2_010)
    story.stats(flow_span_ms=30_000)
    row = story.run(6, sent=(20, 20), done=(5, 5)).causes()["FLOW_CONTROL_SPAN"]
    assert row["queue_id"] == 1
    assert "offset 7 waits for another try, and 2,010 messages" in row["evidence"]
    assert "(queue_span_max); 1 more queue stands like it. Pulls rested" in row["evidence"]


@pytest.mark.parametrize("after", ["pulled again", "dropped", "its member left"])
def test_a_queue_that_is_pulled_again_or_by_another_is_not_named_any_more(after: str) -> None:
    story = behind()
    at_rest(story)
    story.stats(flow_span_ms=30_000)
    if after == "its member left":
        story.broker.report(
            "rebalance_events",
            group="g",
            client_id="c@1",
            kind="LEFT",
            generation=2,
            inferred=False,
        )
        story.stats("c@2", flow_span_ms=30_000)
    else:
        at_rest(story, resting=None, dropped=after == "dropped")
    row = story.run(6, sent=(20, 20), done=(5, 5)).causes()["FLOW_CONTROL_SPAN"]
    assert row["queue_id"] is None
    assert "is not pulled" not in row["evidence"]


def test_rests_of_less_than_a_second_are_no_cause() -> None:
    assert set(behind(flow_count_ms=950).causes()) == {"UNKNOWN"}


def test_a_listener_whose_calls_grew_is_slow_by_its_p99() -> None:
    row = behind(consume_ms_p99=200, consume_us_mean=90_000).causes()["SLOW_LISTENER"]
    assert (row["measured"], row["expected"], row["unit"]) == (200, 20, "ms a call, p99")
    assert (row["topic"], row["client_id"]) == ("t", "c@1")
    assert row["evidence"].startswith("Group g is slower than it was: 99 % of the listener calls")
    assert (
        "up to 200 ms in the last minute, and 20 ms before the group fell behind."
        in row["evidence"]
    )


def test_a_client_that_reports_no_percentiles_is_slow_by_its_mean() -> None:
    story = Story()
    java = {"consume_ms_p99": None, "consume_ms_p50": None, "listeners_busy": None, "calls": None}
    story.stats(**java)
    story.run(30, sent=(20, 20), done=(20, 20)).run(10, sent=(20, 20), done=(5, 5))
    story.stats(**java, consume_us_mean=80_000)
    row = story.run(6, sent=(20, 20), done=(5, 5)).causes()["SLOW_LISTENER"]
    assert (row["measured"], row["expected"], row["unit"]) == (80, 10, "ms a call, mean")


@pytest.mark.parametrize("now", [20, 24, 39, 59])
def test_a_listener_that_was_always_as_slow_is_not_what_changed(now: int) -> None:
    assert set(behind(consume_ms_p99=now).causes()) == {"UNKNOWN"}


def test_one_queue_that_is_given_most_is_hot() -> None:
    story = Story().run(30, sent=(10, 10), done=(10, 10))
    row = story.run(12, sent=(100, 1), done=(10, 10)).causes()["HOT_QUEUE"]
    assert (row["topic"], row["queue_id"]) == ("t", 0)
    assert row["measured"] >= 80
    assert (row["expected"], row["unit"], row["share_percent"]) == (50, "% of what was sent", 100)


def test_a_hot_queue_stays_hot_when_nothing_is_sent_any_more() -> None:
    story = Story().run(30, sent=(10, 10), done=(10, 10)).run(12, sent=(100, 1), done=(10, 10))
    row = story.run(40, sent=(0, 0), done=(10, 10)).causes()["HOT_QUEUE"]
    assert "nothing was sent lately, and most to it before" in row["evidence"]
    assert (row["measured"], row["unit"]) == (100, "% of the lag")
    assert "LAGGING_QUEUE" not in {one["cause"] for one in story.cause_rows()}


def test_a_cause_that_moves_about_its_limit_does_not_come_and_go() -> None:
    story = behind()
    for _ in range(10):
        for queued in (9, 0):
            story.stats(listeners_busy=20, listeners_queued=queued)
            story.run(2, sent=(20, 20), done=(5, 5))
    later = [row for row in story.cause_rows() if second(row["observed_at"]) >= 50]
    assert {row["cause"] for row in later} == {"LISTENERS_SATURATED"}
    assert len(later) <= 3, "again each two windows, and not with each change"


def test_a_group_about_what_it_is_allowed_does_not_come_and_go() -> None:
    story = behind(listeners_busy=20, listeners_queued=9)
    for _ in range(8):
        story.run(2, sent=(20, 20), done=(30, 30)).run(2, sent=(20, 20), done=(10, 10))
    assert "NONE" not in {row["cause"] for row in story.cause_rows()}


def test_a_member_that_left_takes_what_it_was_named_for_along() -> None:
    story = behind(listeners_busy=20, listeners_queued=9)
    left = {"client_id": "c@1", "kind": "LEFT", "generation": 2, "inferred": False}
    story.broker.report("rebalance_events", group="g", **left)
    assert "LISTENERS_SATURATED" not in story.run(3, sent=(20, 20), done=(5, 5)).causes()


def test_a_listener_that_became_slow_while_the_group_kept_up_for_a_while_is_slow() -> None:
    story = Story()
    story.stats()
    story.run(30, sent=(20, 20), done=(20, 20))
    for _ in range(8):
        story.stats(consume_ms_p99=200, consume_us_mean=90_000)
        story.run(5, sent=(20, 20), done=(20, 20))
    row = story.run(12, sent=(20, 20), done=(5, 5)).causes()["SLOW_LISTENER"]
    assert row["measured"] == 200
    assert row["expected"] <= 45, "what is usual has hardly followed"


def test_a_listener_with_hardly_anything_to_do_holds_up_nobody() -> None:
    idle = {"calls": 60, "consume_us_mean": 90_000, "listeners_busy": 0}
    assert "SLOW_LISTENER" not in behind(consume_ms_p99=200, **idle).causes()


def test_a_rate_that_ended_was_no_burst() -> None:
    story = Story().run(30, sent=(30, 30), done=(20, 20)).run(60, sent=(0, 0), done=(1, 1))
    assert "BURST" not in {row["cause"] for row in story.cause_rows()}


def test_members_without_queues_of_two_topics_are_one_cause() -> None:
    story = behind(group_members=3, topic_queues=2, queues_held=1)
    for topic in ("t", "u"):
        story.stats("c@2", topic=topic, group_members=3, queues_held=0)
    found = story.run(3, sent=(20, 20), done=(5, 5)).cause_rows()
    rows = [row for row in found if row["cause"] == "FEWER_QUEUES_THAN_MEMBERS"]
    assert len({row["observed_at"] for row in rows}) == len(rows), "a row a cause and tick"
    assert "The same holds for" in rows[-1]["evidence"]


def test_reads_from_afar_that_were_in_memory_are_no_cause() -> None:
    cold = {"group": "g", "topic": "t", "pulls": 50, "messages": 400, "size_bytes": 400_000}
    cold |= {"behind_bytes_max": 9_000, "resident_bytes": 8_000, "messages_a_pull_max": 8}
    for read_bytes, is_cause in ((399_000, True), (100_000, False)):
        story = behind()
        story.broker.report("cold_reads", **cold, disk_read_bytes=read_bytes)
        found = story.run(4, sent=(20, 20), done=(5, 5)).causes()
        assert ("COLD_READS" in found) is is_cause
    assert found["UNKNOWN"]


def test_a_few_reads_from_afar_are_no_cause() -> None:
    story = behind()
    story.broker.report("cold_reads", group="g", topic="t", pulls=1, messages=20, size_bytes=9,
                        behind_bytes_max=9, resident_bytes=1, messages_a_pull_max=8)  # fmt: skip
    assert "COLD_READS" not in story.run(4, sent=(20, 20), done=(5, 5)).causes()


def test_one_queue_whose_reader_is_slower_is_not_hot_but_lags() -> None:
    story = Story().run(30, sent=(20, 20), done=(20, 20))
    found = story.run(12, sent=(20, 20), done=(20, 2)).causes()
    assert "HOT_QUEUE" not in found
    row = found["LAGGING_QUEUE"]
    assert (row["queue_id"], row["measured"], row["expected"]) == (1, 100, 50)
    assert "was given 50 % of what was sent" in row["evidence"]


def test_with_the_lag_of_a_queue_unknown_that_of_the_group_is_a_lower_bound() -> None:
    story = Story().run(30, sent=(20, 20), done=(20, 20))
    story.broker.watermark(7, committed=None, committed_state="NONE", pulled=None, persisted=None)
    row = story.run(12, sent=(20, 20), done=(20, 2)).causes()["LAGGING_QUEUE"]
    assert row["lag_messages"] is None
    assert row["lag_at_least_messages"] >= 100
    assert "% of the topic's known lag, which is not that of all queues," in row["evidence"]
    known = Story().run(30, sent=(20, 20), done=(20, 20)).run(12, sent=(20, 20), done=(20, 2))
    row = known.causes()["LAGGING_QUEUE"]
    assert row["lag_messages"] == row["lag_at_least_messages"]


def test_queues_that_are_behind_alike_do_not_stand_out() -> None:
    assert not {"HOT_QUEUE", "LAGGING_QUEUE"} & set(behind().causes())


def window(story: Story, **values: Any) -> None:
    story.broker.sample(0, **{"client_id": "c@1", "held_count": 500, **values})


def test_a_key_that_most_of_what_waits_has_is_named() -> None:
    story = Story().run(30, sent=(10, 10), done=(10, 10)).run(10, sent=(100, 1), done=(10, 10))
    window(story, top_key="customer-7", top_key_messages=240, keyed_messages=256)
    row = story.run(3, sent=(100, 1), done=(10, 10)).causes()["HOT_KEY"]
    assert (row["measured"], row["expected"], row["share_percent"]) == (240, 256, 93)
    assert "waits for one key of t, customer-7: 240 of 256 messages" in row["evidence"]
    assert "That is some 93 % of the topic's lag beyond its allowance." in row["evidence"]
    window(story, top_key="customer-9", top_key_messages=20, keyed_messages=256)
    assert "HOT_KEY" not in story.run(20, sent=(100, 1), done=(10, 10)).causes()


def test_a_key_of_all_queues_is_named_and_one_of_each_queue_is_not() -> None:
    for other, is_hot in (("customer-7", True), ("customer-8", False)):
        story = behind()
        for queue, key in enumerate(("customer-7", other)):
            story.broker.sample(
                queue, client_id="c@1", held_count=90,
                top_key=key, top_key_messages=240, keyed_messages=256,
            )  # fmt: skip
        assert ("HOT_KEY" in story.run(3, sent=(20, 20), done=(5, 5)).causes()) is is_hot


@pytest.mark.parametrize(("of_it", "keyed"), [(100, 256), (19, 19), (0, 0)])
def test_many_keys_or_few_messages_with_any_are_no_hot_key(of_it: int, keyed: int) -> None:
    story = behind()
    window(story, top_key="customer-7", top_key_messages=of_it, keyed_messages=keyed)
    assert "HOT_KEY" not in story.run(3, sent=(20, 20), done=(5, 5)).causes()


def test_a_topic_with_fewer_queues_than_the_group_has_members_is_named() -> None:
    story = behind(group_members=3, topic_queues=2, queues_held=1)
    story.stats("c@2", group_members=3, queues_held=1)
    story.stats("c@3", group_members=3, queues_held=0)
    row = story.run(3, sent=(20, 20), done=(5, 5)).causes()["FEWER_QUEUES_THAN_MEMBERS"]
    assert (row["measured"], row["expected"], row["unit"]) == (2, 3, "queues")
    assert (row["client_id"], row["share_percent"]) == ("c@3", 33)
    assert row["evidence"] == (
        "Group g has 3 members for 2 queues of t: 1 has nothing to do, c@3. Give the topic more "
        "queues, or stop members that have none."
    )


def test_a_member_that_holds_nothing_though_there_are_queues_enough_is_named() -> None:
    story = behind(group_members=2, topic_queues=2, queues_held=2)
    story.stats("c@2", group_members=2, topic_queues=2, queues_held=0)
    found = story.run(28, sent=(20, 20), done=(5, 5)).causes()
    assert "FEWER_QUEUES_THAN_MEMBERS" not in found
    row = found["MEMBERS_WITHOUT_QUEUES"]
    assert (row["measured"], row["client_id"], row["share_percent"]) == (1, "c@2", 50)


@pytest.mark.parametrize("progress", [None, 2], ids=["has not divided them", "has taken none yet"])
def test_a_member_that_has_just_joined_is_given_time_to_divide_the_queues(
    progress: int | None,
) -> None:
    """With queues enough for all, one is given to it as soon as another lets go of it."""
    story = behind(group_members=2, topic_queues=2, queues_held=2)
    story.stats("c@2", group_members=progress, topic_queues=progress, queues_held=0)
    assert set(story.run(20, sent=(20, 20), done=(5, 5)).causes()) == {"UNKNOWN"}
    story.stats("c@2", group_members=progress, topic_queues=progress, queues_held=0)
    assert "MEMBERS_WITHOUT_QUEUES" in story.run(8, sent=(20, 20), done=(5, 5)).causes()


def test_a_member_that_left_is_not_looked_at() -> None:
    story = behind(group_members=2, topic_queues=2, queues_held=2)
    story.stats("c@2", queues_held=0)
    story.broker.report(
        "rebalance_events", group="g", client_id="c@2", kind="LEFT", generation=2, inferred=False
    )
    assert set(story.run(3, sent=(20, 20), done=(5, 5)).causes()) == {"UNKNOWN"}


def test_what_was_reported_before_rows_were_lost_is_no_cause_behind_them() -> None:
    """What has changed since may be among them; whoever lives reports it anew."""
    story = behind()
    story.stats("c@2", group_members=4, topic_queues=2, queues_held=0, flow_bytes_ms=40_000)
    for queue in (0, 1):
        story.broker.sample(
            queue, client_id="c@1", held_count=90,
            top_key="customer-7", top_key_messages=240, keyed_messages=256,
        )  # fmt: skip
    before = story.run(3, sent=(20, 20), done=(5, 5)).causes()
    assert {"FEWER_QUEUES_THAN_MEMBERS", "FLOW_CONTROL_BYTES", "HOT_KEY"} <= set(before)

    story.broker.report("lifecycle", kind="SPOOL_LOSS")
    story.broker.report("lifecycle", kind="SNAPSHOT", seq_from=story.broker.seq + 1)
    assert set(story.run(28, sent=(20, 20), done=(5, 5)).causes()) == {"UNKNOWN"}

    story.stats(flow_bytes_ms=40_000)
    assert set(story.run(3, sent=(20, 20), done=(5, 5)).causes()) == {"FLOW_CONTROL_BYTES"}


def test_members_that_all_hold_queues_are_no_cause() -> None:
    story = behind(group_members=2, topic_queues=2, queues_held=1)
    story.stats("c@2", group_members=2, queues_held=1)
    assert set(story.run(3, sent=(20, 20), done=(5, 5)).causes()) == {"UNKNOWN"}


def test_retries_that_are_a_third_of_what_is_consumed_crowd_out_new_messages() -> None:
    story = behind(failed=240)
    for _ in range(15):
        story.retry(10)
        story.run(1, sent=(20, 20), done=(5, 5))
    row = story.causes()["RETRIES"]
    assert row["share_percent"] >= 30
    assert "were retries. Its listeners fail 240 messages a minute." in row["evidence"]


def test_a_few_retries_are_no_cause() -> None:
    story = behind()
    for _ in range(15):
        story.retry(1)
        story.run(1, sent=(20, 20), done=(5, 5))
    assert "RETRIES" not in story.causes()


def test_a_burst_is_reported_with_what_is_usual_even_when_it_is_over() -> None:
    story = Story().run(60, sent=(10, 10), done=(10, 10))
    story.run(5, sent=(400, 400), done=(10, 10))
    story.run(25, sent=(10, 10), done=(12, 12))
    row = story.causes()["BURST"]
    assert (row["measured"], row["expected"]) == (4100, 200)
    assert row["unit"] == "messages in 10 s"
    assert "was sent a burst: 4,100 messages in the 10 s from 12:01:00 UTC" in row["evidence"]


def test_a_group_that_falls_behind_what_is_usual_has_no_burst() -> None:
    assert "BURST" not in Story().run(80, sent=(30, 30), done=(10, 10)).causes()


def test_reads_from_far_behind_the_end_are_reported_for_as_long_as_they_go_on() -> None:
    cold = {"group": "g", "topic": "t", "pulls": 50, "messages": 400, "size_bytes": 400_000}
    cold |= {"behind_bytes_max": 9_000, "resident_bytes": 8_000, "messages_a_pull_max": 8}
    story = behind()
    story.broker.report("cold_reads", **cold)
    row = story.run(4, sent=(20, 20), done=(5, 5)).causes()["COLD_READS"]
    assert (row["measured"], row["expected"]) == (9_000, 8_000)
    assert row["unit"] == "bytes behind the end of the log"
    assert "in 50 answers of at most 8" in row["evidence"]
    assert "COLD_READS" not in story.run(40, sent=(20, 20), done=(5, 5)).causes()


def coming_and_going(story: Story, times: int) -> Story:
    for number in range(times):
        for kind in ("LEFT", "JOINED"):
            story.broker.report(
                "rebalance_events",
                inferred=False,
                group="g",
                client_id="c@2",
                kind=kind,
                generation=number,
            )
            story.run(2, sent=(20, 20), done=(5, 5))
    return story


def test_members_that_come_and_go_are_named_with_how_often() -> None:
    row = coming_and_going(behind(), 3).causes()["REBALANCE_FLAPPING"]
    assert (row["measured"], row["client_id"]) == (6, "c@2")
    assert "It was joined by c@2 (3 times), and left by c@2 (3 times)." in row["evidence"]


def test_one_restart_of_a_member_is_no_flapping() -> None:
    assert "REBALANCE_FLAPPING" not in coming_and_going(behind(), 1).causes()


def test_a_rolling_restart_and_a_group_that_grows_or_shrinks_do_not_flap() -> None:
    stories = {
        "restart": [(f"c@{number}", kind) for number in range(4) for kind in ("LEFT", "JOINED")],
        "growth": [(f"c@{number}", "JOINED") for number in range(3, 10)],
        "end": [(f"c@{number}", "EXPIRED") for number in range(3, 10)],
        "scale-out and scale-in": [
            *((f"c@{number}", "JOINED") for number in range(3, 11)),
            *((f"c@{number}", "LEFT") for number in range(5, 11)),
        ],
    }
    for name, changes in stories.items():
        story = behind()
        story.members = 10 if name == "growth" else 4
        for client, kind in changes:
            story.broker.report(
                "rebalance_events",
                inferred=False,
                group="g",
                client_id=client,
                kind=kind,
                generation=1,
            )
        assert "REBALANCE_FLAPPING" not in story.run(3, sent=(20, 20), done=(5, 5)).causes()


def test_a_suspended_consumer_and_a_group_without_members_are_named() -> None:
    assert behind(paused=True).causes()["PAUSED"]["client_id"] == "c@1"
    story = behind()
    story.members = 0
    assert "NO_MEMBERS" in story.run(3, sent=(20, 20), done=(0, 0)).causes()
    assert "NO_MEMBERS" not in behind().causes()


def test_a_queue_that_stands_is_a_cause_in_the_words_of_the_state() -> None:
    story = Story().run(30, sent=(20, 20), done=(20, 20))
    row = story.run(30, sent=(20, 20), done=(0, 20)).causes()["STANDING_QUEUES"]
    assert "queue 0 of t" in row["evidence"]
    assert "STANDING_QUEUES" not in behind().causes()


def test_without_facts_the_cause_is_unknown_and_the_reason_is_said() -> None:
    story = Story().run(30, sent=(20, 20), done=(20, 20))
    [row] = story.run(12, sent=(20, 20), done=(5, 5)).causes().values()
    assert (row["cause"], row["measured"]) == ("UNKNOWN", None)
    assert row["evidence"].startswith(
        "Why group g is behind on broker-a is unknown: no member reports"
    )
    java = {"listeners_busy": None, "listeners_queued": None, "flow_count_ms": None}
    java |= {"flow_bytes_ms": None, "flow_span_ms": None}
    story = behind(**java).run(20, sent=(20, 20), done=(5, 5))
    [row] = story.causes().values()
    assert "its clients, which are not Tidemark's," in row["evidence"]
    [row] = behind().causes().values()
    assert "is unknown: no rule finds a cause. 3 of 20 listeners" in row["evidence"]


def test_a_group_that_has_caught_up_says_so_once() -> None:
    story = behind(listeners_busy=20, listeners_queued=9)
    story.run(40, sent=(0, 0), done=(50, 50))
    rows = story.cause_rows()
    assert [row["cause"] for row in rows if row["cause"] == "NONE"] == ["NONE"]
    last = max(rows, key=lambda row: row["observed_at"])
    assert last["cause"] == "NONE"
    assert last["lag_messages"] <= 100, "five seconds of what was sent lately"


def test_causes_are_reported_when_they_change_and_again_each_two_windows() -> None:
    story = behind(listeners_busy=20, listeners_queued=9)
    story.run(40, sent=(20, 20), done=(5, 5))
    times = [second(row["observed_at"]) for row in story.cause_rows() if row["cause"] != "UNKNOWN"]
    steps = [after - before for before, after in pairwise(times)]
    assert set(steps) == {2 * SHORT.window_us / SECOND}


def test_causes_are_unknown_while_the_broker_says_nothing() -> None:
    story = behind(listeners_busy=20, listeners_queued=9)
    story.now += 120
    story.broker.at(story.now)
    story.broker.boot()
    rows = story.run(3, sent=(0, 0), done=(0, 0)).cause_rows()
    dead = [row for row in rows if "reported nothing more" in row["evidence"]]
    assert [row["cause"] for row in dead] == ["UNKNOWN"]


def test_messages_of_a_deleted_topic_are_nobodys_lag() -> None:
    story = behind(listeners_busy=20, listeners_queued=9)
    story.broker.report("lifecycle", kind="TOPIC_GONE", topic="t")
    story.now += 4
    story.broker.at(story.now)
    story.broker.ship()
    assert set(story.causes()) == {"NONE"}


def test_two_brokers_and_two_groups_do_not_mix() -> None:
    story = behind(listeners_busy=20, listeners_queued=9)
    other = Emitter(story.rows, broker="broker-b")
    other.at(0)
    other.boot()
    for at in range(1, 47):
        other.at(at)
        other.watermark(0, committed=20 * at, max_offset=20 * at, committed_state="AT_END")
        other.watermark(0, group="h", committed=5 * at, max_offset=20 * at)
        other.ship()
    rows = story.cause_rows()
    assert {(row["broker"], row["group"]) for row in rows} == {
        ("broker-a", "g"),
        ("broker-b", "h"),
    }
    assert {row["cause"] for row in rows if row["group"] == "h"} == {"UNKNOWN"}


@pytest.mark.parametrize(
    ("evaluation", "seconds"), [(Evaluation(), 10), (SHORT, 2), (Evaluation(3000, 1000), 1)]
)
def test_causes_are_looked_at_three_times_in_a_window_or_at_each_tick(
    evaluation: Evaluation, seconds: int
) -> None:
    assert period_us(evaluation) == seconds * SECOND


def on_many_queues(hot: int) -> Story:
    """A group on 1,000 queues of five messages a second each that are consumed two seconds after
    they came; queue 7 gets `hot` a second from second 21 on, and its reader manages twenty.
    """
    story = Story()
    sent, done = 0, 0
    for at in range(1, 41):
        story.now = at
        story.broker.at(at)
        for queue in range(1000) if at < 21 or at % 5 == 0 else (7,):
            came, went = 5 * at, max(0, 5 * (at - 2))
            if queue == 7 and at > 20:
                sent, done = sent + hot, min(done + 20, sent + hot)
                came, went = 100 + sent, 90 + done
            story._watermark(queue, "t", came, went)
        story.broker.ship()
    return story


def test_one_hot_queue_of_a_thousand_is_named_however_much_is_sent_to_the_others() -> None:
    found = on_many_queues(150).causes()
    row = found["LAGGING_QUEUE" if "LAGGING_QUEUE" in found else "HOT_QUEUE"]
    assert (row["topic"], row["queue_id"], row["share_percent"]) == ("t", 7, 100)
    assert "its fair part of 1,000 queues is 0.1 %" in row["evidence"]
    assert on_many_queues(5).cause_rows() == [], (
        "queues that are reported each five seconds are not late"
    )


STEPS_OF_A_STORY = st.lists(
    st.tuples(
        st.sampled_from(["run", "stats", "retry", "key", "left", "gone", "boot", "cold", "silent"]),
        st.integers(0, 60),
        st.integers(0, 60),
    ),
    min_size=2,
    max_size=8,
)


def play(operations: list[tuple[str, int, int]]) -> Story:
    story = Story()
    for what, one, two in operations:
        match what:
            case "stats":
                story.stats(f"c@{one % 2}", listeners_busy=two % 21, listeners_queued=one % 2,
                            consume_ms_p99=1 + two * 5, queues_held=one % 3)  # fmt: skip
            case "retry":
                story.retry(one)
            case "key":
                window(story, top_key=f"k{one % 2}", top_key_messages=two, keyed_messages=60)
            case "left":
                kind = "LEFT" if two % 2 else "JOINED"
                story.broker.report(
                    "rebalance_events", group="g", client_id=f"c@{one % 2}", kind=kind,
                    generation=1, inferred=False,
                )  # fmt: skip
            case "gone":
                story.broker.report("lifecycle", kind="TOPIC_GONE", topic="t")
            case "boot":
                story.broker.boot()
            case "cold":
                story.broker.report("cold_reads", group="g", topic="t", pulls=1, messages=1 + one,
                                    size_bytes=9, behind_bytes_max=two, resident_bytes=1,
                                    messages_a_pull_max=8)  # fmt: skip
            case "silent":
                story.now += 40
                story.broker.at(story.now)
        story.run(1 + one % 9, sent=(one, two), done=(two, one // 2))
    return story


@settings(max_examples=6, deadline=None)
@given(STEPS_OF_A_STORY, st.data())
def test_any_cut_of_the_shipments_gives_the_same_causes(
    operations: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    reported = bronze(play(operations).rows)
    count = len(horizons_of(reported))
    ends = data.draw(st.sets(st.integers(0, count - 1), max_size=6))
    whole = run(STEPS, reported, SHORT)["lag_causes"]
    assert run(STEPS, reported, SHORT, ends=ends)["lag_causes"] == whole


def test_a_group_of_which_only_retries_wait_is_looked_at_like_any_other() -> None:
    story = Story()
    story.stats()
    for at_s in range(1, 47):
        story.broker.at(at_s)
        story._watermark(0, "%RETRY%g", 20 * at_s, 5)
        story.broker.ship()
    assert {row["group"] for row in story.cause_rows()} == {"g"}
