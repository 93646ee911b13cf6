"""Lite topics of RocketMQ 5.5: queues `%LMQ%$parent$child`, which no topic list names.

Place in the walk: under `asking` and `facts`. A message lies in the parent's queue; its properties
say where it stands in those of lite topics. How far groups are in them is in the answer about all
groups, so that is how they are known, and their ends are asked like those of any topic. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.observer.looks import Place
from engine.protocol.message import MessageExt

PREFIX: Final = "%LMQ%"
_QUEUES: Final = "INNER_MULTI_DISPATCH"
_OFFSETS: Final = "INNER_MULTI_QUEUE_OFFSET"


def is_lite(topic: str) -> bool:
    """Is it the queue of a lite topic?"""
    return topic.startswith(PREFIX)


def lite_topics_in(progress: Mapping[str, Mapping[Place, object]]) -> set[str]:
    """Those in which some group is so far as it says."""
    return {topic for rows in progress.values() for topic, _ in rows if is_lite(topic)}


def offset_in(message: MessageExt, topic: str) -> int | None:
    """Where a message stands in the topic that it was read from; None: it does not say."""
    if not is_lite(topic):
        return message.queue_offset
    names = message.properties.get(_QUEUES, "").split(",")
    offsets = message.properties.get(_OFFSETS, "").split(",")
    text = dict(zip(names, offsets, strict=False)).get(topic, "")
    return int(text) if text.isdecimal() and len(text) < 20 else None
