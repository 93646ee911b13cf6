"""Recognises resends on deduplicated topics by their producer-assigned ids.

Place in the walk: `handlers/send` asks before it puts. A producer that heard no answer sends the
same message again, with the same UNIQ_KEY: here is what the first copy was answered.

    window   a resend is recognised if its first copy is among the newest DEDUPLICATED_SENDS_MAX
             of the broker and at most DEDUPLICATION_WINDOW_MS old; after a restart as well, because
             the window is read back from the log. Beyond it a resend is stored again.

Invariant: an id stands for one body. The same id with another body is refused, never dropped: ids
are made by clients and can collide, and a collision must not lose a message. Absent on purpose:
storing, files, and copies that mean to be new ones (retries and re-drives keep the UNIQ_KEY). Pure:
time arrives as `now_ms`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from engine.foundation.chunked_work import dropped_in_steps
from engine.foundation.errors import RequestRefused
from engine.foundation.limits import DEDUPLICATED_SENDS_MAX, DEDUPLICATION_WINDOW_MS
from engine.protocol.codes import ResponseCode
from engine.store import PutResult

DIGEST_BYTES = 16
NAME_CHARS_MAX = 64
"""RocketMQ's ids have 32 or 56; a longer one, and a client may send 32,000, is remembered by its
digest.
"""


def body_digest(body: bytes | bytearray | memoryview) -> bytes:
    """What two bodies have in common only if they are equal."""
    return blake2b(body, digest_size=DIGEST_BYTES).digest()


def name_of(unique_key: str) -> str:
    """What a message's id is remembered by; of such a name, the name itself."""
    if len(unique_key) <= NAME_CHARS_MAX:
        return unique_key
    return "#" + body_digest(unique_key.encode()).hex()


@dataclass(frozen=True, slots=True)
class FirstCopy:
    """The stored copy of a message."""

    digest: bytes
    queue_id: int
    """The queue its answer named."""
    put: PutResult


@dataclass(slots=True)
class ResendCounts:
    """What became of resends to one topic since the counts were taken last."""

    answered: int = 0
    """Answered with the first copy."""
    refused: int = 0
    """Refused: the id of a stored message, another body."""


@dataclass(slots=True, kw_only=True, eq=False)
class Deduplication:
    """The window of one broker."""

    entries_max: int = DEDUPLICATED_SENDS_MAX
    window_ms: int = DEDUPLICATION_WINDOW_MS
    _copies: OrderedDict[tuple[str, str], FirstCopy] = field(
        default_factory=OrderedDict, init=False
    )  # Oldest first.
    _counts: dict[str, ResendCounts] = field(default_factory=dict, init=False)  # As many as topics.

    def __len__(self) -> int:
        """Messages in the window."""
        return len(self._copies)

    def first_copy(
        self, topic: str, unique_key: str, digest: bytes, *, now_ms: int
    ) -> FirstCopy | None:
        """The stored copy of this message; None when it is new, or older than the window.

        Raises RequestRefused (MESSAGE_ILLEGAL) when the id belongs to a message with another body.
        """
        self._forget_older_than(now_ms - self.window_ms)
        found = self._copies.get((topic, name_of(unique_key)))
        if found is None:
            return None
        counts = self._counts.setdefault(topic, ResendCounts())
        if found.digest != digest:
            counts.refused += 1
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"topic {topic} stores a message once, and UNIQ_KEY {unique_key} is that of the "
                f"message at queue {found.queue_id} offset {found.put.queue_offset}, whose body is "
                "another one; send this message under an id of its own",
            )
        counts.answered += 1
        return found

    def remember(self, topic: str, unique_key: str, copy: FirstCopy) -> None:
        """A message was stored; a key that is known keeps its first copy."""
        self._copies.setdefault((topic, name_of(unique_key)), copy)
        if len(self._copies) > self.entries_max:
            self._copies.popitem(last=False)

    def forget_topic(self, topic: str) -> Iterator[None]:
        """The topic and its messages are gone; done in steps."""
        yield from dropped_in_steps(self._copies, lambda key: key[0] == topic)

    def take_counts(self) -> dict[str, ResendCounts]:
        """Counts by topic since this was asked last, by name."""
        taken, self._counts = self._counts, {}
        return dict(sorted(taken.items()))

    def _forget_older_than(self, stored_ms: int) -> None:
        while self._copies:
            key, oldest = next(iter(self._copies.items()))
            if oldest.put.store_timestamp_ms >= stored_ms:
                return
            del self._copies[key]
