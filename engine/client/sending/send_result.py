"""Send results, including which broker refusals warrant a retry.

Place in the walk: the producer's end.

Invariant: a `SendResult` means the message is stored. Its status says what the broker could not
confirm on top, so sending again after one makes a duplicate. Absent on purpose: the sending itself;
`producer` does it. Row D1.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.foundation.errors import RequestRefused
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageQueue


class SendStatus(Enum):
    """How safely the message is stored."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    """Stored, not known to be on the disk."""
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    """Stored, not confirmed by a slave in time."""
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    """Stored, and there is no slave that could confirm it."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message is."""

    status: SendStatus
    message_id: str
    """The id its producer gave it (UNIQ_KEY); of a batch, all of them with commas between."""
    offset_message_id: str
    """The id that names broker and physical offset; of a batch, all of them with commas between."""
    queue: MessageQueue
    queue_offset: int
    """Its place in the queue; of a batch, that of the first message."""


_STATUS_OF_CODE: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}

RETRIED_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
"""Refusals after which another broker may well say yes."""


def status_of(code: int, remark: str | None) -> SendStatus:
    """The status an answer's code stands for. Raises RequestRefused when it is not stored."""
    status = _STATUS_OF_CODE.get(code)
    if status is None:
        raise RequestRefused(code, remark or "no remark")
    return status


def deserves_retry(error: RequestRefused) -> bool:
    """May the same message be accepted by another broker?"""
    return error.code in RETRIED_CODES
