"""Row D5: what becomes of a row of the outbox after a send, and which refusals pass."""

from __future__ import annotations

import pytest

from engine.client.outbox.outbox_table import OutboxRow, RowState
from engine.client.outbox.sending import outcome_of
from engine.foundation.errors import (
    ConnectFailed,
    LocalProtocolError,
    RequestRefused,
    RequestTimedOut,
    TidemarkError,
)
from engine.foundation.limits import OUTBOX_REFUSALS_MAX, OUTBOX_RETRY_MS_MIN
from engine.protocol.codes import ResponseCode
from engine.protocol.message import Message


def state_after(error: TidemarkError, *, times: int) -> RowState:
    """Of a row whose sends all end like this."""
    row = OutboxRow(1, Message("orders", b"x", {"KEYS": "k"}), 0, 0)
    for _ in range(times):
        outcome = outcome_of(row, error, now_ms=0)
        row = OutboxRow(1, row.message, outcome.failures, outcome.refusals)
    return outcome.state


@pytest.mark.parametrize(
    "error",
    [RequestRefused(ResponseCode.MESSAGE_ILLEGAL, "too long"), LocalProtocolError("a property")],
)
def test_what_brokers_refuse_for_what_it_is_is_poison_the_third_time(error: TidemarkError) -> None:
    assert state_after(error, times=OUTBOX_REFUSALS_MAX - 1) is RowState.WAITING
    assert state_after(error, times=OUTBOX_REFUSALS_MAX) is RowState.POISON


@pytest.mark.parametrize(
    "error",
    [
        RequestRefused(ResponseCode.INVALID_PARAMETER, "request queueId[7] is illegal"),
        RequestRefused(ResponseCode.FLOW_CONTROL, "too many requests"),
        RequestRefused(ResponseCode.NOT_LEADER_FOR_QUEUE, "it moved"),
        RequestRefused(ResponseCode.NO_PERMISSION, "not yet"),
        RequestRefused(ResponseCode.TOPIC_NOT_EXIST, "not yet"),
        RequestRefused(9_999, "of a later version"),
        ConnectFailed("nobody"),
        RequestTimedOut("unknown"),
    ],
    ids=str,
)
def test_what_may_pass_is_sent_again_without_an_end(error: TidemarkError) -> None:
    assert state_after(error, times=100) is RowState.WAITING
    row = OutboxRow(1, Message("orders", b"x", {"KEYS": "k"}), 0, 0)
    assert outcome_of(row, error, now_ms=5_000).due_ms == 5_000 + OUTBOX_RETRY_MS_MIN
