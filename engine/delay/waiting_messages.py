"""Converts messages for a delay level, and later recovers their real topic and queue.

Place in the walk: sends and send-backs turn drafts into waiting ones; the delay service, like any
other reader of such a record, finds there where it belongs; it makes a dead letter of one that
cannot be delivered. Pure.

Invariant: whatever a property says, a place is legal or it is none; what is made of a bad record is
as much of it as its bytes give. Absent on purpose: when a message is due (`delay_service`).
"""

from __future__ import annotations

from engine.foundation.errors import CorruptRecord
from engine.protocol.copy_room import noted_properties
from engine.protocol.header_fields import INT32_MAX
from engine.protocol.message import MessageExt
from engine.protocol.names import RETRY_PREFIX, SCHEDULE_TOPIC, dlq_topic
from engine.protocol.properties import (
    PROPERTY_DELAY,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    decode_properties,
    encode_properties,
    whole_number,
)
from engine.store import MessageDraft
from engine.store.record_reading import is_plain_topic
from engine.store.record_writing import draft_of

SCHEDULE_GROUP = "SCHEDULE_CONSUMER"
"""RocketMQ's name for the broker as the reader of its delay levels: plain messages that it cannot
deliver are this group's dead letters.
"""


def scheduled(draft: MessageDraft, level: int) -> MessageDraft:
    """Turn a draft into one that waits at `level` (1 is the shortest); its own place is kept in
    properties, in place of where it waited before.
    """
    text = draft.properties.decode() if isinstance(draft.properties, bytes) else draft.properties
    if PROPERTY_REAL_TOPIC in text:
        properties = decode_properties(text)
        properties.pop(PROPERTY_REAL_TOPIC, None)
        properties.pop(PROPERTY_REAL_QUEUE_ID, None)
        text = encode_properties(properties)
    if text and not text.endswith("\x02"):
        text += "\x02"
    place = {PROPERTY_REAL_TOPIC: draft.topic, PROPERTY_REAL_QUEUE_ID: str(draft.queue_id)}
    draft.properties = text + encode_properties(place)
    draft.topic, draft.queue_id = SCHEDULE_TOPIC, level - 1
    return draft


def real_place(message: MessageExt) -> tuple[str, int] | None:
    """Topic and queue id under which a scheduled message is to appear; None when it names none."""
    property_of = message.properties.get
    return legal_place(
        property_of(PROPERTY_REAL_TOPIC, ""), property_of(PROPERTY_REAL_QUEUE_ID, "")
    )


def legal_place(topic: str, queue_id_word: str | bytes) -> tuple[str, int] | None:
    """Whatever a property says: a record's topic and queue id have their form and their range."""
    queue_id = whole_number(queue_id_word, -1)
    if not 0 <= queue_id <= INT32_MAX or topic == SCHEDULE_TOPIC or not is_plain_topic(topic):
        return None
    return topic, queue_id


def dead_letter_of(record: memoryview) -> tuple[MessageDraft, dict[str, str]] | None:
    """The draft of a dead letter, as far as the bytes of a bad record give one, and what its
    properties say; None when not even its lengths add up. What its own properties have no room for,
    they have a note of.
    """
    try:
        draft = draft_of(record)
    except CorruptRecord:
        return None
    given = draft.properties
    text = given if isinstance(given, str) else given.decode("utf-8", "replace")
    properties = decode_properties(text.replace("\0", ""))
    real_topic = properties.get(PROPERTY_REAL_TOPIC, "")
    properties.pop(PROPERTY_DELAY, None)
    if is_plain_topic(real_topic):
        properties.setdefault(PROPERTY_DLQ_ORIGIN_TOPIC, real_topic)
    noted, _ = noted_properties(properties, (), whole_in="the record that could not be delivered")
    draft.properties = encode_properties(noted)
    return draft, properties


def dead_letter_group(real_topic: str) -> str:
    """The group whose dead letter a message for this topic is."""
    group = real_topic.removeprefix(RETRY_PREFIX)
    is_retry = real_topic.startswith(RETRY_PREFIX) and is_plain_topic(dlq_topic(group))
    return group if is_retry and group else SCHEDULE_GROUP
