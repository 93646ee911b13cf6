"""Process queue: a sliding window over the messages that a consumer holds from one queue.

Place in the walk: between pull and offset store.

The window answers two questions. Which consume offset may be reported without losing a message? It
is the lowest offset still held, or one past the highest ever held when the window is empty (row
A7). And how far is what was handed out beyond it? A crash brings all of that again.

Concurrent consumption removes finished messages in any order; orderly consumption takes a batch
from the front, then commits it, rolls it back or puts part of it back.

Invariant: a reported offset is never above a message that is held. Absent on purpose: threads,
timers, the network. Callers pass `now_ms` and act on what is returned.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from engine.client.consuming.consume_stats import FlowControl
from engine.foundation.limits import CLIENT_LOCK_EXPIRY_MS
from engine.foundation.units import SECOND_MS
from engine.protocol.message import MessageExt
from engine.protocol.properties import PROPERTY_KEYS, PROPERTY_SHARDING_KEY

PULL_EXPIRY_MS = 120 * SECOND_MS
"""A queue not pulled for this long is taken up anew by the next rebalance (RocketMQ:
pullMaxIdleTime).
"""

HELD_RANGES_MAX = 32
"""Ranges reported of a window; what lies beyond is covered by stretching the last one."""

FINISHED_OFFSETS_MAX = 100_000
"""Finished offsets remembered one by one above an unfinished head; older ones beyond it are only
counted.
"""


LOCAL_RETRIES_MAX = 32
"""Newest local retries reported of a window."""

KEYS_LOOKED_AT_MAX = 256
"""Held messages of a window whose keys are counted: enough to see which key most of them have."""

LocalRetry = tuple[int, str, int, int]
"""When (ms since 1970), message id, queue offset, failed tries so far."""


class ProcessQueue:
    """The window of one queue, with the marks that pulling, locking and supervision leave on it."""

    __slots__ = (
        "_consuming",
        "_finished",
        "_finished_forgotten",
        "_finished_max",
        "_highest_put",
        "_messages",
        "_offsets",
        "_started_ms",
        "_taken",
        "dropped",
        "filtered_count",
        "held_bytes",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "local_retries",
        "locked",
        "processed_offset",
        "resting",
        "try_unlock_count",
    )

    def __init__(self, now_ms: int, *, finished_max: int = FINISHED_OFFSETS_MAX) -> None:
        self._finished_max = finished_max
        self._messages: dict[int, MessageExt] = {}  # Waiting or in a listener, by queue offset.
        self._offsets: list[int] = []  # Their offsets, sorted.
        self._taken: dict[int, MessageExt] = {}  # Orderly only: the batch in the listener, sorted.
        self._started_ms: dict[int, int] = {}  # Held offsets that entered a listener, and when.
        self._finished: list[int] = []  # Finished above the lowest held offset, sorted.
        self._finished_forgotten = 0
        self._highest_put = 0
        self._consuming = False
        self.held_bytes = 0
        """Body bytes of all held messages."""
        self.dropped = False
        """Another consumer owns the queue, or will: nothing may be reported for it any more."""
        self.locked = False
        """The broker granted the order lock at `last_lock_ms`."""
        self.filtered_count = 0
        """Messages that the exact tag test dropped after the pull."""
        self.processed_offset: int | None = None
        """One past the highest finished offset."""
        self.local_retries: deque[LocalRetry] = deque(maxlen=LOCAL_RETRIES_MAX)
        """The newest messages that no way back took, so that they are tried here again."""
        self.resting: FlowControl | None = None
        """Why the queue was not pulled when it was its turn; None: it was."""
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.last_lock_ms = now_ms
        self.try_unlock_count = 0

    @property
    def count(self) -> int:
        """Messages held and not finished."""
        return len(self._messages) + len(self._taken)

    @property
    def uncommitted_count(self) -> int:
        """Messages beyond the lowest unfinished one, held or finished: what a crash brings again
        beside it; 0 when all is finished.

        RocketMQ's getMaxSpan is the distance of what is held alone: one stuck message with fast
        successors keeps it at 0. Offsets that a filter passes over bring nothing again.
        """
        return self.count - 1 + self.finished_count if self.count else 0

    @property
    def has_waiting(self) -> bool:
        """Is there a message that no orderly batch has taken?"""
        return bool(self._messages)

    def holds(self, offset: int) -> bool:
        """Is the message at `offset` held and not taken by an orderly batch?"""
        return offset in self._messages

    def put(self, messages: Sequence[MessageExt]) -> bool:
        """Hold pulled messages; answer whether an orderly consumer has to be started for this
        queue.

        An offset already held is replaced and counted once.
        """
        for message in messages:
            offset = message.queue_offset
            if offset not in self._messages:
                self._hold(message)
                self._highest_put = max(self._highest_put, offset)
                self.held_bytes += len(message.body)
            else:
                self._messages[offset] = message
        if self._messages and not self._consuming:
            self._consuming = True
            return True
        return False

    def remove(self, finished: Iterable[int], now_ms: int) -> int | None:
        """Drop finished offsets; return the consume offset that is now safe, None when nothing was
        held.

        Reporting the highest finished offset would be simpler and wrong: a slower message below it
        would be skipped for ever if this process died.
        """
        self.last_consume_ms = now_ms
        if not self._messages:
            return None
        for offset in finished:
            message = self._messages.pop(offset, None)
            if message is None:
                continue
            del self._offsets[bisect_left(self._offsets, offset)]
            self._started_ms.pop(offset, None)
            self.held_bytes -= len(message.body)
            self._remember_finished(offset)
        safe = self._offsets[0] if self._offsets else self._highest_put + 1
        self._forget_finished_below(safe)
        assert not self._offsets or safe <= self._offsets[0]
        return safe

    def take(self, batch_max: int, now_ms: int) -> list[MessageExt]:
        """Take up to `batch_max` messages from the front for an orderly listener; empty ends its
        turn.
        """
        taken = [self._messages.pop(offset) for offset in self._offsets[:batch_max]]
        del self._offsets[: len(taken)]
        for message in taken:
            self._taken[message.queue_offset] = message
            self._started_ms[message.queue_offset] = now_ms
        self.last_consume_ms = now_ms
        if not taken:
            self._consuming = False
        return taken

    def same_topic_count(self, count_max: int) -> int:
        """How many messages at the front, up to `count_max`, are of one topic; 1 when nothing
        waits.
        """
        front = [self._messages[offset].topic for offset in self._offsets[:count_max]]
        for number, topic in enumerate(front):
            if topic != front[0]:
                return number
        return max(len(front), 1)

    def commit_taken(self) -> int | None:
        """The taken batch is finished; return the offset after it, None when nothing was taken."""
        if not self._taken:
            return None
        last = max(self._taken)
        for offset, message in self._taken.items():
            self.held_bytes -= len(message.body)
            self._started_ms.pop(offset, None)
        self._taken.clear()
        self._note_processed(last)
        while bisect_left(self._finished, last + 1) < bisect_right(self._finished, last + 1):
            last += 1  # Given up from an earlier batch, while what stood before it came again.
        self._forget_finished_below(last + 1)
        return last + 1

    def give_up_taken(self) -> int | None:
        """What is left of the taken batch, while others of it wait again, is finished; return the
        consume offset that is now safe, None when nothing was left.
        """
        if not self._taken:
            return None
        for offset, message in self._taken.items():
            self.held_bytes -= len(message.body)
            self._started_ms.pop(offset, None)
            self._remember_finished(offset)
        safe = self._offsets[0] if self._offsets else max(self._taken) + 1
        self._taken.clear()
        self._forget_finished_below(safe)
        return safe

    def roll_back_taken(self) -> None:
        """The taken batch goes back to the front, as if never taken."""
        for message in self._taken.values():
            self._hold(message)
            self._started_ms.pop(message.queue_offset, None)
        self._taken.clear()

    def consume_again(self, messages: Iterable[MessageExt]) -> None:
        """Part of the taken batch goes back to the front."""
        for message in messages:
            self._taken.pop(message.queue_offset, None)
            self._started_ms.pop(message.queue_offset, None)
            self._hold(message)

    def mark_started(self, offsets: Iterable[int], now_ms: int) -> None:
        """These held messages enter a listener now."""
        for offset in offsets:
            if offset in self._messages:
                self._started_ms[offset] = now_ms

    def mark_ended(self, offsets: Iterable[int]) -> None:
        """These messages left their listener unfinished and wait for another try."""
        for offset in offsets:
            self._started_ms.pop(offset, None)

    def clear(self) -> None:
        """Let go of everything; for a queue that is dropped for good."""
        for store in (self._messages, self._taken, self._started_ms):
            store.clear()
        self._offsets.clear()
        self._finished.clear()
        self._finished_forgotten = self.held_bytes = 0
        self._consuming = False

    def expired_head(self, now_ms: int, consume_timeout_ms: int) -> MessageExt | None:
        """The lowest message, if it has been in a listener for longer than `consume_timeout_ms`."""
        if not self._offsets:
            return None
        started_ms = self._started_ms.get(self._offsets[0])
        if started_ms is None or now_ms - started_ms <= consume_timeout_ms:
            return None
        return self._messages[self._offsets[0]]

    def is_pull_expired(self, now_ms: int) -> bool:
        """Has nobody pulled this queue for PULL_EXPIRY_MS?"""
        return now_ms - self.last_pull_ms > PULL_EXPIRY_MS

    def is_lock_expired(self, now_ms: int) -> bool:
        """Is the order lock so old that the broker may soon give it to another?"""
        return now_ms - self.last_lock_ms > CLIENT_LOCK_EXPIRY_MS

    def head(self) -> tuple[MessageExt, int | None] | None:
        """The lowest held message and since when it is in a listener (None: not yet); None when
        nothing is held.
        """
        if self._taken:
            offset = min(self._taken)
            return self._taken[offset], self._started_ms.get(offset)
        if self._offsets:
            return self._messages[self._offsets[0]], self._started_ms.get(self._offsets[0])
        return None

    def held_offsets(self) -> list[int]:
        """All held offsets, sorted."""
        return sorted(self._taken) + self._offsets

    def keys_held(self) -> Iterator[str]:
        """Sharding key, or else keys, of the lowest held messages that have one, KEYS_LOOKED_AT_MAX
        messages at most.
        """
        for offset in islice(self._taken, KEYS_LOOKED_AT_MAX):
            key = _key_of(self._taken[offset])
            if key:
                yield key
        for offset in self._offsets[: max(0, KEYS_LOOKED_AT_MAX - len(self._taken))]:
            key = _key_of(self._messages[offset])
            if key:
                yield key

    def waiting_bounds(self) -> tuple[int, int] | None:
        """Lowest and highest waiting offset."""
        return (self._offsets[0], self._offsets[-1]) if self._offsets else None

    def taken_bounds(self) -> tuple[int, int] | None:
        """Lowest and highest offset of the taken batch."""
        return (min(self._taken), max(self._taken)) if self._taken else None

    @property
    def taken_count(self) -> int:
        """Messages of the taken batch."""
        return len(self._taken)

    @property
    def finished_count(self) -> int:
        """Finished offsets above the lowest held one: processed again if the process died now."""
        return len(self._finished) + self._finished_forgotten

    def held_ranges(self) -> list[tuple[int, int]]:
        """Held offsets as ranges [from, to), HELD_RANGES_MAX at most; the last reaches the end."""
        offsets = self.held_offsets()
        ranges: list[tuple[int, int]] = []
        for offset in offsets:
            if ranges and ranges[-1][1] == offset:
                ranges[-1] = (ranges[-1][0], offset + 1)
            elif len(ranges) == HELD_RANGES_MAX:
                ranges[-1] = (ranges[-1][0], offsets[-1] + 1)
                break
            else:
                ranges.append((offset, offset + 1))
        return ranges

    def _hold(self, message: MessageExt) -> None:
        offset = message.queue_offset
        if not self._offsets or offset > self._offsets[-1]:
            self._offsets.append(offset)  # The usual case: pulls bring rising offsets.
        elif offset not in self._messages:
            insort(self._offsets, offset)
        self._messages[offset] = message

    def _note_processed(self, offset: int) -> None:
        self.processed_offset = max(self.processed_offset or 0, offset + 1)

    def _remember_finished(self, offset: int) -> None:
        self._note_processed(offset)
        if self._offsets and offset > self._offsets[0]:
            insort(self._finished, offset)
            if len(self._finished) > self._finished_max:
                del self._finished[0]
                self._finished_forgotten += 1

    def _forget_finished_below(self, safe: int) -> None:
        """Finished offsets below the safe one are covered by it.

        Forgotten ones lie lowest: they are covered once a remembered one is, and counted in full
        until then.
        """
        covered = bisect_right(self._finished, safe - 1)
        if covered:
            del self._finished[:covered]
            self._finished_forgotten = 0
        if not self._finished and not self._offsets:
            self._finished_forgotten = 0


def _key_of(message: MessageExt) -> str | None:
    found = message.properties
    return found.get(PROPERTY_SHARDING_KEY) or found.get(PROPERTY_KEYS)
