"""Lite topics: known by how far groups are in them, as no list names them."""

from __future__ import annotations

import pytest

from engine.foundation.observing import GroupWatermark, LifecycleEvent
from engine.observer.poll_result import Look
from engine.observer.topics_seen import offset_in
from engine.protocol.bodies import TopicConfig, TopicOffset
from engine.protocol.message import MessageExt
from tests.unit.observer.test_facts import of, played, progress

LITE = "%LMQ%$parent$child"
LISTED = {"parent": TopicConfig("parent")}


def look(at_ms: int, *, is_there: bool = True) -> Look:
    """At a broker with a group that is behind in a lite topic, while that is there."""
    rows = {(LITE, 0): progress(1, 3)} if is_there else {}
    ends = {(LITE, 0): TopicOffset(0, 3, 500)} if is_there else {}
    return Look(
        at_ms=at_ms, boot_ms=1, skew_ms=0, progress={"g": rows}, ends=ends, topics=dict(LISTED)
    )


def test_a_lite_topic_is_not_gone_because_no_list_names_it() -> None:
    first, *later = played(look(1_000), look(2_000), look(3_000))
    (mark,) = of(GroupWatermark, first)
    assert (mark.topic, mark.committed, mark.max_offset) == (LITE, 1, 3)
    for facts in later:
        assert not of(LifecycleEvent, facts)
        assert not of(GroupWatermark, facts)


def test_a_lite_topic_in_which_no_group_is_any_more_is_gone() -> None:
    _, last = played(look(1_000), look(2_000, is_there=False))
    assert [(one.kind, one.topic) for one in of(LifecycleEvent, last)] == [("TOPIC_GONE", LITE)]


@pytest.mark.parametrize(
    ("queues", "offsets", "offset"),
    [
        (LITE, "7", 7),
        (f"%LMQ%$parent$other,{LITE}", "4,7", 7),
        (LITE, "", None),
        (LITE, "-7", None),
        ("%LMQ%$parent$other", "4", None),
        (LITE, "9" * 30, None),
    ],
)
def test_a_message_says_where_it_stands_in_a_lite_topic(
    queues: str, offsets: str, offset: int | None
) -> None:
    properties = {"INNER_MULTI_DISPATCH": queues, "INNER_MULTI_QUEUE_OFFSET": offsets}
    message = MessageExt("parent", b"x", queue_offset=2, properties=properties)
    assert offset_in(message, LITE) == offset
    assert offset_in(message, "parent") == 2
