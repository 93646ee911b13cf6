"""Sends back messages that a listener failed to process, so that they can be retried.

First the broker is asked to put the message into the group's retry topic, from its own copy. When
that cannot be asked, the consumer sends a copy there as a producer would. Only when both fail does
the caller have to keep the message.

Invariant: UNIQ_KEY and the id of the first try stay the same over all retries, and a copy that is
tried again has all properties of its message. Absent on purpose:
deciding that a message failed, and how often it may. Row E1.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from engine.client.consuming.group_state import GroupState
from engine.foundation.errors import TidemarkError
from engine.foundation.limits import MESSAGE_ID_CHARS_MAX
from engine.protocol.copy_room import left_out_in_words, noted_properties, room_needed
from engine.protocol.header_fields import INT32_MAX
from engine.protocol.message import Message, MessageExt, MessageQueue
from engine.protocol.names import retry_topic
from engine.protocol.properties import (
    PROPERTY_DELAY,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
)

_log = logging.getLogger(__name__)

FIRST_RETRY_LEVEL = 3
"""Delay level of the first try sent by the consumer itself (10 s); each further one waits a level
more.
"""


OF_A_COPY = frozenset(
    (
        PROPERTY_ORIGIN_MESSAGE_ID,
        PROPERTY_RETRY_TOPIC,
        PROPERTY_RECONSUME_TIME,
        PROPERTY_MAX_RECONSUME_TIMES,
        PROPERTY_DELAY,
    )
)
"""What a copy must say, even if all else has to be left out."""


@dataclass(slots=True)
class SendBackRequest:
    """What the broker is asked."""

    message: MessageExt
    group: str
    delay_level: int
    max_reconsume_times: int
    broker_name: str


class BrokerSendBacks(Protocol):
    """The broker's side."""

    async def send_back(self, request: SendBackRequest) -> None:
        """Have the broker lay its copy into the retry topic.

        Raises TidemarkError when it did not say yes.
        """
        ...


SendCopy = Callable[[Message], Awaitable[object]]
"""Sends a message as a producer would; raises TidemarkError when it is not stored."""


class FailedMessages:
    """Returns failed messages of one consumer."""

    def __init__(self, state: GroupState, broker: BrokerSendBacks, send_copy: SendCopy) -> None:
        self._state = state
        self._broker = broker
        self._send_copy = send_copy

    async def send_back(self, message: MessageExt, delay_level: int, queue: MessageQueue) -> bool:
        """Give `message` of `queue` back, to come again after `delay_level`; False when neither way
        worked.
        """
        request = SendBackRequest(
            message,
            self._state.group,
            delay_level,
            self._state.max_reconsume_times,
            queue.broker_name,
        )
        try:
            await self._broker.send_back(request)
        except TidemarkError as error:
            _log.warning(
                "send-back of %s refused, a copy is sent instead: %s", message.message_id, error
            )
            return await self.send_copy(message)
        return True

    async def send_copy(self, message: MessageExt) -> bool:
        """Send a copy to the retry topic; after its last try it ends in the dead-letter queue."""
        try:
            await self._send_copy(self._copy_for_retry(message))
        except TidemarkError as error:
            _log.error("%s stays here, no way back worked: %s", message.message_id, error)
            return False
        return True

    def _copy_for_retry(self, message: MessageExt) -> Message:
        properties = dict(message.properties)
        properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
        if not _is_short(properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "")):
            own = message.message_id
            first_id = own if _is_short(own) else message.offset_message_id
            properties[PROPERTY_ORIGIN_MESSAGE_ID] = first_id
        properties[PROPERTY_RETRY_TOPIC] = message.topic
        properties[PROPERTY_RECONSUME_TIME] = str(min(message.reconsume_times + 1, INT32_MAX))
        properties[PROPERTY_MAX_RECONSUME_TIMES] = str(self._state.max_reconsume_times)
        properties[PROPERTY_DELAY] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        noted, left_out = noted_properties(
            properties,
            OF_A_COPY,
            whole_in=f"message {message.offset_message_id}",
            room_bytes=room_needed(properties),
        )
        if left_out:  # No try for half a message: the broker makes it a dead letter at once.
            noted[PROPERTY_MAX_RECONSUME_TIMES] = "0"
            _log.error(
                "%s becomes a dead letter, its copy has %s",
                message.message_id[:MESSAGE_ID_CHARS_MAX],
                left_out_in_words(left_out),
            )
        return Message(retry_topic(self._state.group), bytes(message.body), noted, message.flag)


def _is_short(message_id: str) -> bool:
    """Is it there, and of a length that an id has? Clients may write any text."""
    return 0 < len(message_id.encode()) <= MESSAGE_ID_CHARS_MAX
