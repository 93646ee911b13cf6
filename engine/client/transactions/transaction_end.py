"""The outcome of a transaction: what the producer said and what the broker made of it.

The broker's word is final: it may have ended the transaction the other way meanwhile, because a
checker said so or because its questions went unanswered too often. Where it gives no word, or keeps
the transaction open, it asks the checker, and the checker's answer counts (row D4).

    broker's answer                           TransactionEnd   state
    SUCCESS, FLUSH_DISK_TIMEOUT               ACCEPTED         as the local transaction said
    TRANSACTION_FAILED                        CONTRADICTED     the other one
    no such half message, or another's        GONE             UNKNOWN: the broker cannot say
    any other refusal, no answer              OPEN             UNKNOWN: the broker asks

Invariant: `state` is COMMIT or ROLLBACK only on the broker's word. Pure. Absent on purpose: asking
the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.client.sending.send_result import SendResult
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.protocol.codes import ResponseCode
from engine.protocol.names import (
    HALF_GONE_REMARK,
    HALF_GROUP_WRONG_REMARK,
    HALF_ID_WRONG_REMARK,
    HALF_OFFSET_WRONG_REMARK,
    NO_MESSAGE_REMARK,
)


class TransactionState(Enum):
    """How a local transaction ended; the value is the wire's commitOrRollback."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0


class TransactionEnd(Enum):
    """What the broker made of the end that a producer reported."""

    ACCEPTED = "ACCEPTED"
    """The transaction ended as reported."""
    CONTRADICTED = "CONTRADICTED"
    """It had ended the other way before. Final."""
    GONE = "GONE"
    """The broker holds no such half message (any more). Final: nobody asks about it."""
    OPEN = "OPEN"
    """The broker did not hear the end, or does not take it: it asks the checker."""


_OTHER_STATE = {
    TransactionState.COMMIT: TransactionState.ROLLBACK,
    TransactionState.ROLLBACK: TransactionState.COMMIT,
    TransactionState.UNKNOWN: TransactionState.UNKNOWN,
}

_GONE_REMARKS = (
    *(HALF_GONE_REMARK, HALF_GROUP_WRONG_REMARK),
    *(HALF_OFFSET_WRONG_REMARK, HALF_ID_WRONG_REMARK, NO_MESSAGE_REMARK),
)
"""Their code, SYSTEM_ERROR, also stands for failures that pass; RocketMQ's words make the
difference.
"""


@dataclass(frozen=True, slots=True)
class TransactionSendResult:
    """The half message's place, the result of its local transaction, and the outcome."""

    half: SendResult
    local_state: TransactionState
    """What the local executor said; ROLLBACK when the half message was not stored as safely as
    promised and nothing ran.
    """
    end: TransactionEnd
    """What the broker made of it."""
    reason: str | None = None
    """Why the transaction did not simply end as the executor said, in the broker's words where it
    has any; None when it did.
    """

    @property
    def state(self) -> TransactionState:
        """How the transaction stands at the broker: COMMIT and ROLLBACK are final, UNKNOWN is left
        to the checker or, when `end` is GONE, past finding out.
        """
        match self.end:
            case TransactionEnd.ACCEPTED:
                return self.local_state
            case TransactionEnd.CONTRADICTED:
                return _OTHER_STATE[self.local_state]
            case TransactionEnd.GONE | TransactionEnd.OPEN:
                return TransactionState.UNKNOWN

    @property
    def is_final(self) -> bool:
        """Will nothing the producer or its checker says change this any more?"""
        return self.end is not TransactionEnd.OPEN


def end_after(error: TidemarkError) -> TransactionEnd:
    """The outcome of a transaction whose reported end met this error."""
    if not isinstance(error, RequestRefused):
        return TransactionEnd.OPEN
    if error.code == ResponseCode.TRANSACTION_FAILED:
        return TransactionEnd.CONTRADICTED
    if error.code == ResponseCode.SYSTEM_ERROR and error.remark.startswith(_GONE_REMARKS):
        return TransactionEnd.GONE
    return TransactionEnd.OPEN
