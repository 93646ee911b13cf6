"""Message types: `Message` as produced, and `MessageExt` with the fields the store adds.

Place in the walk: the producer starts with a `Message` and a `MessageQueue`; the consumer's
listener ends it with a `MessageExt`. Absent on purpose: bytes (`message_record`, `message_batch`),
the string form of properties (`properties`), compression.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.protocol.message_ids import offset_message_id
from engine.protocol.properties import (
    PROPERTY_DELAY,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    whole_number,
)


@dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """One queue of a topic on one broker."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(slots=True)
class Message:
    """A message as a producer makes it."""

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0

    @property
    def tags(self) -> str | None:
        """Its tag; None when it has none."""
        return self.properties.get(PROPERTY_TAGS)

    @tags.setter
    def tags(self, tags: str) -> None:
        self.properties[PROPERTY_TAGS] = tags

    @property
    def keys(self) -> str | None:
        """Its keys, separated by one space; None when it has none."""
        return self.properties.get(PROPERTY_KEYS)

    @keys.setter
    def keys(self, keys: str) -> None:
        self.properties[PROPERTY_KEYS] = keys

    @property
    def delay_level(self) -> int:
        """Delay level asked for; 0 is none."""
        text = self.properties.get(PROPERTY_DELAY, "0")
        return -whole_number(text[1:], 0) if text[:1] == "-" else whole_number(text, 0)

    @delay_level.setter
    def delay_level(self, level: int) -> None:
        self.properties[PROPERTY_DELAY] = str(level)

    @property
    def uniq_key(self) -> str | None:
        """The client's id of the message."""
        return self.properties.get(PROPERTY_UNIQ_KEY)


@dataclass(slots=True)
class MessageExt:
    """A message with all that the store knows of it. Times in ms since 1970, hosts as `ip:port`."""

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: str = "127.0.0.1:0"
    store_timestamp_ms: int = 0
    store_host: str = "127.0.0.1:0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    store_size_bytes: int = 0

    @property
    def tags(self) -> str | None:
        """Its tag; None when it has none."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> str | None:
        """Its keys, separated by one space; None when it has none."""
        return self.properties.get(PROPERTY_KEYS)

    @property
    def uniq_key(self) -> str | None:
        """The client's id of the message; None when the producer set none."""
        return self.properties.get(PROPERTY_UNIQ_KEY)

    @property
    def offset_message_id(self) -> str:
        """The broker's id of this stored copy."""
        return offset_message_id(self.store_host, self.physical_offset)

    @property
    def message_id(self) -> str:
        """What clients call the message id: UNIQ_KEY, else the broker's id."""
        return self.uniq_key or self.offset_message_id
