"""Sends the due messages in an outbox whenever a scheduled job calls it.

    rows that are due, the first of each key ─▶ claimed ─▶ sent, some at once ─▶ marked ─┐
                        ▲                                                                │
                        └──────── until none is due, or enough for one run ──────────────┘

What came of a send decides when the row is due again, and nothing else does:

    stored                        SENT, with the broker's word how safely
    refused for what it is        tried OUTBOX_REFUSALS_MAX times, then POISON
    anything else                 WAITING, 1 s at first and up to 1 min, without an end: a cluster
                                  that is gone for a day makes no row poison

Invariant: a row is marked after its send was answered, never before. Absent on purpose: the
scheduler; the caller decides how often, and that one run follows the other.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from engine.client.outbox.outbox_table import (
    HeldRow,
    OutboxRow,
    OutboxTable,
    RowOutcome,
    RowState,
    Standing,
    check_sendable,
)
from engine.client.producer import Producer
from engine.client.sending.queue_choice import select_by_hash
from engine.client.sending.send_result import SendStatus
from engine.foundation.errors import (
    ConfigError,
    LocalProtocolError,
    RequestRefused,
    TidemarkError,
    Unreachable,
)
from engine.foundation.limits import (
    OUTBOX_REFUSALS_MAX,
    OUTBOX_RETRY_MS_MAX,
    OUTBOX_RETRY_MS_MIN,
    OUTBOX_ROWS_AT_ONCE,
    OUTBOX_ROWS_PER_RUN,
    OUTBOX_SEND_WITHIN_MS,
    OUTBOX_SENT_KEPT_MS,
)
from engine.protocol.codes import ResponseCode
from engine.runtime import Runtime

HOLDER_BYTES = 8
"""Of the word under which one round holds its rows."""


@dataclass(slots=True)
class OutboxRun:
    """What one run did."""

    standing: Standing
    """What is left after it."""
    sent: int = 0
    unconfirmed: int = 0
    """Those of the sent that a broker stored without the safety that was asked of it."""
    failed: int = 0
    """Sends that did not store; their rows come again."""
    lost_claims: int = 0
    """Rows that took longer than their lease: they may have been sent twice."""
    poison: list[HeldRow] = field(default_factory=list)
    """The first rows that a person has to look at, of this run and those before."""

    def __str__(self) -> str:
        text = f"{self.sent} sent, {self.failed} not yet, {self.standing.waiting} waiting"
        if self.unconfirmed:
            text += f", {self.unconfirmed} stored without confirmation"
        if self.lost_claims:
            text += f", {self.lost_claims} took too long"
        return text + (f", {self.standing.poison} poison" if self.standing.poison else "")


async def send_outbox(
    runtime: Runtime,
    table: OutboxTable,
    producer: Producer,
    *,
    rows_max: int = OUTBOX_ROWS_PER_RUN,
) -> OutboxRun:
    """Send rows that are due until none is, `rows_max` were tried, or no broker can be reached."""
    disk, clock = runtime.disk, runtime.clock
    run = OutboxRun(Standing(0, 0, None))
    left = rows_max
    while left > 0:
        holder = runtime.entropy.token(HOLDER_BYTES).hex()
        rows = await disk.off_loop(
            partial(table.claim, holder, rows_max=min(left, OUTBOX_ROWS_AT_ONCE))
        )
        if not rows:
            break
        left -= len(rows)
        async with asyncio.TaskGroup() as group:
            sends = [group.create_task(_sent(producer, row)) for row in rows]
        ends = [send.result() for send in sends]
        outcomes = [
            outcome_of(row, end, now_ms=clock.now_ms()) for row, end in zip(rows, ends, strict=True)
        ]
        noted = await disk.off_loop(partial(table.note, holder, outcomes))
        sent = [end for end in ends if not isinstance(end, TidemarkError)]
        run.sent += len(sent)
        run.unconfirmed += sum(status is not SendStatus.SEND_OK for status, _ in sent)
        run.failed += len(ends) - len(sent)
        run.lost_claims += len(rows) - noted
        if all(isinstance(end, Unreachable) for end in ends):
            break
    await disk.off_loop(partial(table.forget_before, clock.now_ms() - OUTBOX_SENT_KEPT_MS))
    run.standing = await disk.off_loop(table.standing)
    run.poison = await disk.off_loop(table.poison)
    return run


_SendEnd = tuple[SendStatus, str] | TidemarkError


async def _sent(producer: Producer, row: OutboxRow) -> _SendEnd:
    """How safely the row is stored, and under which id; or why that is not known."""
    try:
        check_sendable(row.message)  # Rows of an older version were written without this.
    except ConfigError as error:
        return LocalProtocolError(str(error))
    try:
        async with asyncio.timeout(OUTBOX_SEND_WITHIN_MS / 1000):
            result = await producer.send(
                row.message, selector=select_by_hash, argument=row.business_key
            )
    except TidemarkError as error:
        return error
    except TimeoutError:
        return Unreachable(f"no end within {OUTBOX_SEND_WITHIN_MS} ms; it may be stored")
    return result.status, result.offset_message_id


def outcome_of(row: OutboxRow, end: _SendEnd, *, now_ms: int) -> RowOutcome:
    """What becomes of a row after a send."""
    if not isinstance(end, TidemarkError):
        status, offset_message_id = end
        return RowOutcome(
            *(row.row_id, RowState.SENT, now_ms, row.failures, row.refusals),
            message=f"{status.value} {offset_message_id}",
        )
    refusals = row.refusals + speaks_of_the_message(end)
    state = RowState.POISON if refusals >= OUTBOX_REFUSALS_MAX else RowState.WAITING
    wait_ms = min(OUTBOX_RETRY_MS_MAX, OUTBOX_RETRY_MS_MIN << min(row.failures, 20))
    return RowOutcome(
        *(row.row_id, state, now_ms + wait_ms, row.failures + 1, refusals), message=str(end)
    )


def speaks_of_the_message(error: TidemarkError) -> bool:
    """Would another broker refuse it as well, and this one tomorrow?

    A refusal whose code is not known here is none: busy brokers, a leader elsewhere, a queue that
    was taken away (INVALID_PARAMETER, until the next refresh of the route) pass by themselves. What
    a broker refuses for its topic (INVALID_PARAMETER and NO_PERMISSION, too) has been found before
    the send, by `check_sendable`.
    """
    if isinstance(error, RequestRefused):
        return error.code == ResponseCode.MESSAGE_ILLEGAL
    return isinstance(error, LocalProtocolError)
