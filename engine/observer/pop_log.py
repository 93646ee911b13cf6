"""Tracks messages delivered to a POP group but not yet acknowledged.

It knows this from the broker's checkpoints and acknowledgements.

    ck    {c, t, q, so, d, n, pt, it}    messages so + d[i] were handed out at pt for it ms
    ack   {c, t, q, so, pt, ao}          message ao of that checkpoint was acknowledged
    bAck  {c, t, q, so, pt, aol}         and messages aol of it

Place in the walk: `polling` reads records as the broker stores them, with the timer's topic name
before their time is over, later with the revive log's; `facts` asks what is left. Pure: the time
comes with the questions, by the broker's clock.

Invariant: a message counts as handed out from its checkpoint until its acknowledgement or the end
of its invisible time, whichever comes first. What was handed out before the first record that was
read is not known, so counts are exact only when the longest invisible time has passed since then.
Absent on purpose: reading, and what became of a message later (its copy in the retry topic says).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from engine.foundation.units import MINUTE_MS
from engine.observer.believable import OFFSET_MAX, is_moment, is_name
from engine.protocol.message import MessageExt

REVIVE_LOG_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REAL_TOPIC: Final = "REAL_TOPIC"
HANDED_OUT_MAX: Final = 100_000
"""Messages of one broker that are handed out and not acknowledged; beyond nothing is known."""
MESSAGES_A_CHECKPOINT: Final = 64
"""RocketMQ hands out 32 at once."""
INVISIBLE_MS_MAX: Final = 7 * 24 * 60 * MINUTE_MS
LONGEST_MS_MIN: Final = MINUTE_MS
"""The longest invisible time is taken to be no shorter: what RocketMQ's clients ask for unset."""
ABSENT_LOOKS: Final = 3
RANGES_MAX: Final = 32
"""How many ranges are named of a queue, as of what members hold."""

Key = tuple[str, str, int]
"""(group, topic, queue_id)"""


class _Record(msgspec.Struct):
    """A checkpoint or an acknowledgement, by the broker's own short names."""

    c: str
    t: str
    q: int
    pt: int
    so: int = 0
    it: int = 0
    n: int = 0
    d: list[int] = []
    bm: int = 0
    ao: int = -1
    aol: list[int] = []


_decode = msgspec.json.Decoder(_Record).decode


@dataclass(slots=True)
class HandedOut:
    """One message that was handed out."""

    at_ms: int
    until_ms: int


@dataclass(slots=True)
class PopQueue:
    """What is known of a group in a queue."""

    out: dict[int, HandedOut] = field(default_factory=dict)
    """By offset."""
    acknowledged: int = 0
    """Since it was asked last."""
    expired: int = 0
    """Invisible times that were over, since it was asked last."""
    invisible_ms: int = 0
    """The newest invisible time that was asked for."""
    absent_looks: int = 0
    """How many looks in a row found no offset of the group in it."""


@dataclass(frozen=True, slots=True)
class Unacknowledged:
    """What is left of a queue at a moment."""

    count: int
    ranges: tuple[tuple[int, int], ...]
    """[from, to), the lowest RANGES_MAX of them."""
    oldest_ms: int | None
    """When the oldest of them was handed out."""


class PopLog:
    """Of one broker."""

    def __init__(self, handed_out_max: int = HANDED_OUT_MAX) -> None:
        self._handed_out_max = handed_out_max
        self._count = 0
        self.queues: dict[Key, PopQueue] = {}
        self.odd_count = 0
        """Records that cannot be read."""
        self.is_full = False
        self._is_whole = False
        """Were all records read that the broker ever kept?"""
        self._first_ms: int | None = None
        """When the first record was stored that was read."""
        self._longest_ms = LONGEST_MS_MIN
        self._is_fresh = True
        """Is what was read of the past, which nobody counts?"""

    def begin(self, *, is_whole: bool) -> None:
        """Records are read from now on; `is_whole`: from the first that the broker ever kept."""
        for queue in self.queues.values():
            queue.out.clear()
        self._count, self.is_full = 0, False
        self._is_whole, self._first_ms, self._is_fresh = is_whole, None, True

    def take(self, records: Iterable[MessageExt]) -> None:
        """The next records, in their order."""
        for record in records:
            topic = record.properties.get(REAL_TOPIC, record.topic)
            if self._first_ms is None:
                self._first_ms = record.store_timestamp_ms
            if not topic.startswith(REVIVE_LOG_PREFIX):
                continue  # Somebody else's delayed message.
            try:
                body = _decode(bytes(record.body))
                is_sound = self._take(record.properties.get("TAGS"), body)
            except msgspec.MsgspecError:
                is_sound = False
            self.odd_count += not is_sound

    def end_expired(self, now_ms: int) -> None:
        """Invisible times that are over by now."""
        for queue in self.queues.values():
            over = [offset for offset, one in queue.out.items() if one.until_ms <= now_ms]
            for offset in over:
                del queue.out[offset]
            self._count -= len(over)
            queue.expired = 0 if self._is_fresh else queue.expired + len(over)
            queue.acknowledged = 0 if self._is_fresh else queue.acknowledged
        self._is_fresh = False

    def is_exact(self, now_ms: int) -> bool:
        """Is all known that is handed out now?"""
        if self.is_full or self._is_whole:
            return not self.is_full
        return self._first_ms is not None and now_ms >= self._first_ms + self._longest_ms

    def groups(self) -> set[str]:
        """All that checkpoints named."""
        return {group for group, _, _ in self.queues}

    def looked(self, keys: Container[Key]) -> None:
        """A look found groups with an offset in these. Records are read after that was asked, so a
        queue that is not among them may be among those of the next look; after ABSENT_LOOKS nobody
        has an offset there any more.
        """
        for queue_key, queue in list(self.queues.items()):
            queue.absent_looks = 0 if queue_key in keys else queue.absent_looks + 1
            if queue.absent_looks > ABSENT_LOOKS and not queue.out:
                del self.queues[queue_key]

    def _take(self, tag: str | None, body: _Record) -> bool:
        """Is it a sound record?"""
        if not is_name(body.c) or not is_name(body.t) or not 0 <= body.q < OFFSET_MAX:
            return False
        queue = self.queues.setdefault((body.c, body.t, body.q), PopQueue())
        if tag == "ck":
            return self._hand_out(queue, body)
        if tag not in ("ack", "bAck"):
            return False
        for offset in [body.ao] if tag == "ack" else body.aol:
            known = queue.out.get(offset)
            # A client that asks for another invisible time acknowledges what it was handed before.
            if known is not None and known.at_ms == body.pt:
                del queue.out[offset]
                self._count -= 1
                queue.acknowledged += 1
        return True

    def _hand_out(self, queue: PopQueue, body: _Record) -> bool:
        diffs = body.d or range(min(body.n, MESSAGES_A_CHECKPOINT))
        # A bit for each that was acknowledged before the checkpoint was stored.
        offsets = [body.so + diff for at, diff in enumerate(diffs) if not body.bm >> at & 1]
        are_sound = all(0 <= offset < OFFSET_MAX for offset in offsets)
        is_time = 0 < body.it <= INVISIBLE_MS_MAX and is_moment(body.pt)
        if not are_sound or not is_time or body.bm < 0 or len(diffs) > MESSAGES_A_CHECKPOINT:
            return False
        queue.invisible_ms = body.it
        self._longest_ms = max(self._longest_ms, body.it)
        for offset in offsets:
            self._count += offset not in queue.out
            queue.out[offset] = HandedOut(body.pt, body.pt + body.it)
        self.is_full = self.is_full or self._count > self._handed_out_max
        if self.is_full:  # Until somebody begins anew.
            self._count = 0
            for one in self.queues.values():
                one.out.clear()
        return True


def left_of(queue: PopQueue, popped: int) -> Unacknowledged:
    """What is not acknowledged of the messages below an offset."""
    offsets = sorted(offset for offset in queue.out if offset < popped)
    oldest = min((queue.out[offset].at_ms for offset in offsets), default=None)
    return Unacknowledged(len(offsets), tuple(_ranges(offsets))[:RANGES_MAX], oldest)


def _ranges(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    begin = end = None
    for offset in offsets:
        if end is not None and offset == end:
            end = offset + 1
            continue
        if begin is not None and end is not None:
            yield begin, end
        begin, end = offset, offset + 1
    if begin is not None and end is not None:
        yield begin, end
