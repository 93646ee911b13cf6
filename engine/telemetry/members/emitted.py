"""Selects the changed or due member windows and consume statistics to be emitted.

Place in the walk: `client_windows` asks clients and hands their answers over here.

Invariant: a window is emitted when anything but its times differs from what was emitted last, when
that is `interval_ms` ago, and when facts were lost since. So no row means that it is as in its last
row. What would make that untrue is emitted: a window that a client no longer holds, or whose client
is gone, once more as dropped; one whose client no longer answers, as unanswered; and when the
client no longer turns to the queue, or does so again. A member's figures of a topic are emitted no
more often than each `rest_ms`; what a client does not report is null. At most `count_max` are
remembered; those beyond are emitted with each answer. Absent on purpose: asking, time (callers
bring steady time).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, replace
from typing import Final

from engine.foundation.limits import CLIENT_FIGURES_MAX, WINDOWS_TOLD_MAX
from engine.foundation.observing import ClientWindow, ConsumeStats
from engine.foundation.units import MINUTE_MS, SECOND_MS
from engine.protocol.bodies import ConsumerRunningInfo, ConsumeStatus

POOL_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
_POOL_OF_GO: Final = "-1"
"""The pool size that rocketmq-client-go reports. Up to v2.1.2 it returns the mean time of its
pulls, which wait for messages, as that of its listener calls.
"""
_INT_MAX: Final = 2**31 - 1


@dataclass(slots=True)
class _Emitted:
    stats: ConsumeStats
    emitted_ms: int
    losses: int
    """Of the observer, when it was reported."""


class EmittedStats:
    """The figures of all members of one broker's groups, as they were reported last."""

    def __init__(
        self, *, rest_ms: int, interval_ms: int, count_max: int = CLIENT_FIGURES_MAX
    ) -> None:
        self._rest_ms = rest_ms
        self._interval_ms = interval_ms
        self._count_max = count_max
        self._count = 0
        self._emitted: dict[tuple[str, str], dict[str, _Emitted]] = {}

    def is_news(self, stats: ConsumeStats, now_ms: int, *, losses: int) -> bool:
        """Is this to be reported? It counts as reported then."""
        topics = self._emitted.setdefault((stats.group, stats.client_id), {})
        last = topics.get(stats.topic)
        if last is None:
            if self._count < self._count_max:
                self._count += 1
                topics[stats.topic] = _Emitted(stats, now_ms, losses)
            return True
        age_ms = now_ms - last.emitted_ms
        has_changed = age_ms >= self._rest_ms and stats != last.stats
        if not (has_changed or age_ms >= self._interval_ms or last.losses != losses):
            return False
        last.stats, last.emitted_ms, last.losses = stats, now_ms, losses
        return True

    def forget(self, group: str, client_id: str) -> None:
        """The client has left the group."""
        self._count -= len(self._emitted.pop((group, client_id), {}))

    def __len__(self) -> int:
        """Topics of members of which is known what was reported last."""
        return self._count


def stats_of(
    group: str, client_id: str, info: ConsumerRunningInfo, figures: dict[str, ConsumeStatus]
) -> list[ConsumeStats]:
    """What an answer says, a fact a topic; `figures` are those of topics that are here."""
    held = Counter(queue.topic for queue in info.mq_table)
    pool = info.listener_pool
    size = info.properties.get(POOL_SIZE, "")
    slots = _count(int(size)) if size.isdecimal() and len(size) < 10 else None
    is_go = size == _POOL_OF_GO
    return [
        ConsumeStats(
            client_id=client_id,
            group=group,
            topic=topic,
            listeners=slots if pool is None else _count(pool.slots),
            listeners_busy=None if pool is None else _count(pool.busy),
            listeners_queued=None if pool is None else _count(pool.queued),
            paused=None if pool is None else pool.paused,
            calls=status.calls,
            consume_us_mean=None
            if is_go and status.consume_rt == status.pull_rt
            else _mean_us(status),
            consume_ms_p50=status.consume_p50,
            consume_ms_p99=status.consume_p99,
            consumed=_a_minute(status.consume_ok_tps),
            failed=_a_minute(status.consume_failed_tps),
            flow_count_ms=status.flow_count_ms,
            flow_bytes_ms=status.flow_bytes_ms,
            flow_span_ms=status.flow_span_ms,
            queues_held=held[topic],
            topic_queues=_count(status.topic_queues),
            group_members=_count(status.group_members),
        )
        for topic, status in sorted(figures.items())
    ]


def _count(value: int | None) -> int | None:
    """A count for a column of 32 bits; None for what can be none."""
    return value if value is not None and 0 <= value <= _INT_MAX else None


def _mean_us(status: ConsumeStatus) -> int | None:
    """Mean length of a call. A client that reports no calls reports 0 when there were none."""
    mean_ms = status.consume_rt
    if mean_ms is None or not 0 <= mean_ms < _INT_MAX or status.calls == 0:
        return None
    if status.calls is None and not mean_ms:
        return None
    return round(mean_ms * 1000)


def _a_minute(per_second: float | None) -> int | None:
    if per_second is None or not 0 <= per_second < _INT_MAX:
        return None
    return round(per_second * (MINUTE_MS // SECOND_MS))


ATTENDED_MS: Final = 30_000
"""A client that works on a queue turns to it more often: a pull that finds nothing is held for up
to 20 s, and one that is paused looks each second whether it still is.
"""

MemberKey = tuple[str, str]
"""(group, client id)"""

Place = tuple[str, int]
"""(topic, queue_id)"""


@dataclass(slots=True)
class EmittedWindow:
    """One window as it was reported last."""

    window: ClientWindow
    emitted_ms: int
    losses: int
    """Of the observer, when it was reported."""
    head_seen_ms: int
    """When its head was first seen there."""
    pull_time_ms: int | None
    """When its client pulled last, by the clock of the client, as answered last."""
    pull_seen_ms: int
    """When that was another one before."""


class EmittedWindows:
    """The windows of all members of one broker's groups."""

    def __init__(self, interval_ms: int, count_max: int = WINDOWS_TOLD_MAX) -> None:
        self._interval_ms = interval_ms
        self._count_max = count_max
        self._count = 0
        self._emitted: dict[MemberKey, dict[Place, EmittedWindow]] = {}

    def __len__(self) -> int:
        """Windows of which is known what was reported last."""
        return self._count

    def is_news(self, window: ClientWindow, now_ms: int, *, losses: int) -> bool:
        """Is this answer to be reported? It counts as reported then. The stack that is known of its
        head, and whether its client attends to it, are added to it, whichever it is.
        """
        window.answered = True
        window.attended = True if window.last_pull_time_ms is not None else None
        member, place = (window.group, window.client_id), (window.topic, window.queue_id)
        windows = self._emitted.setdefault(member, {})
        last = windows.get(place)
        if last is None:
            if self._count < self._count_max:
                self._count += 1
                pulled_ms = window.last_pull_time_ms
                windows[place] = EmittedWindow(window, now_ms, losses, now_ms, pulled_ms, now_ms)
            return True
        if window.last_pull_time_ms != last.pull_time_ms:
            last.pull_time_ms, last.pull_seen_ms = window.last_pull_time_ms, now_ms
        elif window.attended:
            window.attended = now_ms - last.pull_seen_ms <= ATTENDED_MS
        has_moved = _head(last.window) != _head(window)
        if has_moved:
            last.head_seen_ms = now_ms
        elif window.stack is None:
            window.stack = last.window.stack
        is_due = now_ms - last.emitted_ms >= self._interval_ms or last.losses != losses
        if not is_due and _without_times(last.window) == _without_times(window):
            return False
        last.window, last.emitted_ms, last.losses = window, now_ms, losses
        return True

    def knows(self, window: ClientWindow) -> bool:
        """Was anything reported of what this client holds of this queue?"""
        windows = self._emitted.get((window.group, window.client_id), {})
        return (window.topic, window.queue_id) in windows

    def unanswered(self, group: str, client_id: str) -> Iterator[ClientWindow | None]:
        """What to report of the windows of a client that does not answer any more; None for each of
        which that was reported, or which is dropped.
        """
        for emitted in list(self._emitted.get((group, client_id), {}).values()):
            if emitted.window.answered is False or emitted.window.dropped:
                yield None
                continue
            emitted.window = replace(emitted.window, answered=False)
            yield emitted.window

    def given_up(
        self, group: str, client_id: str, held: Collection[Place]
    ) -> Iterator[ClientWindow | None]:
        """What to report of windows that the client holds no more, which are forgotten; None for
        each that it does hold.
        """
        windows = self._emitted.get((group, client_id), {})
        for place in list(windows):
            if place in held:
                yield None
                continue
            self._count -= 1
            last = windows.pop(place).window
            yield None if last.dropped else _emptied(last)

    def standing(self, group: str, client_id: str, *, since_ms: int) -> list[Place]:
        """Queues of the client whose head was there by then, and is there still, as far as its
        answers go. A head that is in no listener, as its client says, does not stand.
        """
        return [
            place
            for place, one in self._emitted.get((group, client_id), {}).items()
            if one.head_seen_ms <= since_ms and one.window.held_count and _is_in_listener(one)
        ]

    def has_stack(self, group: str, client_id: str, places: Collection[Place]) -> bool:
        """Is it known of each of these windows where its listener stands?"""
        windows = self._emitted.get((group, client_id), {})
        return all(place in windows and windows[place].window.stack for place in places)

    def forget_topics(self, topics: Container[str]) -> None:
        """What was reported of their queues holds no more, and the next answers are news."""
        for windows in self._emitted.values():
            for place in [place for place in windows if place[0] in topics]:
                del windows[place]
                self._count -= 1

    def forget(self, group: str, client_id: str) -> Iterator[ClientWindow | None]:
        """The client has left the group: what to report of its windows, as `given_up`."""
        yield from self.given_up(group, client_id, ())
        self._count -= len(self._emitted.pop((group, client_id), {}))


def _head(window: ClientWindow) -> tuple[object, ...]:
    """What makes it another head: RocketMQ's own clients report no more than its offset."""
    return window.first_held, window.head_message_id, window.head_since_ms


def _is_in_listener(emitted: EmittedWindow) -> bool:
    """Clients that report their ranges report since when the head is in a listener as well."""
    window = emitted.window
    return window.held_ranges is None or window.head_since_ms is not None


def _without_times(window: ClientWindow) -> ClientWindow:
    return replace(window, last_pull_time_ms=None, last_consume_time_ms=None)


def holds_nothing(member: MemberKey, place: Place) -> ClientWindow:
    """The window of a client that might read a queue and does not hold it."""
    group, client_id = member
    topic, queue_id = place
    return ClientWindow(
        *(client_id, group, topic, queue_id, None, None),
        held_count=0,
        held_bytes=0,
        held_ranges=None,
        finished_count=None,
        filtered_count=None,
        head_message_id=None,
        head_since_ms=None,
        client_committed=None,
        locked=False,
        dropped=True,
        last_pull_time_ms=None,
        last_consume_time_ms=None,
        answered=True,
    )


def _emptied(window: ClientWindow) -> ClientWindow:
    """The window of a queue that its client has given away."""
    return replace(
        holds_nothing((window.group, window.client_id), (window.topic, window.queue_id)),
        last_pull_time_ms=window.last_pull_time_ms,
        last_consume_time_ms=window.last_consume_time_ms,
        answered=window.answered,
    )
