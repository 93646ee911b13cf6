"""Validates, identifies and compresses a message or batch once for all send attempts.

Place in the walk: the first step.

Invariant: a message object carries one UNIQ_KEY from its first envelope on; its body and its other
properties are not changed (a batch's messages also get WAIT, as in RocketMQ). Absent on purpose:
queues and sending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.client.config import ProducerConfig
from engine.foundation.errors import LocalProtocolError, RequestRefused
from engine.foundation.limits import BATCH_MESSAGES_MAX, PROPERTIES_BYTES_MAX
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.compression import compress
from engine.protocol.message import Message, MessageQueue
from engine.protocol.message_batch import encode_batch
from engine.protocol.names import AUTO_CREATE_TOPIC, RETRY_PREFIX, SysFlag, check_topic
from engine.protocol.properties import (
    PROPERTY_DELAY,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT,
    TIMERS,
    encode_properties,
)
from engine.protocol.trace import TracedKind

NOT_IN_A_BATCH = (
    PROPERTY_DELAY,
    *TIMERS,
    PROPERTY_TRANSACTION_PREPARED,
)
"""Properties of messages that wait; a batch is delivered at once."""


@dataclass(slots=True)
class Envelope:
    """A message or batch ready to be sent to any queue of its topic."""

    topic: str
    message_id: str
    """Its UNIQ_KEY; of a batch, all of them with commas between."""
    code: RequestCode
    body: bytes
    fields: dict[str, str]
    """The fields of SEND_MESSAGE_V2 that do not depend on the queue and the time."""
    tags: str | None = None
    keys: str | None = None
    kind: TracedKind = TracedKind.NORMAL
    """These three for the message trace; a batch has no tags and keys of its own."""

    def request(self, queue: MessageQueue, now_ms: int) -> RemotingCommand:
        """The request for one queue."""
        fields = {
            **self.fields,
            "e": str(queue.queue_id),
            "g": str(now_ms),
            "n": queue.broker_name,
        }
        return RemotingCommand.request(self.code, fields, self.body)


class Envelopes:
    """Makes the envelopes of one producer group."""

    def __init__(self, group: str, config: ProducerConfig, next_id: Callable[[], str]) -> None:
        self._config = config
        self._next_id = next_id
        self._common = {
            "a": group,
            "c": AUTO_CREATE_TOPIC,
            "d": str(config.default_topic_queue_count),
            "k": "false",
        }

    def of_message(self, message: Message) -> Envelope:
        """Raises RequestRefused for an illegal topic or body, LocalProtocolError for properties."""
        check_topic(message.topic)
        self._check_body(message)
        message_id = self._give_id(message)
        body, sys_flag = message.body, 0
        if len(body) >= self._config.compress_over_bytes:
            config = self._config
            body, sys_flag = compress(body, level=config.compress_level, kind=config.compress_type)
        properties = {PROPERTY_WAIT: "true", **message.properties}
        if properties.get(PROPERTY_TRANSACTION_PREPARED) == "true":
            sys_flag |= SysFlag.TRANSACTION_PREPARED
        fields = self._common | {
            "b": message.topic,
            "f": str(int(sys_flag)),
            "h": str(message.flag),
            "j": "0",
            "m": "false",
        }
        if message.topic.startswith(RETRY_PREFIX):  # These two travel as fields of their own.
            fields["j"] = properties.pop(PROPERTY_RECONSUME_TIME, "0")
            limit = properties.pop(PROPERTY_MAX_RECONSUME_TIMES, None)
            if limit is not None:
                fields["l"] = limit
        fields["i"] = _property_text(properties)
        return Envelope(
            *(message.topic, message_id, RequestCode.SEND_MESSAGE_V2, body, fields),
            *(message.tags, message.keys, _kind_of(message)),
        )

    def of_batch(self, messages: Sequence[Message]) -> Envelope:
        """Raises LocalProtocolError for what is no batch, RequestRefused as `of_message`."""
        topic, wait = self._check_batch(messages)
        for message in messages:
            message.properties.setdefault(PROPERTY_WAIT, wait)
        ids = [self._give_id(message) for message in messages]
        body = bytes(encode_batch(messages))
        if len(body) > self._config.body_bytes_max:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has {len(body)} bytes, at most {self._config.body_bytes_max} are sent;"
                " split it",
            )
        fields = self._common | {
            "b": topic,
            "f": "0",
            "h": "0",
            "i": _property_text({PROPERTY_WAIT: wait}),
            "j": "0",
            "m": "true",
        }
        return Envelope(topic, ",".join(ids), RequestCode.SEND_BATCH_MESSAGE, body, fields)

    def _check_batch(self, messages: Sequence[Message]) -> tuple[str, str]:
        """The batch's topic and its way of waiting for storage."""
        if not 0 < len(messages) <= BATCH_MESSAGES_MAX:
            raise LocalProtocolError(
                f"a batch has 1 to {BATCH_MESSAGES_MAX} messages, this one {len(messages)}"
            )
        topic = messages[0].topic
        wait = messages[0].properties.get(PROPERTY_WAIT, "true")
        check_topic(topic)
        if topic.startswith(RETRY_PREFIX):
            raise LocalProtocolError(f"messages of {topic} cannot be sent as a batch")
        for message in messages:
            self._check_body(message)
            if message.topic != topic:
                raise LocalProtocolError(
                    f"a batch is of one topic, this one of {topic} and {message.topic}"
                )
            if message.properties.get(PROPERTY_WAIT, "true") != wait:
                raise LocalProtocolError("messages of a batch wait for storing alike (WAIT)")
            delayed = [name for name in NOT_IN_A_BATCH if name in message.properties]
            if delayed:
                raise LocalProtocolError(f"a batch is delivered at once, this one has {delayed[0]}")
        return topic, wait

    def _check_body(self, message: Message) -> None:
        if not message.body:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "the message body is empty")
        if len(message.body) > self._config.body_bytes_max:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the message body has {len(message.body)} bytes,"
                f" at most {self._config.body_bytes_max} are sent",
            )

    def _give_id(self, message: Message) -> str:
        """The message's UNIQ_KEY, made for its first envelope and kept ever after."""
        held = message.properties.get(PROPERTY_UNIQ_KEY)
        if held is None:
            held = message.properties[PROPERTY_UNIQ_KEY] = self._next_id()
        return held


def _kind_of(message: Message) -> TracedKind:
    if message.properties.get(PROPERTY_TRANSACTION_PREPARED) == "true":
        return TracedKind.TRANSACTION_HALF
    if PROPERTY_DELAY in message.properties:
        return TracedKind.DELAYED
    return TracedKind.NORMAL


def _property_text(properties: dict[str, str]) -> str:
    text = encode_properties(properties)
    size = len(text.encode())
    if size > PROPERTIES_BYTES_MAX:
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the properties have {size} bytes, at most {PROPERTIES_BYTES_MAX} are sent",
        )
    return text
