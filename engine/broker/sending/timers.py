"""Rules for messages that request delivery at a given time.

Place in the walk: a send whose properties name a delay or a time comes here before its put; a
recall names such a message by the handle that the send's answer gave.

RocketMQ's precedence: a delay level, TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS. A moment
that has passed is none. Unlike there a delay has no upper limit.

Invariant: a copy of a message that has waited does not wait again. Absent on purpose: the wheel
(`delay/wheel`).
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from engine.broker.identity import BrokerNode
from engine.delay.wheel.time_wheel import TimeWheel
from engine.delay.wheel.timer_records import DUE_MS_MAX
from engine.foundation.errors import RequestRefused
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.protocol.properties import (
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_MARK,
    PROPERTY_TIMER_OUT_MS,
    TIMERS,
    encode_properties,
    whole_number,
)
from engine.protocol.timers import out_ms_of
from engine.runtime.clock import Clock
from engine.store import MessageDraft

_VERSION = "v1"


class Handle(NamedTuple):
    """What a send's answer gives to recall the message with."""

    topic: str
    broker_name: str
    at_ms: int
    """Within the second at whose end RocketMQ would deliver it."""
    unique_key: str

    def to_text(self) -> str:
        """As it travels."""
        words = (_VERSION, self.topic, self.broker_name, str(self.at_ms), self.unique_key)
        return urlsafe_b64encode(" ".join(words).encode()).decode()


def handle_in(text: str) -> Handle:
    """Raises RequestRefused for a text that is none."""
    try:
        words = urlsafe_b64decode(text.encode()).decode().split(" ")
    except (ValueError, binascii.Error):
        words = []
    if len(words) != len(Handle._fields) + 1 or words[0] != _VERSION:
        raise RequestRefused(
            ResponseCode.ILLEGAL_OPERATION, f"recall failed, {text[:80]!r} is no recall handle"
        )
    return Handle(words[1], words[2], whole_number(words[3], -1), words[4])


def without_mark(text: str, properties: dict[str, str]) -> str:
    """The property string of a message that a client sends: how far timers are is for a broker to
    say. A copy of a message that has waited brings it along.
    """
    if properties.pop(PROPERTY_TIMER_MARK, None) is None:
        return text
    return encode_properties(properties)


class Timers:
    """The rules of one broker."""

    def __init__(self, *, clock: Clock, node: BrokerNode, wheel: TimeWheel) -> None:
        self._clock = clock
        self._node = node
        self._wheel = wheel

    def due_ms(self, properties: dict[str, str]) -> int | None:
        """When a message with these properties is to appear; None: at once.

        Raises RequestRefused for a moment that is none, and where timers are switched off.
        """
        name = next((name for name in TIMERS if name in properties), None)
        if name is None or PROPERTY_TIMER_OUT_MS in properties:
            return None
        if not self._node.config.timer_wheel_enable:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {name}: accurate timer message is not enabled, timerWheelEnable=false; "
                "use a delay level",
            )
        now_ms = self._clock.now_ms()
        number = whole_number(properties[name], -1)
        scale = SECOND_MS if name == PROPERTY_TIMER_DELAY_SEC else 1
        due_ms = number * scale + (0 if name == PROPERTY_TIMER_DELIVER_MS else now_ms)
        if number < 0 or due_ms > DUE_MS_MAX:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {name}: {properties[name][:40]!r} is no whole number that leads to a "
                "time before the year 10000",
            )
        if due_ms > now_ms:
            return due_ms
        if PROPERTY_TIMER_DEL_UNIQKEY in properties:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {name}: the timer that is to be cancelled was due by {due_ms}, "
                f"{now_ms - due_ms} ms ago",
            )
        return None

    def park(self, draft: MessageDraft, due_ms: int) -> MessageDraft:
        """The draft of a message that waits until then; `announce` it when it is put."""
        return self._wheel.park(draft, due_ms)

    def announce(self, draft: MessageDraft, log_offset: int) -> None:
        """It was put in this step, and lies there."""
        self._wheel.announce(draft, log_offset)

    def handle(self, topic: str, due_ms: int, unique_key: str) -> str:
        """What recalls the message that waits until then."""
        at_ms = out_ms_of(due_ms) + 1
        return Handle(topic, self._node.config.broker_name, at_ms, unique_key).to_text()
