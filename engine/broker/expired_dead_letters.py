"""Dead letters that retention, or the deletion of their topic, takes away before anybody decided
about them: told one by one.

Place in the walk: just before a round of `store/upkeep/retention` deletes a file, while the
messages in it can still be read. A dead letter that was re-driven or discarded is known by the
record of that decision (`protocol/dead_letters`), which is younger and still there.

Invariant: every dead letter ends as exactly one of re-driven, discarded or expired, so the sums of
`retry_dlq_flow` close. Absent on purpose: keeping anything longer than the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.broker.parts import BrokerParts
from engine.foundation.limits import EXPIRED_DEAD_LETTERS_MAX
from engine.foundation.observing import LifecycleEvent, RetryStep
from engine.foundation.units import SECOND_MS
from engine.protocol.dead_letters import DISCARDS_TOPIC, PROPERTY_REDRIVEN_FROM
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record
from engine.protocol.names import DLQ_PREFIX, retry_topic
from engine.protocol.properties import PROPERTY_RETRY_TOPIC

UNITS_AT_ONCE = 256
COPIES_MAX = 4096
"""Tries of one message looked at after its death: each re-drive adds all its tries."""
END_OF_TIME_MS = 2**63 - 1


def tell_expired(parts: BrokerParts, physical_min: int) -> None:
    """Tell the undecided dead letters below `physical_min`, at most EXPIRED_DEAD_LETTERS_MAX."""
    topics = [topic for topic, _ in parts.store.queues() if topic.startswith(DLQ_PREFIX)]
    _tell(parts, topics, physical_min, "deleted by retention before anybody decided about it")


def tell_deleted(parts: BrokerParts, topic: str) -> None:
    """Tell the undecided ones of a dead-letter topic that is about to be deleted, alike."""
    reason = "deleted with its topic before anybody decided about it"
    _tell(parts, [topic], parts.store.physical_max, reason)


def _tell(parts: BrokerParts, topics: Sequence[str], physical_min: int, reason: str) -> None:
    told = 0
    for topic in topics:
        group = topic.removeprefix(DLQ_PREFIX)
        for message in _below(parts, topic, physical_min):
            if _is_decided(parts, group, message):
                continue
            told += 1
            if told > EXPIRED_DEAD_LETTERS_MAX:
                detail = f"more than {EXPIRED_DEAD_LETTERS_MAX} dead letters expired at once"
                parts.observer.observe(LifecycleEvent("EXPIRED_DEAD_LETTERS", detail))
                return
            parts.observer.observe(
                RetryStep(
                    message_id=message.uniq_key,
                    origin_topic=message.properties.get(PROPERTY_RETRY_TOPIC),
                    origin_queue_id=None,
                    origin_offset=None,
                    group=group,
                    reconsume_times=message.reconsume_times,
                    step="EXPIRED",
                    delay_ms=None,
                    reason=reason,
                )
            )


def _below(parts: BrokerParts, topic: str, physical_min: int) -> Iterator[MessageExt]:
    """The messages of a dead-letter topic's one queue that are about to go."""
    store, offset = parts.store, parts.store.min_offset(topic, 0)
    while units := store.queue_units(topic, 0, offset, UNITS_AT_ONCE):
        for physical_offset, *_ in units:
            if physical_offset >= physical_min:
                return
            record = store.record_at(physical_offset)
            if record is not None:
                yield decode_record(record)
        offset += len(units)


def _is_decided(parts: BrokerParts, group: str, message: MessageExt) -> bool:
    offset_id = message.offset_message_id
    since_ms = message.store_timestamp_ms - SECOND_MS  # The index knows seconds.
    copies = _found(parts, retry_topic(group), message.uniq_key or "", since_ms)
    if any(copy.properties.get(PROPERTY_REDRIVEN_FROM) == offset_id for copy in copies):
        return True
    records = _found(parts, DISCARDS_TOPIC, offset_id, since_ms)
    return any(offset_id in (record.keys or "").split() for record in records)


def _found(parts: BrokerParts, topic: str, key: str, since_ms: int) -> Iterator[MessageExt]:
    """Messages indexed under the key, oldest first; hashes may collide, callers look closer."""
    store = parts.store
    found = store.query_by_key(
        topic, key, max_count=COPIES_MAX, begin_ms=since_ms, end_ms=END_OF_TIME_MS
    )
    for offset in found.physical_offsets:
        record = store.record_at(offset)
        if record is not None:
            message = decode_record(record)
            if message.topic == topic:
                yield message
