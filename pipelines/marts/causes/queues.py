"""Tests for lag caused by a single queue: a hot queue, a slow reader or a hot key.

Place in the walk: what is known of a group that is behind at a tick → findings. Invariant: a queue
or key stands out only beyond its fair part. Absent on purpose: sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from pipelines.marts.causes.finding import Figures, Finding, QueueFigures, Skew, percent
from pipelines.marts.mart import Positions
from pipelines.sentences import causes as sentences

SKEW_PERCENT: Final = 50
"""A queue with so much of the lag, or a key with so many of the held messages, stands out; a queue
only if that is a third of the way from its fair part to all, or more.
"""
KEYED_MIN: Final = 20
"""Held messages with keys, of which less say nothing about one."""
FEW_QUEUES: Final = 8
"""One queue in so many may stand out with others; of fewer queues one alone."""
SLOTS_OF_GIVEN: Final = 3
"""Slots of a group from which on it is known what its queues were given in the last two."""

Count = TypeVar("Count", int, Positions)
"""One, or a number per place."""


@dataclass(frozen=True, slots=True)
class LateQueues:
    """Queues that are further behind than they may be, of any groups: a place each."""

    group: Positions
    """The numbers of their groups, in order."""
    topic: Positions
    """The codes of their topics among `topics`."""
    queue_id: Positions
    lag: Positions
    given: Positions
    """Messages sent to each in the present slot and the one before."""
    late: Positions
    """Messages beyond what each may be behind: a few, or those of the last seconds; above 0."""
    topic_queues: Positions
    """How many queues of its topic its group reads, late ones or not,"""
    topic_given: Positions
    """and what was sent to those."""
    topics: Sequence[str]

    def of_group(self, number: int) -> tuple[list[QueueFigures], dict[str, int]]:
        """The late queues of a group, and how many queues of their topics it reads."""
        own = slice(*np.searchsorted(self.group, [number, number + 1]).tolist())
        names = [self.topics[code] for code in self.topic[own].tolist()]
        queues = map(QueueFigures, names, self.queue_id[own].tolist(), self.late[own].tolist())
        return list(queues), dict(zip(names, self.topic_queues[own].tolist(), strict=True))


def skews(queues: LateQueues) -> dict[int, Skew]:
    """Per group, by its number, the queues that stand out: of the topic that has the queue furthest
    behind the fewest, furthest behind first, that have together so much of its lag. One, or one of
    FEW_QUEUES; groups without such queues are left out.
    """
    names = np.array(queues.topics)
    rank = np.argsort(np.argsort(names))
    order = np.lexsort((queues.queue_id, -rank[queues.topic], -queues.late, queues.group))
    is_worst = np.diff(queues.group[order], prepend=-1) != 0
    worst, of = order[is_worst], np.cumsum(is_worst) - 1
    is_meant = queues.topic[order] == queues.topic[worst][of]
    ranked, of = order[is_meant], of[is_meant]
    begins = np.flatnonzero(np.diff(of, prepend=-1))
    count, late = np.arange(len(of)) - begins[of] + 1, _up_to(queues.late[ranked], begins, of)
    ends = np.flatnonzero(np.diff(of, append=-1))
    share, whole = 100 * late // late[ends][of], queues.topic_queues[ranked]
    stands_out = (share >= _skewed_percents(count, whole)) & (count < whole)
    stands_out &= count <= np.maximum(1, whole // FEW_QUEUES)
    last = np.flatnonzero(stands_out)
    last = last[np.diff(of[last], prepend=-1) != 0]
    lag, given = (_up_to(one[ranked], begins, of)[last] for one in (queues.lag, queues.given))
    sent = queues.topic_given[ranked[last]]
    part = np.where(sent > 0, 100 * given // np.maximum(sent, 1), -1)
    ids = queues.queue_id[ranked].tolist()
    figures = zip(
        queues.group[ranked[last]].tolist(),
        names[queues.topic[ranked[last]]].tolist(),
        *(one.tolist() for one in (begins[of[last]], last, whole[last], lag, share[last], part)),
        strict=True,
    )
    return {
        number: Skew(topic, ids[at : end + 1], all_of, behind, percent, None if sent < 0 else sent)
        for number, topic, at, end, all_of, behind, percent, sent in figures
    }


def _up_to(values: Positions, begins: Positions, of: Positions) -> Positions:
    """The sum of each run up to each of its places."""
    sums = np.cumsum(values)
    return np.asarray(sums - (sums[begins] - values[begins])[of])


def _skewed_percents(part: Positions, whole: Positions) -> Positions:
    """From where on so many of all queues stand out."""
    return np.asarray(np.maximum(SKEW_PERCENT, _third_beyond_fair(part, whole)))


def _skewed_percent(part: int, whole: int) -> int:
    """The same of one."""
    return max(SKEW_PERCENT, _third_beyond_fair(part, whole))


def _third_beyond_fair(part: Count, whole: Count) -> Count:
    fair = 100 * part // whole
    return fair + (100 - fair) // 3


def skewed_queue(group: Figures) -> Iterator[Finding]:
    """One queue, or a few of very many, have most of the lag: they are given most of the messages,
    or their readers are slower.
    """
    skew = group.skew
    if skew is None or group.lag <= 0:
        return
    few, part, worst = len(skew.queue_ids), skew.given_percent, skew.queue_ids[0]
    was_hot = part is None and group.was_hot == (skew.topic, worst)
    is_hot = was_hot or (part is not None and part >= _skewed_percent(few, skew.queues))
    is_known_long_enough = is_hot or group.slots_known >= SLOTS_OF_GIVEN

    def evidence() -> str:
        return sentences.skewed_queue(
            group.group,
            skew.topic,
            skew.queue_ids,
            queues=skew.queues,
            lag=skew.lag,
            share=skew.share_percent,
            sent=sentences.was_given(
                part, queues=few, was_hot=was_hot, is_known_long_enough=is_known_long_enough
            ),
            is_hot=is_hot,
            is_part=group.is_part,
        )

    of_lag = part is None or not is_hot
    yield Finding(
        "HOT_QUEUE" if is_hot else "LAGGING_QUEUE",
        evidence,
        skew.share_percent if of_lag else part,
        max(1, round(100 * few / skew.queues)),
        f"% of {'the lag' if of_lag else 'what was sent'}",
        skew.share_percent,
        topic=skew.topic,
        queue_id=worst,
    )


def hot_key(group: Figures) -> Iterator[Finding]:
    """Most of what waits has one key, which only one listener may work on at a time, or which one
    queue gets alone.
    """
    if not group.keys:
        return
    waits: dict[tuple[str, str], float] = {}
    queues_of: dict[tuple[str, str], set[int]] = {}
    lags = {(queue.topic, queue.queue_id): queue.late for queue in group.queues}
    hot = [
        row
        for row in group.keys
        if (row["keyed_messages"] or 0) >= KEYED_MIN
        and (percent(row["top_key_messages"], row["keyed_messages"]) or 0) >= SKEW_PERCENT
    ]
    for row in hot:
        name = row["topic"], row["top_key"]
        part = row["top_key_messages"] / row["keyed_messages"]
        waits[name] = waits.get(name, 0) + part * lags.get((row["topic"], row["queue_id"]), 0)
        queues_of.setdefault(name, set()).add(row["queue_id"])
    if not waits:
        return
    (topic, key), messages_of_it = max(waits.items(), key=lambda one: (one[1], one[0]))
    late = sum(queue.late for queue in group.queues if queue.topic == topic)
    share = percent(round(messages_of_it), late)
    queues = group.topics[topic] if late else 0
    if share is None or share < _key_stands_out(len(queues_of[topic, key]), queues):
        return  # As many keys as queues: each queue has one of its own, and none is the trouble.
    rows = [row for row in hot if (row["topic"], row["top_key"]) == (topic, key)]
    worst = max(rows, key=lambda row: (row["top_key_messages"], -row["queue_id"]))
    yield Finding(
        "HOT_KEY",
        sentences.hot_key(group.group, worst, share=share, is_part=group.is_part),
        *(worst["top_key_messages"], worst["keyed_messages"], "messages held"),
        share,
        topic=topic,
        queue_id=worst["queue_id"],
        client_id=worst["client_id"],
    )


def _key_stands_out(queues_with_it: int, queues: int) -> int:
    """Percent of the lag of the topic from which on a key of so many of its queues stands out."""
    return SKEW_PERCENT if queues_with_it >= queues else _skewed_percent(queues_with_it, queues)
