"""Message properties: their names and their encoding as a single string.

    name \x01 value \x02, repeated

Place in the walk: a producer sets them, the record keeps the string as it came, a consumer reads
them. Invariant: what `encode_properties` accepts comes back from `decode_properties`, but for
names and values that are empty, and whatever `decode_properties` gives is accepted: what was once
read can be written again. The first \x01 ends the name; further ones belong to the value, as in
RocketMQ. Absent on purpose: what a property means to the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from engine.foundation.errors import LocalProtocolError

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_WAIT: Final = "WAIT"
PROPERTY_DELAY: Final = "DELAY"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_ORIGIN_GROUP: Final = "ORIGIN_GROUP"
"""Of a copy in a retry topic of POP: the group it came back to."""
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_MIN_OFFSET: Final = "MIN_OFFSET"
PROPERTY_MAX_OFFSET: Final = "MAX_OFFSET"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PROPERTY_UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_CONSUME_START_TIME: Final = "CONSUME_START_TIME"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_ON: Final = "TRACE_ON"
PROPERTY_INNER_NUM: Final = "INNER_NUM"
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_TRANSACTION_FIRST_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_CHECK_IMMUNITY_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMERS: Final = (PROPERTY_TIMER_DELAY_SEC, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS)
"""Properties that name the moment of a message; of several the first counts."""
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
PROPERTY_TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_DUE_MS: Final = "TIMER_DUE_MS"
"""Ours, as the next three: when a timer is due, to the millisecond."""
PROPERTY_TIMER_REPLACES: Final = "TIMER_REPLACES"
"""Which timer's place another one takes, that is due at another time."""
PROPERTY_TIMER_ORIGIN: Final = "TIMER_ORIGIN"
"""Where the timer lay first that was put again."""
PROPERTY_TIMER_MARK: Final = "TIMER_MARK"
"""How far the timers were delivered, in a message that one of them was."""
PROPERTY_LEFT_OUT: Final = "PROPERTIES_LEFT_OUT"
"""Ours: a note about the properties that a copy had no room for."""

IDENTITY: Final = frozenset(
    (
        PROPERTY_UNIQ_KEY,
        PROPERTY_KEYS,
        PROPERTY_TAGS,
        PROPERTY_SHARDING_KEY,
        PROPERTY_ORIGIN_MESSAGE_ID,
        PROPERTY_RETRY_TOPIC,
    )
)
"""By these a message is found and ordered: what has to leave properties out leaves others first."""

NUMBER_DIGITS_MAX: Final = 18
"""Digits that fit 64 bits; clients may write any text, and Python refuses a number of 5,000."""


def encode_properties(properties: Mapping[str, str]) -> str:
    """Properties as one string. Raises LocalProtocolError for a name or value that would be read
    back as another: a name with a separator in it, a value with the second one.
    """
    parts: list[str] = []
    for name, value in properties.items():
        if NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name + value:
            raise LocalProtocolError(
                f"property {name!r}: character 2 ends a property, and character 1 its name; leave "
                "them out, character 1 may stand in the value"
            )
        parts += (name, NAME_VALUE_SEPARATOR, value, PROPERTY_SEPARATOR)
    return "".join(parts)


def fitting_properties(
    properties: Mapping[str, str], needed: Collection[str], bytes_max: int
) -> tuple[dict[str, str], list[str]]:
    """What of `properties` fits into `bytes_max` bytes of the string form, and the names left out.

    The longest properties are left out first, those of IDENTITY last and those that are `needed`
    never. Whoever leaves one out says so in the copy (`copy_room.noted_properties`).
    """
    sizes = {
        name: len(name.encode()) + len(value.encode()) + 2 for name, value in properties.items()
    }
    excess = sum(sizes.values()) - bytes_max
    left_out: list[str] = []
    for name in sorted(sizes, key=lambda each: (each in IDENTITY, -sizes[each])):
        if excess <= 0:
            break
        if name not in needed:
            left_out.append(name)
            excess -= sizes[name]
    return {name: value for name, value in properties.items() if name not in left_out}, left_out


def whole_number(word: str | bytes, otherwise: int) -> int:
    """The number that a property's value is; `otherwise` for what is none, or too long for one."""
    if len(word) <= NUMBER_DIGITS_MAX and word.isascii() and word.isdigit():
        return int(word)
    return otherwise


def decode_properties(text: str) -> dict[str, str]:
    """The reverse; what is no pair of a name and a value is dropped, as RocketMQ does."""
    properties: dict[str, str] = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        if len(pair) >= 3:
            name, separator, value = pair.partition(NAME_VALUE_SEPARATOR)
            if separator and name and value:
                properties[name] = value
    return properties
