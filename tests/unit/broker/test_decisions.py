"""Small decisions of a broker, each a function of its arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.broker.config import BrokerConfig
from engine.broker.handlers.send_back import is_spent, level_for
from engine.broker.rocketmq_settings import with_rocketmq_settings
from engine.foundation.config import read_spans_ms, split_settings
from engine.foundation.errors import ConfigError
from engine.foundation.observing import committed_state
from engine.protocol.bodies import ConsumerRunningInfo, ProcessQueueInfo, SubscriptionData
from engine.protocol.message import MessageQueue
from engine.store import FlushDiskType, StoreConfig
from engine.telemetry.members.answers import is_orderly, taken_whole, window_of


@pytest.mark.parametrize(
    ("committed", "minimum", "maximum", "state"),
    [
        (None, 0, 10, "NONE"),
        (5, 0, 10, "EXACT"),
        (0, 0, 10, "EXACT"),
        (10, 0, 10, "AT_END"),
        (12, 0, 10, "AT_END"),
        (3, 4, 10, "PURGED"),
        (0, 0, 0, "AT_END"),
    ],
)
def test_what_the_message_at_the_consume_offset_is(
    committed: int | None, minimum: int, maximum: int, state: str
) -> None:
    assert committed_state(committed, minimum, maximum) == state


@pytest.mark.parametrize(
    ("asked", "failed_before", "level"),
    [(0, 0, 3), (0, 1, 4), (0, 15, 18), (0, 40, 18), (5, 0, 5), (99, 0, 18)],
)
def test_retry_k_waits_at_level_two_plus_k_unless_the_consumer_asks(
    asked: int, failed_before: int, level: int
) -> None:
    assert level_for(asked, failed_before, levels_count=18) == level


@pytest.mark.parametrize(
    ("asked", "failed_before", "times_max", "spent"),
    [(0, 15, 16, False), (0, 16, 16, True), (-1, 0, 16, True), (0, 0, 0, True)],
)
def test_a_message_is_spent_after_its_retries_or_at_once_when_asked(
    asked: int, failed_before: int, times_max: int, spent: bool
) -> None:
    assert is_spent(asked, failed_before, times_max) is spent


def test_a_java_clients_window_leaves_unknown_what_it_does_not_report() -> None:
    info = ProcessQueueInfo(
        commit_offset=7,
        cached_msg_min_offset=9,
        cached_msg_max_offset=12,
        cached_msg_count=3,
        transaction_msg_min_offset=7,
        transaction_msg_max_offset=8,
        transaction_msg_count=2,
        cached_msg_size_in_mib=1,
    )
    queue = MessageQueue("orders", "broker-a", 2)
    window = window_of("g", "c1", queue, info, orderly=True)
    assert (window.topic, window.queue_id, window.client_id) == ("orders", 2, "c1")
    assert (window.first_held, window.last_held, window.held_count) == (7, 12, 5)
    assert (window.held_bytes, window.client_committed) == (1 << 20, 7)
    assert window.finished_count is None
    assert window.held_ranges is None
    assert window.last_pull_time_ms is None


@pytest.mark.parametrize(
    ("word", "resting"), [("SPAN", "SPAN"), ("COUNT", "COUNT"), ("SPAN\n", None), ("x" * 999, None)]
)
def test_why_pulls_rest_is_one_of_three_words_whatever_a_client_says(
    word: str, resting: str | None
) -> None:
    queue = MessageQueue("orders", "broker-a", 2)
    window = window_of("g", "c1", queue, ProcessQueueInfo(resting=word), orderly=False)
    assert window.resting == resting


@pytest.mark.parametrize(
    ("consume_type", "subscription", "takes_all"),
    [
        ("CONSUME_PASSIVELY", SubscriptionData.build("orders", "*"), {"orders": True}),
        ("CONSUME_PASSIVELY", SubscriptionData.build("orders", "paid"), {"orders": False}),
        (
            "CONSUME_PASSIVELY",
            SubscriptionData.by_selector("orders", "*", "SQL92"),
            {"orders": False},
        ),
        ("CONSUME_ACTIVELY", SubscriptionData.build("orders", "*"), {"orders": False}),
        (None, SubscriptionData.build("orders", "*"), {}),
    ],
    ids=["all", "some", "by a selector", "where the application seeks", "it does not say"],
)
def test_a_client_takes_every_message_if_nothing_is_passed_over(
    consume_type: str | None, subscription: SubscriptionData, takes_all: dict[str, bool]
) -> None:
    properties = {} if consume_type is None else {"PROP_CONSUME_TYPE": consume_type}
    assert taken_whole(ConsumerRunningInfo(properties, [subscription])) == takes_all


def test_an_empty_window_holds_nothing_rather_than_offset_zero() -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    window = window_of("g", "c1", queue, ProcessQueueInfo(), orderly=True)
    assert (window.first_held, window.last_held, window.held_count) == (None, None, 0)


@pytest.mark.parametrize(
    ("properties", "locked"),
    [
        ({"PROP_CONSUMEORDERLY": "true"}, True),
        ({"PROP_CONSUMEORDERLY": "false"}, False),
        ({"PROP_CONSUME_ORDERLY": "false"}, False),
        ({}, True),
    ],
    ids=["a Java client, orderly", "a Java client", "ours", "one that does not say"],
)
def test_only_an_orderly_reader_holds_a_lock(properties: dict[str, str], locked: bool) -> None:
    """A Java client says of every queue it reads in its first lock period that it is locked."""
    info = ConsumerRunningInfo(properties=properties)
    reported = ProcessQueueInfo(locked=True)
    queue = MessageQueue("orders", "broker-a", 0)
    assert window_of("g", "c1", queue, reported, orderly=is_orderly(info)).locked is locked


def test_a_queue_of_which_a_java_client_has_committed_nothing_has_no_committed_offset() -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    info = ProcessQueueInfo(commit_offset=-1)
    assert window_of("g", "c1", queue, info, orderly=False).client_committed is None


def config(tmp_path: Path) -> BrokerConfig:
    return BrokerConfig(store=StoreConfig(root=str(tmp_path)))


def test_settings_reach_the_broker_and_its_store_by_rocketmqs_names(tmp_path: Path) -> None:
    words = [
        "brokerName=broker-z",
        "autoCreateTopicEnable=false",
        "flushConsumerOffsetInterval=1000",
        "flushDiskType=SYNC_FLUSH",
        "messageDelayLevel=1s 2s 5s",
        "fileReservedTime=48",
        "deleteWhen=04;05",
        "diskMaxUsedSpaceRatio=50",
        "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876",
    ]
    changed = with_rocketmq_settings(config(tmp_path), split_settings(words))
    assert changed.broker_name == "broker-z"
    assert changed.auto_create_topic_enable is False
    assert changed.flush_consumer_offset_interval_ms == 1000
    assert changed.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert changed.store.delay_levels_ms == (1000, 2000, 5000)
    assert changed.store.file_reserved_time_ms == 48 * 3_600_000
    assert changed.store.delete_when_hours == (4, 5)
    assert changed.store.disk_max_used_ratio == 0.5


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("autoCreateTopicEnable=perhaps", "autoCreateTopicEnable='perhaps'"),
        ("flushDiskType=NEVER", "flushDiskType='NEVER'"),
        ("accessMessageInMemoryMaxRatio=40", "a fixed size here"),
        ("brokerRole=SLAVE", "a brokerId of 1 or more beside it"),
        ("brokerRole=LEADER", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("brokerId=1", "0 for ASYNC_MASTER"),
        ("enableDLegerCommitLog=true", "dLegerPeers='' is not allowed: n0-IP:PORT"),
        ("enableControllerMode=true", "false alone"),
        ("brokerIP1=my-host", "an IP address"),
        ("brokerName=a b", "without spaces"),
        ("defaultTopicQueueNums=0", "1 to 4096"),
        ("registerNameServerPeriod=100000", "at most 60000"),
        ("listenPort=70000", "0 to 65535"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(
    tmp_path: Path, setting: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        with_rocketmq_settings(config(tmp_path), split_settings([setting]))


def test_spans_of_time_are_read_with_their_units() -> None:
    assert read_spans_ms("200ms 1s 5m 2h 1d") == (200, 1000, 300_000, 7_200_000, 86_400_000)
    with pytest.raises(ValueError, match="'5'"):
        read_spans_ms("1s 5")


GROUP = "n0-127.0.0.1:40911;n1-127.0.0.1:40912"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"dLegerPeers": "n0-localhost:40911", "dLegerSelfId": "n0"}, "n0-IP:PORT"),
        ({"dLegerPeers": "n0-127.0.0.1:0", "dLegerSelfId": "n0"}, "n0-IP:PORT"),
        ({"dLegerPeers": "first-127.0.0.1:1", "dLegerSelfId": "first"}, "n0-IP:PORT"),
        ({"dLegerPeers": f"{GROUP};n1-127.0.0.1:40913", "dLegerSelfId": "n0"}, "each name once"),
        ({"dLegerPeers": GROUP, "dLegerSelfId": "n2"}, "dLegerSelfId='n2' is not allowed: one of"),
        ({"dLegerPeers": GROUP, "dLegerSelfId": "n0", "haListenPort": "1"}, "elects masters"),
        (
            {"dLegerPeers": GROUP, "dLegerSelfId": "n0", "transientStorePoolEnable": "true"},
            "false in a Raft group",
        ),
    ],
)
def test_a_group_that_cannot_be_is_refused(settings: dict[str, str], says: str) -> None:
    config = BrokerConfig(store=StoreConfig(root="/store"))
    with pytest.raises(ConfigError, match=says):
        with_rocketmq_settings(config, {"enableDLegerCommitLog": "true"} | settings)
