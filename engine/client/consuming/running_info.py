"""The running info that a consumer returns to a broker (codes 307 and 221).

The answer has RocketMQ's form, so that its own tools read it; each queue's entry carries more keys,
which those tools do not look at: finished and held offsets, the head and since when it is in a
listener. They are what makes a frozen head and a duplicate risk visible from outside.

Invariant: reading changes nothing. Absent on purpose: sending; the consumer answers the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from engine.client.consuming.group_state import GroupState
from engine.client.consuming.process_queue import ProcessQueue
from engine.foundation.units import MIB
from engine.protocol.bodies import ConsumeStatus
from engine.protocol.message import MessageQueue
from engine.protocol.names import CLIENT_CLOCK_PROPERTY

TOP_KEY_CHARS_MAX: Final = 128
"""Of the key that most held messages have; the rest is cut off."""


def queue_info(
    window: ProcessQueue, client_committed: int | None, *, offset_ms: int
) -> dict[str, Any]:
    """One queue's entry: RocketMQ's ProcessQueueInfo, then ours.

    Times in ms since 1970, by `offset_ms` later than the window's own; null is unknown or none.
    """
    waiting, taken = window.waiting_bounds(), window.taken_bounds()
    head = window.head()
    keys = Counter(window.keys_held())
    top_key, top_key_messages = keys.most_common(1)[0] if keys else (None, 0)
    return {
        "commitOffset": client_committed or 0,
        "cachedMsgMinOffset": waiting[0] if waiting else 0,
        "cachedMsgMaxOffset": waiting[1] if waiting else 0,
        "cachedMsgCount": window.count - window.taken_count,
        "cachedMsgSizeInMiB": window.held_bytes // MIB,
        "transactionMsgMinOffset": taken[0] if taken else 0,
        "transactionMsgMaxOffset": taken[1] if taken else 0,
        "transactionMsgCount": window.taken_count,
        "locked": window.locked,
        "tryUnlockTimes": window.try_unlock_count,
        "lastLockTimestamp": window.last_lock_ms + offset_ms,
        "droped": window.dropped,
        "lastPullTimestamp": window.last_pull_ms + offset_ms,
        "lastConsumeTimestamp": window.last_consume_ms + offset_ms,
        "heldBytes": window.held_bytes,
        "finishedCount": window.finished_count,
        "heldRanges": [list(held) for held in window.held_ranges()],
        "filteredCount": window.filtered_count,
        "headMessageId": head[0].message_id if head else None,
        "headSince": head[1] + offset_ms if head and head[1] is not None else None,
        "processedOffset": window.processed_offset,
        "localRetries": [list(retry) for retry in window.local_retries],
        "clientCommitted": client_committed,
        "topKey": top_key[:TOP_KEY_CHARS_MAX] if top_key else None,
        "topKeyMessages": top_key_messages,
        "keyedMessages": keys.total(),
        "resting": None if window.resting is None else window.resting.value,
    }


def queue_infos(
    state: GroupState, *, offset_ms: int, head_stacks: Mapping[MessageQueue, str] | None = None
) -> dict[MessageQueue, dict[str, Any]]:
    """The entries of all queues this member holds; `offset_ms` as in `queue_info`, `head_stacks`
    where they were asked for.
    """
    infos = {
        queue: queue_info(window, state.offsets.in_memory(queue), offset_ms=offset_ms)
        for queue, window in sorted(state.windows.items())
    }
    for queue, stack in (head_stacks or {}).items():
        if queue in infos:
            infos[queue]["headStack"] = stack
    return infos


def speeds_of(state: GroupState, *, now_ms: int) -> dict[str, ConsumeStatus]:
    """The reported rates of each topic, with how its queues were divided last."""
    rates = state.speeds.table([] if state.polls else list(state.subscriptions), now_ms=now_ms)
    for topic, status in rates.items():
        status.topic_queues, status.group_members = state.divided.get(topic, (None, None))
    return rates


def heads(state: GroupState) -> dict[MessageQueue, int]:
    """Queue offset of each window's head, where there is one."""
    found = {queue: window.head() for queue, window in state.windows.items()}
    return {queue: head[0].queue_offset for queue, head in found.items() if head is not None}


def properties(
    state: GroupState, started_ms: int, *, namesrv_addresses: str, now_ms: int
) -> dict[str, str]:
    """The settings RocketMQ's tools show of a consumer, and what its clock shows."""
    config = state.config
    return {
        "PROP_NAMESERVER_ADDR": namesrv_addresses,
        "PROP_CONSUME_TYPE": state.consume_type,
        "PROP_CONSUME_ORDERLY": str(config.orderly).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(config.consume_concurrency),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CLIENT_VERSION": "TIDEMARK",
        CLIENT_CLOCK_PROPERTY: str(now_ms),
        "consumerGroup": state.group,
        "messageModel": config.message_model.value,
        "consumeFromWhere": config.consume_from_where.value,
        "consumeMessageBatchMaxSize": str(config.consume_batch_max),
        "pullBatchSize": str(config.pull_batch_max),
        "consumeTimeout": str(config.consume_timeout_ms // 60_000),
        "allocateMessageQueueStrategy": config.allocation.name,
    }
