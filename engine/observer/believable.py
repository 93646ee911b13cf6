"""Validates untrusted responses from brokers and clients.

Place in the walk: between an answer and the `Look`. Pure.

Invariant: what passes fits the columns of the lake, and is no longer than it may be; of an answer
with odd parts the others count. Absent on purpose: reporting what did not pass (`questions`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from engine.admin.api.groups import QueueProgress
from engine.foundation.limits import (
    CLIENT_ID_CHARS_MAX,
    MESSAGE_ID_CHARS_MAX,
    QUEUES_PER_TOPIC_MAX,
    RETRY_TOPIC_CHARS_MAX,
    SUBSCRIPTION_CHARS_MAX,
)
from engine.protocol.bodies import ProcessQueueInfo, SubscriptionData, TopicOffset
from engine.protocol.message import MessageQueue

OFFSET_MAX: Final = 1 << 62
MOMENT_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999."""
COUNT_MAX: Final = (1 << 31) - 1
MEMBERS_A_GROUP_MAX: Final = 1000
"""Each that comes or goes is reported with all others."""
ADDRESS_CHARS_MAX: Final = 128
TOPICS_A_MEMBER_MAX: Final = 256


def is_name(text: str, chars_max: int = RETRY_TOPIC_CHARS_MAX) -> bool:
    """May a topic or group be called so? Other brokers allow more than ours does."""
    return 0 < len(text) <= chars_max and text.isprintable() and " " not in text


def is_client(client_id: str) -> bool:
    """May a client be called so?"""
    return 0 < len(client_id) <= CLIENT_ID_CHARS_MAX and client_id.isprintable()


def is_address(text: str) -> bool:
    """May a client connect from there?"""
    return 0 < len(text) <= ADDRESS_CHARS_MAX and text.isprintable()


def are_subscriptions(subscriptions: Collection[SubscriptionData]) -> bool:
    """Can a member subscribe to all this? It is reported with what others of its group say."""
    chars = sum(len(one.topic) + len(one.sub_string) for one in subscriptions)
    return (
        len(subscriptions) <= TOPICS_A_MEMBER_MAX
        and chars <= SUBSCRIPTION_CHARS_MAX
        and all(is_name(one.topic) for one in subscriptions)
    )


def is_queue(queue: MessageQueue, broker_name: str) -> bool:
    """Can this be a queue of the broker, whose topic has a name?"""
    return queue.broker_name == broker_name and 0 <= queue.queue_id < QUEUES_PER_TOPIC_MAX


def are_ends(ends: TopicOffset) -> bool:
    """Can a queue begin and end there?"""
    is_span = 0 <= ends.min_offset <= ends.max_offset < OFFSET_MAX
    return is_span and is_moment(ends.last_update_timestamp_ms)


def is_progress(progress: QueueProgress) -> bool:
    """Can a group be so far? -1 is a broker's word for none."""
    return (
        -1 <= progress.broker_offset < OFFSET_MAX
        and -1 <= progress.consumer_offset < OFFSET_MAX
        and -1 <= progress.pull_offset < OFFSET_MAX
    )


def is_held(info: ProcessQueueInfo) -> bool:
    """Can a client hold this of a queue?"""
    offsets = (
        info.commit_offset,
        info.cached_msg_min_offset,
        info.cached_msg_max_offset,
        info.transaction_msg_min_offset,
        info.transaction_msg_max_offset,
        info.client_committed or 0,
    )
    counts = (
        info.cached_msg_count,
        info.cached_msg_size_in_mib,
        info.transaction_msg_count,
        info.finished_count or 0,
        info.filtered_count or 0,
    )
    moments = (
        info.last_pull_timestamp_ms,
        info.last_consume_timestamp_ms,
        info.head_since_ms or 0,
    )
    texts = info.head_message_id or "", info.top_key or ""
    return (
        all(-1 <= offset < OFFSET_MAX for offset in offsets)
        and all(0 <= count <= COUNT_MAX for count in counts)
        and all(is_moment(at_ms) for at_ms in moments)
        and all(len(text) <= MESSAGE_ID_CHARS_MAX for text in texts)
    )


def is_moment(at_ms: int) -> bool:
    """Is it a time since 1970, or 0 for none?"""
    return 0 <= at_ms <= MOMENT_MS_MAX
