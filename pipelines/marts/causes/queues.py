"""Tests for lag caused by a single queue: a hot queue, a slow reader or a hot key.

Place in the walk: what is known of a group that is behind at a tick → findings. Invariant: a queue
or key stands out only beyond its fair part. Absent on purpose: sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pipelines.marts.causes.finding import Figures, Finding, QueueFigures, percent
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


def skewed_queue(group: Figures) -> Iterator[Finding]:
    """One queue, or a few of very many, have most of the lag: they are given most of the messages,
    or their readers are slower.
    """
    if not group.queues or group.lag <= 0:
        return
    most = max([queue.late for queue in group.queues])
    latest = [queue for queue in group.queues if queue.late == most]
    worst = max(latest, key=lambda queue: (queue.topic, -queue.queue_id))
    of_topic = [queue for queue in group.queues if queue.topic == worst.topic]
    late = sum([queue.late for queue in of_topic])
    queues, given = group.topics[worst.topic]
    few = _fewest_with_most(of_topic, queues, late)
    if few is None:
        return
    fair_percent = 100 * len(few) / queues
    skewed = _skewed_percent(len(few), queues)
    share = percent(sum([queue.late for queue in few]), late) or 0
    part = percent(sum([queue.given for queue in few]), given)
    was_hot = part is None and group.was_hot == (worst.topic, worst.queue_id)
    is_hot = was_hot or (part is not None and part >= skewed)
    sent = sentences.was_given(
        part,
        queues=len(few),
        was_hot=was_hot,
        is_known_long_enough=is_hot or group.slots_known >= SLOTS_OF_GIVEN,
    )
    yield Finding(
        "HOT_QUEUE" if is_hot else "LAGGING_QUEUE",
        sentences.skewed_queue(
            group.group,
            worst.topic,
            [queue.queue_id for queue in few],
            queues=queues,
            lag=sum([queue.lag for queue in few]),
            share=share,
            sent=sent,
            is_hot=is_hot,
            is_part=group.is_part,
        ),
        *(share if part is None or not is_hot else part, max(1, round(fair_percent))),
        f"% of {'the lag' if part is None or not is_hot else 'what was sent'}",
        share,
        topic=worst.topic,
        queue_id=worst.queue_id,
    )


def _fewest_with_most(
    late_ones: Sequence[QueueFigures], queues: int, late: int
) -> list[QueueFigures] | None:
    """The queues furthest behind, of so many of a topic, that have, together, so much of the lag
    that they stand out: one, or one of FEW_QUEUES; None when there are no such.
    """
    ranked = sorted(late_ones, key=lambda queue: (-queue.late, queue.queue_id))
    together = 0
    for count, queue in enumerate(ranked[: max(1, queues // FEW_QUEUES)], 1):
        together += queue.late
        share = percent(together, late) or 0
        if count < queues and share >= _skewed_percent(count, queues):
            return ranked[:count]
    return None


def _skewed_percent(part: int, whole: int) -> int:
    """From where on so many of all queues stand out."""
    fair = 100 * part // whole
    return max(SKEW_PERCENT, fair + (100 - fair) // 3)


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
    queues = group.topics[topic].queues if late else 0
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
