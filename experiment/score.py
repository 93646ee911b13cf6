"""Pure functions that score kills against the lake's predictions, per queue and overall.

Place in the walk: last. Two witnesses meet: the consumers' ledgers say what was delivered twice,
gold's duplicate_risk_windows say what was predicted, and when.

Invariant: a message counts as foreseen only when a window that was open held its offset in a
revision older than the very delivery; windows that a redelivery itself has opened predict nothing.
A prediction is measured as it stood when the first message was redelivered, and in its last
revision. Absent on purpose: reading and writing of tables.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from experiment.ledger import Delivery
from experiment.stage import Killed, Played

PREDICTING: Final = ("DEPARTURE", "RESTART", "OFFSET_FALL", "OFFSET_ANSWER")
"""Bases of windows that say what will come again."""
PRECISION_MIN: Final = 0.8
"""Share of what is predicted that must come."""

Queue = tuple[str, str, int]
"""(group, topic, queue id)"""
Range = tuple[int, int]
"""Offsets [from, to)."""
Revision = Mapping[str, Any]
"""A row of duplicate_risk_windows, `observed_us` being its observed_at in µs."""


@dataclass(frozen=True, slots=True)
class KillRow:
    """What a kill did to one queue of a group."""

    killed: Killed
    queue: Queue
    causes: tuple[str, ...]
    predicted: tuple[Range, ...]
    """As it stood when the first message came again, and at last."""
    ever_predicted: tuple[Range, ...]
    """By any revision, withdrawn ones as well."""
    certain: tuple[Range, ...]
    """Of the predicted: known to be finished, as it stood before the first message came again."""
    certain_again: int
    """How many of those came again."""
    redelivered: tuple[Range, ...]
    unforeseen: tuple[Range, ...]
    """Of the redelivered: in no range that was recorded before."""
    rest: Mapping[str, int] = field(default_factory=dict)
    """Predicted messages that did not come, by cause of their window and what else it saw."""

    @property
    def hits(self) -> int:
        """Predicted messages that came again."""
        return len(_offsets(self.predicted) & _offsets(self.redelivered))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures of a run; a ratio of nothing is None."""

    kills: int
    redelivered: int
    foreseen: int
    predicted: int
    ever_predicted: int
    hits: int
    certain: int
    certain_again: int
    kills_with_certain: int

    @property
    def recall(self) -> float | None:
        """Share of the redelivered messages that lie in a range recorded before."""
        return self.foreseen / self.redelivered if self.redelivered else None

    @property
    def precision(self) -> float | None:
        """Share of the predicted messages that came again."""
        return self.hits / self.predicted if self.predicted else None

    @property
    def holds(self) -> bool:
        """All that came again was foreseen, four fifths of what was foreseen came, and what was
        certain came without exception and was known for half of the kills.
        """
        return (
            self.foreseen == self.redelivered
            and (self.precision or 0) >= PRECISION_MIN
            and self.certain == self.certain_again
            and 2 * self.kills_with_certain >= self.kills
        )


@dataclass(slots=True)
class _OnQueue:
    """What is known of one queue, in the order of time."""

    again: list[Delivery] = field(default_factory=list)
    """Every delivery of a message but its first."""
    windows: list[list[Revision]] = field(default_factory=list)
    """Revisions of each window."""


def score(played: Played, revisions: Iterable[Revision]) -> list[KillRow]:
    """A row for each kill and queue of which something was predicted or came again."""
    queues: defaultdict[Queue, _OnQueue] = defaultdict(_OnQueue)
    seen: set[tuple[Queue, int]] = set()
    for delivery in played.deliveries:
        what = delivery.queue, delivery.offset
        if what in seen:
            queues[delivery.queue].again.append(delivery)
        seen.add(what)
    read = {(group, topic) for (group, topic, _), _ in seen}  # Not the topics of retries.
    predictions = [
        one
        for one in revisions
        if one["cluster"] == played.cluster
        and one["basis"] in PREDICTING
        and (one["group"], one["topic"]) in read
    ]
    predictions.sort(key=lambda one: (one["window_id"], one["revision"]))
    for _, window in groupby(predictions, key=lambda one: one["window_id"]):
        of_window = list(window)
        queues[_queue_of(of_window[0])].windows.append(of_window)
    return [
        row
        for killed in played.killed
        for queue, known in sorted(queues.items())
        if (row := _row(killed, queue, known)) is not None
    ]


def verdict(rows: Sequence[KillRow], kills: int) -> Verdict:
    """The figures over all rows."""
    redelivered = sum(len(_offsets(row.redelivered)) for row in rows)
    return Verdict(
        kills=kills,
        redelivered=redelivered,
        foreseen=redelivered - sum(len(_offsets(row.unforeseen)) for row in rows),
        predicted=sum(len(_offsets(row.predicted)) for row in rows),
        ever_predicted=sum(len(_offsets(row.ever_predicted)) for row in rows),
        hits=sum(row.hits for row in rows),
        certain=sum(len(_offsets(row.certain)) for row in rows),
        certain_again=sum(row.certain_again for row in rows),
        kills_with_certain=len({row.killed.kill.number for row in rows if row.certain}),
    )


def _row(killed: Killed, queue: Queue, known: _OnQueue) -> KillRow | None:
    again = [one for one in known.again if killed.at_us <= one.at_us < killed.until_us]
    windows = [
        window
        for window in known.windows
        if killed.at_us <= window[0]["observed_us"] < killed.until_us
    ]
    if not again and not windows:
        return None
    predicted, certain = set[int](), set[int]()
    came, rest = {one.offset for one in again}, Counter[str]()
    for window in windows:
        first_us = _first_again_us(window, known.again)
        stood = _standing(window, first_us)
        certain |= _offsets(_ranges_of(stood["certain_ranges"]))
        if first_us is not None or not _was_replaced(window[-1]):
            more = _offsets([_range(stood), _range(window[-1])]) - predicted
            predicted |= more
            rest[_of_the_rest(window[-1], has_come=bool(more & came))] += len(more - came)
    later = {one.offset for one in known.again if one.at_us >= killed.at_us}
    unforeseen = {one.offset for one in again if not _was_foreseen(one, known.windows, killed)}
    return KillRow(
        killed=killed,
        queue=queue,
        causes=tuple(sorted({window[-1]["cause"] for window in windows})),
        predicted=_ranges(predicted),
        ever_predicted=_ranges(_offsets(_range(one) for window in windows for one in window)),
        certain=_ranges(certain),
        certain_again=len(certain & later),
        redelivered=_ranges(came),
        unforeseen=_ranges(unforeseen),
        rest={words: count for words, count in rest.items() if count},
    )


def _of_the_rest(last: Revision, *, has_come: bool) -> str:
    """What a predicted message that did not come belongs to."""
    return f"{last['cause']}, {'beside what came' if has_come else 'nothing of it came'}"


def _was_replaced(last: Revision) -> bool:
    """Did a later event put another prediction in the place of this one?"""
    return bool(last["state"] == "CLOSED" and last["outcome"] == "POSSIBLE")


def _queue_of(revision: Revision) -> Queue:
    return revision["group"], revision["topic"], revision["queue_id"]


def _first_again_us(window: Sequence[Revision], again: Sequence[Delivery]) -> int | None:
    """When a message came again first while the window was open."""
    last = window[-1]
    until_us = last["observed_us"] if last["state"] == "CLOSED" else None
    for one in again:
        if one.at_us >= window[0]["observed_us"]:
            return one.at_us if until_us is None or one.at_us < until_us else None
    return None


def _standing(window: Sequence[Revision], at_us: int | None) -> Revision:
    """The newest revision by then; None: the last one of all."""
    if at_us is None:
        return window[-1]
    count = bisect_right([one["observed_us"] for one in window], at_us)
    return window[max(0, count - 1)]


def _was_foreseen(
    delivery: Delivery, windows: Sequence[Sequence[Revision]], killed: Killed
) -> bool:
    """Did a window hold the offset in its newest revision before the delivery?

    It was open then; or what it had predicted had been pulled again, since this kill, and waited
    for its listener.
    """
    for window in windows:
        if window[0]["observed_us"] > delivery.at_us:
            continue
        stood = _standing(window, delivery.at_us)
        is_of_use = stood["state"] == "OPEN" or (
            stood["redelivered_messages"] > 0
            and stood["observed_us"] >= killed.at_us
            and delivery.offset < max(stood["to_offset"], stood["redelivered_to"])
        )
        if is_of_use and _holds(stood, delivery.offset):
            return True
    return False


def _holds(revision: Revision, offset: int) -> bool:
    begin, end = _range(revision)
    all_from = revision["all_from_offset"]
    return begin <= offset < end or (all_from is not None and offset >= all_from)


def _range(revision: Revision) -> Range:
    return revision["from_offset"], revision["to_offset"]


def _ranges_of(predictions: Sequence[Mapping[str, int]] | None) -> list[Range]:
    return [(one["from_offset"], one["to_offset"]) for one in predictions or ()]


def _offsets(ranges: Iterable[Range]) -> set[int]:
    return {offset for begin, end in ranges for offset in range(begin, end)}


def _ranges(offsets: set[int]) -> tuple[Range, ...]:
    """The offsets as ranges, in order."""
    ranges: list[list[int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] = offset + 1
        else:
            ranges.append([offset, offset + 1])
    return tuple((begin, end) for begin, end in ranges)
