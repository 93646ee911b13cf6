"""How members work: which figures are news, and what each kind of client reports."""

from __future__ import annotations

from dataclasses import replace

from engine.broker.pulling.cold_reads import ColdReadSums
from engine.foundation.observing import ConsumeStats
from engine.protocol.bodies import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ListenerPool,
    ProcessQueueInfo,
)
from engine.protocol.message import MessageQueue
from engine.telemetry.members.emitted import EmittedStats, stats_of

OURS = ConsumerRunningInfo(
    {"PROP_THREADPOOL_CORE_SIZE": "20"},
    mq_table={
        MessageQueue("orders", broker, queue_id): ProcessQueueInfo()
        for broker, queue_id in (("a", 0), ("a", 1), ("b", 0))
    },
    status_table={
        "orders": ConsumeStatus(
            consume_rt=12.5, consume_ok_tps=2.0, consume_failed_tps=0.5, calls=150, consume_p50=10,
            consume_p99=80, flow_count_ms=5000, flow_bytes_ms=0, flow_span_ms=0, topic_queues=8,
            group_members=3,
        )
    },
    listener_pool=ListenerPool(20, 20, 700),
)  # fmt: skip
JAVA = ConsumerRunningInfo(
    {"PROP_THREADPOOL_CORE_SIZE": "64"},
    mq_table={MessageQueue("orders", "a", 0): ProcessQueueInfo()},
    status_table={"orders": ConsumeStatus(consume_rt=0.0, consume_ok_tps=0.0)},
)


def one(info: ConsumerRunningInfo) -> ConsumeStats:
    (made,) = stats_of("g", "c@1", info, dict(info.status_table))
    return made


def test_a_client_of_ours_reports_its_listeners_its_times_its_rests_and_the_division() -> None:
    made = one(OURS)
    assert (made.listeners, made.listeners_busy, made.listeners_queued) == (20, 20, 700)
    assert (made.consume_us_mean, made.consume_ms_p50, made.consume_ms_p99) == (12_500, 10, 80)
    assert (made.consumed, made.failed, made.flow_count_ms) == (120, 30, 5000)
    assert (made.queues_held, made.topic_queues, made.group_members) == (3, 8, 3)


def test_a_client_in_java_reports_its_threads_and_what_else_it_does_not_report_is_unknown() -> None:
    made = one(JAVA)
    assert (made.listeners, made.listeners_busy, made.listeners_queued) == (64, None, None)
    assert (made.consume_us_mean, made.consume_ms_p99, made.calls) == (None, None, None)
    assert (made.flow_count_ms, made.topic_queues, made.paused) == (None, None, None)
    assert (made.queues_held, made.consumed) == (1, 0)


def test_numbers_that_are_none_are_unknown() -> None:
    info = replace(
        JAVA,
        properties={"PROP_THREADPOOL_CORE_SIZE": "99999999999999999999"},
        status_table={"orders": ConsumeStatus(consume_rt=-1.0, consume_ok_tps=1e300)},
    )
    made = one(info)
    assert (made.listeners, made.consume_us_mean, made.consumed) == (None, None, None)


def test_changed_figures_are_reported_after_a_rest_and_unchanged_ones_after_an_interval() -> None:
    emitted = EmittedStats(rest_ms=10, interval_ms=1000)
    first, other = one(OURS), replace(one(OURS), consumed=7)
    assert emitted.is_news(first, 0, losses=0)
    assert not emitted.is_news(other, 5, losses=0)
    assert emitted.is_news(other, 10, losses=0)
    assert not emitted.is_news(other, 500, losses=0)
    assert emitted.is_news(other, 500, losses=1), "what was reported before may be lost"
    assert emitted.is_news(other, 1500, losses=1)


def test_beyond_the_limit_all_is_reported_and_a_member_that_left_makes_room() -> None:
    emitted = EmittedStats(rest_ms=10, interval_ms=1000, count_max=1)
    assert emitted.is_news(one(OURS), 0, losses=0)
    stranger = replace(one(OURS), client_id="c@2")
    assert emitted.is_news(stranger, 1, losses=0)
    assert emitted.is_news(stranger, 2, losses=0)
    emitted.forget("g", "c@1")
    assert emitted.is_news(stranger, 3, losses=0)
    assert len(emitted) == 1
    assert not emitted.is_news(stranger, 4, losses=0)


def test_cold_reads_are_summed_by_group_and_topic_up_to_a_limit() -> None:
    sums = ColdReadSums(count_max=1)
    for messages, behind in ((8, 900), (3, 1000)):
        sums.add("g", "t", messages=messages, size_bytes=messages * 10, behind_bytes=behind,
                 resident_bytes=500, messages_a_pull_max=8)  # fmt: skip
    sums.add("g", "u", messages=1, size_bytes=1, behind_bytes=600, resident_bytes=500,
             messages_a_pull_max=8)  # fmt: skip
    (only,) = sums.take(None)
    assert (only.topic, only.pulls, only.messages, only.size_bytes) == ("t", 2, 11, 110)
    assert (only.behind_bytes_max, only.resident_bytes) == (1000, 500)
    assert only.disk_read_bytes is None, "the kernel does not say"
    assert sums.take(None) == []


def test_reads_from_afar_are_reported_with_what_the_process_read_from_disk_meanwhile() -> None:
    sums = ColdReadSums()
    assert sums.take(5000) == []

    def read(behind: int) -> None:
        sums.add("g", "t", messages=9, size_bytes=400, behind_bytes=behind, resident_bytes=500,
                 messages_a_pull_max=8)  # fmt: skip

    read(501)
    (far,) = sums.take(5007)
    assert (far.behind_bytes_max, far.disk_read_bytes) == (501, 7)
    read(499)
    assert sums.take(5106) == [], "99 of 400 bytes: as good as in memory"
    read(499)
    (near,) = sums.take(5206)
    assert (near.behind_bytes_max, near.disk_read_bytes) == (499, 100)
    read(499)
    assert sums.take(None) == [], "nobody says that it came from disk"


def test_a_go_client_s_mean_time_of_pulls_is_no_time_of_its_calls() -> None:
    """rocketmq-client-go v2.1.2 returns the one as the other, so both are the same figure."""
    go = {"PROP_THREADPOOL_CORE_SIZE": "-1"}
    idle = replace(
        JAVA,
        properties=go,
        status_table={"orders": ConsumeStatus(pull_rt=9099.0, consume_rt=9099.0)},
    )
    of_the_hour = replace(
        idle, status_table={"orders": ConsumeStatus(pull_rt=0.0, consume_rt=12.0)}
    )
    java = replace(idle, properties={"PROP_THREADPOOL_CORE_SIZE": "20"})
    assert [one(info).consume_us_mean for info in (idle, of_the_hour, java)] == [
        None,
        12_000,
        9_099_000,
    ]
