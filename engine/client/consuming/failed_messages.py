"""Ways back for a message that its listener did not take (the retry step of the walk).

First the broker is asked to lay it into the group's retry topic by itself, from its own copy. When
that cannot be asked, the consumer sends a copy there as a producer would. Only when both fail does
the caller have to keep the message.

Invariant: UNIQ_KEY and the id of the first try stay the same over all retries. Absent on purpose:
deciding that a message failed, and how often it may. Row E1.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from engine.client.consuming.group_state import GroupState
from engine.foundation.errors import TidemarkError
from engine.foundation.limits import MESSAGE_ID_CHARS_MAX, PROPERTIES_BYTES_MAX
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
    fitting_properties,
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
"""What a copy has to say, whatever else has to be left out."""
COPY_BYTES_MAX = PROPERTIES_BYTES_MAX - 1024
"""Of a copy's properties: the broker adds where it waits, and later what makes it a dead letter."""


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
        """Send a copy to the retry topic; a message at its last try ends in the dead-letter queue
        there.
        """
        try:
            await self._send_copy(self._copy_for_retry(message))
        except TidemarkError as error:
            _log.error("%s stays here, no way back worked: %s", message.message_id, error)
            return False
        return True

    def _copy_for_retry(self, message: MessageExt) -> Message:
        properties = dict(message.properties)
        properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
        if not 0 < len(properties.get(PROPERTY_ORIGIN_MESSAGE_ID, "")) <= MESSAGE_ID_CHARS_MAX:
            own = message.message_id
            short = len(own) <= MESSAGE_ID_CHARS_MAX
            properties[PROPERTY_ORIGIN_MESSAGE_ID] = own if short else message.offset_message_id
        properties[PROPERTY_RETRY_TOPIC] = message.topic
        properties[PROPERTY_RECONSUME_TIME] = str(min(message.reconsume_times + 1, INT32_MAX))
        properties[PROPERTY_MAX_RECONSUME_TIMES] = str(self._state.max_reconsume_times)
        properties[PROPERTY_DELAY] = str(FIRST_RETRY_LEVEL + message.reconsume_times)
        properties, left_out = fitting_properties(properties, OF_A_COPY, COPY_BYTES_MAX)
        if left_out:
            _log.warning(
                "the copy of %s has no room for %d of its properties, %r first",
                message.message_id[:MESSAGE_ID_CHARS_MAX],
                len(left_out),
                left_out[0][:MESSAGE_ID_CHARS_MAX],
            )
        return Message(
            retry_topic(self._state.group), bytes(message.body), properties, message.flag
        )
