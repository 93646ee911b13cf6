"""What is handed out and not acknowledged, from checkpoints and acknowledgements; those of a real
RocketMQ 5.5.0 among them (`tests/cases/pop_rocketmq_5.5.0.json` says of what).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.admin.api.groups import QueueProgress
from engine.observer.failed_messages import failed_message
from engine.observer.poll_result import PopSeen
from engine.observer.pop_log import ABSENT_LOOKS, LONGEST_MS_MIN, PopLog, left_of
from engine.observer.pop_marks import pop_seen
from engine.observer.pop_reading import NOT_YET, TOO_MANY, unreadable
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record

CASE = json.loads((Path(__file__).parents[2] / "cases" / "pop_rocketmq_5.5.0.json").read_text())
FIRST_POP_MS = 1795851977213
INVISIBLE_MS = 10_000
KEY = ("g", "t", 0)


def recorded(part: str) -> list[MessageExt]:
    """Records as the real broker stores them."""
    return [decode_record(bytes.fromhex(one)) for one in CASE[part]]


def record(tag: str, stored_ms: int = 0, **given: Any) -> MessageExt:
    """A record of group g in queue 0 of topic t."""
    body = json.dumps({"c": "g", "t": "t", "q": 0, **given}).encode()
    properties = {"TAGS": tag, "REAL_TOPIC": "rmq_sys_REVIVE_LOG_c"}
    return MessageExt("rmq_sys_wheel_timer", body, properties, store_timestamp_ms=stored_ms)


def popped(first: int, count: int, at_ms: int = 0, *, for_ms: int = INVISIBLE_MS) -> MessageExt:
    """Messages are handed out."""
    diffs = list(range(count))
    return record("ck", at_ms, so=first, d=diffs, n=count, pt=at_ms, it=for_ms, bm=0)


def acked(*offsets: int, at_ms: int = 0) -> MessageExt:
    """Messages of what was handed out then are acknowledged."""
    return record("bAck", at_ms, aol=list(offsets), so=0, pt=at_ms)


def log_of(*records: MessageExt, is_whole: bool = True, handed_out_max: int = 100) -> PopLog:
    """A log with these records."""
    log = PopLog(handed_out_max)
    log.begin(is_whole=is_whole)
    log.take(records)
    return log


def seen(log: PopLog, now_ms: int, *, at: int = 10, end: int = 10) -> PopSeen:
    """The one queue as a look finds it."""
    progress = {"g": {("t", 0): QueueProgress(end, at, 0, 0)}}
    return pop_seen(progress, log, now_ms, unknown_reason=None)[KEY]


def test_a_real_broker_s_records_say_which_message_is_out_and_until_when() -> None:
    log = log_of()
    log.take(recorded("timer"))
    assert log.odd_count == 0
    queue = log.queues["g-dead2", "popd", 0]
    left = left_of(queue, 20)
    assert (left.count, left.ranges) == (2, ((9, 10), (19, 20)))
    assert (left.oldest_ms, queue.invisible_ms) == (FIRST_POP_MS, INVISIBLE_MS)
    assert queue.acknowledged == 18
    log.end_expired(FIRST_POP_MS + INVISIBLE_MS)
    assert left_of(queue, 20).ranges == ((19, 20),), "the invisible time of the first is over"
    retry = left_of(log.queues["g-dead2", "%RETRY%g-dead2_popd", 0], 9)
    assert retry.ranges == ((0, 7),), "both copies that were given up are acknowledged"


def test_a_real_broker_s_copies_are_of_the_group_and_of_no_failure() -> None:
    copies = [failed_message(one) for one in recorded("retry")]
    found = {(one.group, one.origin_topic, one.is_expired) for one in copies}
    assert found == {("g-dead2", "popd", True)}
    (letter,) = map(failed_message, recorded("dead_letter"))
    assert (letter.group, letter.origin_topic, letter.is_dead) == ("g-dead2", "popd", True)


def test_what_is_acknowledged_or_over_is_out_no_more_and_counted_since_the_look_before() -> None:
    log = log_of(popped(0, 4), popped(4, 2, 5_000), acked(1))
    first = seen(log, 6_000)
    assert (first.unacknowledged, first.ranges) == (5, ((0, 1), (2, 6)))
    assert (first.acknowledged, first.expired) == (0, 0), "what was before the first look"
    log.take([acked(0, 2)])
    later = seen(log, INVISIBLE_MS)
    assert (later.unacknowledged, later.ranges, later.oldest_ms) == (2, ((4, 6),), 5_000)
    assert (later.acknowledged, later.expired) == (2, 1)
    assert (seen(log, INVISIBLE_MS).acknowledged, seen(log, INVISIBLE_MS).expired) == (0, 0)


def test_an_acknowledgement_of_an_earlier_hand_out_leaves_the_later_one() -> None:
    log = log_of(popped(0, 1), popped(0, 1, 11_000), acked(0, at_ms=0))
    assert seen(log, 12_000).unacknowledged == 1


def test_a_longer_invisible_time_replaces_the_shorter_one() -> None:
    changed = record("ck", 1_000, so=3, d=[0], n=1, pt=1_000, it=60_000, bm=0)
    log = log_of(popped(0, 4))
    seen(log, 1)
    log.take([changed, acked(3)])
    after = seen(log, INVISIBLE_MS + 1)
    assert (after.ranges, after.acknowledged) == (((3, 4),), 0), "it is no acknowledgement"


def test_what_was_acknowledged_before_its_checkpoint_was_stored_is_not_out() -> None:
    log = log_of(record("ck", so=0, d=[0, 1, 2], n=3, pt=0, it=INVISIBLE_MS, bm=0b101))
    assert seen(log, 1).ranges == ((1, 2),)


def test_no_more_is_out_than_was_handed_out_when_the_group_was_asked() -> None:
    log = log_of(popped(0, 8))
    late = seen(log, 1, at=6)
    assert (late.popped, late.unacknowledged) == (6, 6)


def test_until_the_longest_invisible_time_is_over_nothing_is_known_of_what_was_before() -> None:
    log = log_of(popped(0, 4), is_whole=False)
    assert seen(log, LONGEST_MS_MIN - 1).unknown_reason == NOT_YET
    assert seen(log, LONGEST_MS_MIN - 1).unacknowledged is None
    assert seen(log, LONGEST_MS_MIN).unacknowledged == 0
    longer = log_of(popped(0, 1, for_ms=2 * LONGEST_MS_MIN), is_whole=False)
    assert seen(longer, 2 * LONGEST_MS_MIN - 1).unknown_reason == NOT_YET
    assert seen(longer, 2 * LONGEST_MS_MIN).unacknowledged == 0


def test_a_group_whose_offset_was_asked_for_before_its_first_hand_out_loses_nothing() -> None:
    log = log_of(popped(0, 4), acked(0))
    assert pop_seen({}, log, 1, unknown_reason=None) == {}
    log.take([acked(1)])
    assert pop_seen({}, log, 2, unknown_reason=None) == {}
    late = seen(log, 3)
    assert (late.ranges, late.acknowledged) == (((2, 4),), 1)
    for _ in range(ABSENT_LOOKS + 1):
        pop_seen({}, log, INVISIBLE_MS, unknown_reason=None)
    assert log.queues == {}, "nobody has an offset there any more"


def test_more_than_is_followed_is_unknown_until_it_is_read_anew() -> None:
    log = log_of(popped(0, 10), popped(10, 1), handed_out_max=10)
    assert seen(log, 1, at=11, end=11).unknown_reason == TOO_MANY
    log.begin(is_whole=True)
    log.take([popped(10, 1)])
    assert seen(log, 1, at=11, end=11).unacknowledged == 1


def test_an_offset_beyond_the_end_of_its_queue_is_of_another_life() -> None:
    beyond = seen(log_of(popped(0, 4)), 1, at=11)
    assert (beyond.popped, beyond.unacknowledged) == (None, None)
    assert beyond.unknown_reason == "its offset lies beyond the end of the queue"


@pytest.mark.parametrize(
    "odd",
    [
        MessageExt("rmq_sys_REVIVE_LOG_c", b"{", {"TAGS": "ck"}),
        record("ck", so=0, d=[-1], n=1, pt=0, it=1),
        record("ck", so=0, d=[0], n=1, pt=0, it=0),
        record("ck", so=0, d=list(range(65)), n=65, pt=0, it=1),
        record("ck", so="0", d=[0], n=1, pt=0, it=1),
        record("ack", ao=None, pt=0),
        record("other", pt=0),
        record("ck", c="a b", so=0, d=[0], n=1, pt=0, it=1),
        record("ck", q=-1, so=0, d=[0], n=1, pt=0, it=1),
    ],
)
def test_records_that_cannot_be_read_are_counted_and_passed_over(odd: MessageExt) -> None:
    log = log_of(odd, popped(0, 2))
    assert log.odd_count == 1
    assert left_of(log.queues[KEY], 10).count == 2


def test_somebody_else_s_delayed_message_is_no_record() -> None:
    log = log_of(MessageExt("rmq_sys_wheel_timer", b"{", {"REAL_TOPIC": "orders", "TAGS": "ck"}))
    assert (log.odd_count, log.queues) == (0, {})


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"popConsumerKVServiceEnable": "true"}, "popConsumerKVServiceEnable"),
        ({"enablePopBufferMerge": "true"}, "enablePopBufferMerge"),
    ],
)
def test_a_broker_that_stores_no_checkpoints_says_so_by_its_settings(
    settings: dict[str, str], names: str
) -> None:
    assert names in (unreadable(settings) or "")
    assert unreadable(dict.fromkeys(settings, "false")) is None
