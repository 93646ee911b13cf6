"""Maximum body lengths by request code, checked before a body is read.

Place in the walk: in the server, between a frame and the gate. What a handler does with a body of
the length allowed here, and with as many entries as `limits` allows, takes it 50 ms of the loop at
most; a longer one is refused unread.

Invariant: a code that is not listed has no body that anybody reads. Absent on purpose: messages,
whose length is a setting (maxMessageSize), and how many entries a body may hold (its handler).
"""

from __future__ import annotations

from typing import Final

from engine.foundation.errors import RequestRefused
from engine.foundation.limits import (
    BODY_ADMIN_BYTES_MAX,
    BODY_REGISTRATION_BYTES_MAX,
    BODY_SETTINGS_BYTES_MAX,
    BODY_UNREAD_BYTES_MAX,
    FRAME_BYTES_MAX,
    HEARTBEAT_BYTES_MAX,
    LOCK_BATCH_BYTES_MAX,
)
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand

_BYTES_MAX: Final[dict[int, int]] = {
    **dict.fromkeys(
        (
            Code.SEND_MESSAGE,
            Code.SEND_MESSAGE_V2,
            Code.SEND_BATCH_MESSAGE,
            Code.SEND_REPLY_MESSAGE,
            Code.SEND_REPLY_MESSAGE_V2,
        ),
        FRAME_BYTES_MAX,
    ),
    Code.HEART_BEAT: HEARTBEAT_BYTES_MAX,
    Code.LOCK_BATCH_MQ: LOCK_BATCH_BYTES_MAX,
    Code.UNLOCK_BATCH_MQ: LOCK_BATCH_BYTES_MAX,
    Code.UPDATE_BROKER_CONFIG: BODY_SETTINGS_BYTES_MAX,
    Code.UPDATE_NAMESRV_CONFIG: BODY_SETTINGS_BYTES_MAX,
    Code.REGISTER_BROKER: BODY_REGISTRATION_BYTES_MAX,
    **dict.fromkeys(
        (
            Code.UPDATE_AND_CREATE_TOPIC_LIST,
            Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            Code.REGISTER_TOPIC_IN_NAMESRV,
            Code.MERGE_CONSUMER_OFFSETS,
        ),
        BODY_ADMIN_BYTES_MAX,
    ),
}

BODY_BYTES_ALWAYS_READ: Final = min(BODY_UNREAD_BYTES_MAX, *_BYTES_MAX.values())
"""No code has a lower limit."""


def body_bytes_max(code: int) -> int:
    """The longest body of a request with this code."""
    return _BYTES_MAX.get(code, BODY_UNREAD_BYTES_MAX)


def check_body_length(request: RemotingCommand) -> None:
    """Raise RequestRefused with INVALID_PARAMETER when its body is too long for its code."""
    length, length_max = len(request.body), body_bytes_max(request.code)
    if length > length_max:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"a body of {length} bytes: a request of code {request.code} has {length_max} at most; "
            "send less at once",
        )
