"""Tracks open transactions and the half-queue offset below which every one is settled.

Place in the walk: a half message waits in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, until its producer
commits it or rolls it back; what is ended is written down in op messages, lists of half queue
offsets, in batches (row D4). Time comes in as `now_ms`, verdicts leave as values; the code that
puts records notes them here.

A transaction is named by the queue offset of the first copy of its half message. A half message
whose producer is asked is put again at the tail, with the question counted; one whose producer has
asked for time only when it keeps many settled ones from being passed (`is_sparse`). The newest copy
stands for the transaction, and an answer to any copy ends it, once.

Invariant: every half queue offset at or above `half_offset` is the newest copy of an open
transaction, or ended and waiting for its op message, or settled by a record whose end is known.
`half_offset` passes only what is settled by records that are durable, so a crash at any point finds
every transaction open or ended again, and loses none.
Absent on purpose: records, the store, producers, timers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from engine.foundation.limits import TRANSACTIONS_HELD_MAX, TRANSACTIONS_RENEWED_HELD
from engine.protocol.message import MessageExt
from engine.protocol.properties import (
    PROPERTY_CHECK_IMMUNITY_SECONDS,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_FIRST_OFFSET,
    whole_number,
)

OP_SEPARATOR = ","


@dataclass(slots=True)
class HalfMessage:
    """The newest copy of an open transaction's half message. Times in ms since 1970."""

    first_offset: int
    """Queue offset of its first copy: the transaction's name."""
    queue_offset: int
    physical_offset: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    immunity_s: int | None
    """What its producer asked for in CHECK_IMMUNITY_TIME_IN_SECONDS; None: nothing."""
    check_times: int
    """How often its producer has been asked."""
    topic: str | None = None
    """Where it goes when it is committed; None: its record does not say."""


class Verdict(Enum):
    """What a check round does with an open transaction."""

    WAIT = "its producer still has time"
    RENEW = "its producer still has time, and others wait behind it: put it again at the tail"
    CHECK = "ask its producer"
    DISCARD = "asked too often, or too old: roll it back, and keep a record"


@dataclass(frozen=True, slots=True)
class CheckRules:
    """When a producer is asked, and when it is given up, in ms."""

    timeout_ms: int
    check_max: int
    reserved_ms: int
    """Older half messages are given up: retention may delete them at any time."""
    renews: bool
    """Are those whose producers still have time put again at the tail?"""


def first_offset_of(message: MessageExt) -> int:
    """Queue offset of the first copy of this half message."""
    word = message.properties.get(PROPERTY_TRANSACTION_FIRST_OFFSET, "")
    return min(whole_number(word, message.queue_offset), message.queue_offset)


def half_message(message: MessageExt) -> HalfMessage:
    """What is remembered of a stored copy."""
    times = message.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES, "")
    immunity = message.properties.get(PROPERTY_CHECK_IMMUNITY_SECONDS)
    return HalfMessage(
        first_offset_of(message),
        message.queue_offset,
        message.physical_offset,
        message.born_timestamp_ms,
        message.store_timestamp_ms,
        immunity_seconds(immunity) if immunity else None,
        whole_number(times, 0),
        message.properties.get(PROPERTY_REAL_TOPIC),
    )


def immunity_seconds(word: str) -> int:
    """The number of seconds; -1, as RocketMQ reads what is no number, for the broker's time-out."""
    return whole_number(word, -1)


def immunity_ms(immunity_s: int, timeout_ms: int) -> int:
    """How long after its birth a half message with such a wish is left in peace."""
    return timeout_ms if immunity_s < 0 else immunity_s * 1000


def verdict(half: HalfMessage, *, now_ms: int, round_began_ms: int, rules: CheckRules) -> Verdict:
    """What to do with an open transaction, as RocketMQ 5.5 decides it.

    Two differences. A wish for more time is no question asked, so it does not count against the
    limit of questions. And it costs no copy in each round: RocketMQ puts such a half message again
    every 30 s for as long as its producer wished, and a few of 4 MB fill a disk.
    """
    age_ms = now_ms - half.born_timestamp_ms
    if half.check_times >= rules.check_max or age_ms > rules.reserved_ms:
        return Verdict.DISCARD
    if half.store_timestamp_ms >= round_began_ms:
        return Verdict.WAIT
    if half.immunity_s is not None:
        if age_ms > immunity_ms(half.immunity_s, rules.timeout_ms):
            return Verdict.CHECK
        return Verdict.RENEW if rules.renews else Verdict.WAIT
    if 0 <= age_ms <= rules.timeout_ms:
        return Verdict.WAIT
    return Verdict.CHECK  # Born in the future as well: nobody knows how long it has waited.


def encode_op_body(half_offsets: Sequence[int]) -> bytes:
    """The body of an op message: each half queue offset with a comma behind it."""
    return "".join(f"{offset}{OP_SEPARATOR}" for offset in half_offsets).encode()


def decode_op_body(body: bytes) -> list[int]:
    """The half queue offsets an op message lists; words that are no numbers are passed over."""
    words = body.decode(errors="replace").split(OP_SEPARATOR)
    numbers = [whole_number(word, -1) for word in words]
    return [number for number in numbers if number >= 0]


@dataclass(slots=True, eq=False)
class Transactions:
    """The half queue of one broker from its progress offset on."""

    held_max: int = TRANSACTIONS_HELD_MAX
    renewed_held: int = TRANSACTIONS_RENEWED_HELD
    half_offset: int = field(default=0, init=False)
    """Everything below is settled: the consume offset of the half queue."""
    op_offset: int = field(default=0, init=False)
    """Op messages below say nothing of any offset at or above `half_offset`."""
    _half_end: int = field(default=0, init=False)
    _open: OrderedDict[int, HalfMessage] = field(default_factory=OrderedDict, init=False)
    """By name, in the order of their newest copies."""
    _open_by_topic: dict[str, int] = field(default_factory=dict, init=False)
    _ended: dict[int, bool] = field(default_factory=dict, init=False)
    """Ended transactions of which a copy is not passed yet, by name; was it committed?"""
    _pending: dict[int, int] = field(default_factory=dict, init=False)
    """Half offsets that wait for an op message → name of the transaction."""
    pending_bytes: int = field(default=0, init=False)
    """Length of all op bodies that are due."""
    _settled: dict[int, tuple[int, int]] = field(default_factory=dict, init=False)
    """Half offset → end of the record that settles it, name of the transaction."""
    _ops: deque[tuple[int, int]] = field(default_factory=deque, init=False)
    """Op queue offset and the highest half offset that op message lists, in queue order."""

    # ---- what happened ----------------------------------------------------------------------

    def restore(
        self,
        halves: Iterable[HalfMessage],
        ops: Iterable[tuple[int, Sequence[int]]],
        *,
        half_begin: int,
        half_end: int,
        op_begin: int,
    ) -> None:
        """Take over what the queues hold: half messages in [half_begin, half_end), in order, and
        op messages from `op_begin` on, each as its queue offset and the half offsets it lists.
        What was known before is forgotten.
        """
        for known in (self._open, self._open_by_topic, self._ended, self._pending, self._settled):
            known.clear()
        self._ops.clear()
        self.pending_bytes = 0
        self.half_offset, self.op_offset = half_begin, op_begin
        self._half_end = half_begin
        names: dict[int, int] = {}
        for half in halves:
            names[half.queue_offset] = half.first_offset
            self.note_half(half, end_offset=0)
        for op_offset, listed in ops:
            self._ops.append((op_offset, max(listed, default=-1)))
            for half_offset in listed:
                newest = self._close(names.get(half_offset, -1))
                if newest is not None:  # The list may name an older copy than the newest.
                    self._settled[newest.queue_offset] = 0, newest.first_offset
        self._half_end = max(self._half_end, half_end)
        for hole in range(half_begin, self._half_end):
            if hole not in names:
                self._settled[hole] = 0, hole

    def note_half(self, half: HalfMessage, *, end_offset: int) -> None:
        """A half message, or a further copy of one, is stored up to `end_offset`."""
        older = self._close(half.first_offset)
        if older is not None:
            self._settled[older.queue_offset] = end_offset, half.first_offset
        self._open[half.first_offset] = half
        if half.topic is not None:
            self._open_by_topic[half.topic] = self._open_by_topic.get(half.topic, 0) + 1
        self._half_end = max(self._half_end, half.queue_offset + 1)

    def end(self, first_offset: int, *, committed: bool) -> None:
        """An open transaction has ended; its op message is due."""
        half = self._close(first_offset)
        assert half is not None, "it is open"
        self._ended[first_offset] = committed
        self._pending[half.queue_offset] = first_offset
        self.pending_bytes += len(str(half.queue_offset)) + 1

    def note_op(self, op_offset: int, half_offsets: Sequence[int], *, end_offset: int) -> None:
        """The op message that lists these is stored up to `end_offset`."""
        for half_offset in half_offsets:
            self._settled[half_offset] = end_offset, self._pending.pop(half_offset)
            self.pending_bytes -= len(str(half_offset)) + 1
        self._ops.append((op_offset, max(half_offsets)))

    def advance(self, durable_to: int) -> None:
        """Move both progress offsets over what records before `durable_to` settle."""
        while (settled := self._settled.get(self.half_offset)) is not None:
            end_offset, first_offset = settled
            if end_offset > durable_to:
                break
            del self._settled[self.half_offset]
            if first_offset not in self._open:
                self._ended.pop(first_offset, None)
            self.half_offset += 1
        while self._ops and self._ops[0][1] < self.half_offset:
            self.op_offset = self._ops.popleft()[0] + 1

    def _close(self, first_offset: int) -> HalfMessage | None:
        """Take an open transaction out; None when there is none of that name."""
        half = self._open.pop(first_offset, None)
        if half is not None and half.topic is not None:
            self._open_by_topic[half.topic] -= 1
            if not self._open_by_topic[half.topic]:
                del self._open_by_topic[half.topic]
        return half

    # ---- questions --------------------------------------------------------------------------

    def open_by_topic(self) -> dict[str, int]:
        """How many transactions are open, by the topic of their message; only where some are."""
        return dict(self._open_by_topic)

    @property
    def is_full(self) -> bool:
        """Are there too many half offsets between the progress and the end of the queue?"""
        return self._half_end - self.half_offset >= self.held_max

    @property
    def is_sparse(self) -> bool:
        """Are many half offsets from the oldest open one on, and half of them settled?

        Open transactions that are put again now free as many places as they take; put again, they
        stand close together, so this holds next when as many others have come and ended.
        """
        oldest = next(iter(self._open.values()), None)
        if oldest is None:
            return False
        held = self._half_end - oldest.queue_offset
        return held >= self.renewed_held and 2 * len(self._open) <= held

    def open_halves(self) -> list[HalfMessage]:
        """Open transactions by their newest copies, in queue order."""
        return list(self._open.values())

    def find(self, first_offset: int) -> HalfMessage | None:
        """The open transaction of that name; None when it has ended, or never was."""
        return self._open.get(first_offset)

    def was_committed(self, first_offset: int) -> bool | None:
        """How a transaction ended; None when that is no longer remembered."""
        return self._ended.get(first_offset)

    def op_batch(self, bytes_max: int) -> list[int]:
        """Half offsets for the next op message, whose body has at most `bytes_max` bytes."""
        batch: list[int] = []
        length = 0
        for half_offset in self._pending:
            length += len(str(half_offset)) + 1
            if length > bytes_max and batch:
                break
            batch.append(half_offset)
        return batch
