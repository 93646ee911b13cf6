"""A listener pool whose calls are played one by one, and what client and broker report of it.

Messages come at their moments, are taken in order by the first listener that is free, and take as
long as they take. What is reported follows from that alone: the lowest unfinished offset, since
when it is in a listener, what lies finished behind it, and how long calls took in the minute
before.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipelines.base.settings import Evaluation
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze, second
from tests.pipelines.partition import run

BEFORE_S = 300
"""The group has worked for so long when the story begins."""
NEVER_S = 1e9
SPAN_MAX = 2000
"""Offsets that a client's window may span before it pulls no more (consumeConcurrentlyMaxSpan)."""
Gold = dict[str, list[dict[str, Any]]]
Moments = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True)
class Pool:
    """What comes, and how long each call takes; seconds of the story."""

    arrive: Moments
    take: Moments
    listeners: int
    seconds: int
    sampled_at: float = 0.0
    """The client is asked so long behind each multiple of five seconds."""
    late_s: float = 0.0
    """Its answers come up to so much later."""
    client_clock_s: float = 0.0
    """By how much the client's clock is ahead."""
    reports_times: bool = True
    before_s: float = BEFORE_S
    pauses: Sequence[tuple[float, float]] = field(default=())
    """Spans in which no listener gets on: what all of them wait for does not answer."""


def steady_pool(
    *, call_s: Moments, rate: float, listeners: int, seconds: int, **options: Any
) -> Pool:
    """`call_s` are the lengths of calls; `rate` messages a second come evenly."""
    before_s = options.get("before_s", BEFORE_S)
    arrive = np.arange(-before_s, seconds, 1 / rate)
    return Pool(arrive, np.resize(call_s, len(arrive)), listeners, seconds, **options)


def frozen(pool: Pool, at: float, *, for_s: float = NEVER_S) -> Pool:
    """The first message that comes at that second or later stays in its listener."""
    take = pool.take.copy()
    take[np.searchsorted(pool.arrive, at)] = for_s
    return Pool(**{**_fields(pool), "take": take})


def _fields(pool: Pool) -> dict[str, Any]:
    return {name: getattr(pool, name) for name in pool.__dataclass_fields__}


def worked(pool: Pool) -> tuple[Moments, Moments]:
    """When each call begins and ends."""
    free = [-NEVER_S] * pool.listeners
    begin, end = np.empty(len(pool.arrive)), np.empty(len(pool.arrive))
    held: list[tuple[float, int]] = []
    for number, (arrived, takes) in enumerate(zip(pool.arrive, pool.take, strict=True)):
        starts = max(float(arrived), heapq.heappop(free))
        while held and held[0][1] <= number - SPAN_MAX:
            starts = max(starts, heapq.heappop(held)[0])
        ends = starts + float(takes)
        for stops, goes_on in pool.pauses:
            if starts < goes_on and ends > stops:
                ends = max(ends, goes_on) + 0.001
        if takes >= 1:
            heapq.heappush(held, (ends, number))
        begin[number], end[number] = starts, ends
        heapq.heappush(free, ends)
    return begin, end


def rows_of(pool: Pool) -> Rows:
    """The rows of a story."""
    begin, end = worked(pool)
    rows: Rows = {}
    broker = Emitter(rows)
    broker.at(0)
    broker.boot()
    broker.report("lifecycle", kind="SNAPSHOT", seq_from=1)
    moments = [(float(at), "mark") for at in np.arange(1, pool.seconds, 1)]
    asked = pool.sampled_at + np.arange(0, pool.seconds - pool.sampled_at, 5)
    asked = asked + np.random.default_rng(1).uniform(0, pool.late_s, len(asked))
    moments += [(float(at), "sample") for at in asked]
    moments += [(float(at) + 0.001, "stats") for at in asked[::2] if pool.reports_times]
    moments += [(at + 0.999, "ship") for at in range(4, pool.seconds, 5)]
    committed = 0
    for at, what in sorted(moments):
        broker.at(at)
        if what == "ship":
            broker.ship()
            continue
        if what == "stats":
            _report_stats(broker, pool, begin, end, at)
            continue
        stored = int(np.searchsorted(pool.arrive, at, side="right"))
        held = np.flatnonzero(end[:stored] > at)
        first = int(held[0]) if len(held) else stored
        if what == "sample":
            _report_window(broker, pool, begin, end, at=at, held=held, stored=stored)
            continue
        if at % 5 == 0:
            committed = first
        _report_mark(broker, pool, at, committed=committed, stored=stored)
    broker.at(pool.seconds)
    broker.ship()
    return rows


def _report_mark(broker: Emitter, pool: Pool, at: float, *, committed: int, stored: int) -> None:
    waits = committed < stored
    broker.watermark(
        committed=committed,
        pulled=stored,
        max_offset=stored,
        committed_state="EXACT" if waits else "AT_END",
        store_time_at_committed=_moment(pool.arrive[committed]) if waits else None,
        last_store_time=_moment(pool.arrive[stored - 1]),
        reports=int(at % 5 == 0),
        members=1,
    )


def _report_window(
    broker: Emitter, pool: Pool, begin: Moments, end: Moments, *, at: float, held: Any, stored: int
) -> None:
    first = int(held[0]) if len(held) else None
    done = end[:stored][end[:stored] <= at]
    is_in_listener = first is not None and begin[first] <= at
    skew = pool.client_clock_s
    broker.sample(
        held_count=len(held),
        first_held=first,
        last_held=int(held[-1]) if len(held) else None,
        finished_count=0 if first is None else stored - first - len(held),
        client_committed=stored if first is None else first,
        head_message_id=None if first is None else f"M{first}",
        head_since=_moment(begin[first] + skew) if is_in_listener else None,
        last_consume_time=_moment(float(done.max()) + skew) if len(done) else None,
        last_pull_time=_moment(at + skew),
        attended=True,
        answered=True,
    )


def _report_stats(broker: Emitter, pool: Pool, begin: Moments, end: Moments, at: float) -> None:
    ended = (end <= at) & (end > at - 60)
    took_ms = np.maximum(1, (end - begin)[ended] * 1000).astype(int)
    broker.report(
        "consume_stats",
        client_id="client-1",
        group="g",
        topic="t",
        listeners=pool.listeners,
        calls=len(took_ms),
        consume_us_mean=int(took_ms.mean() * 1000) if len(took_ms) else None,
        consume_ms_p50=int(np.percentile(took_ms, 50)) if len(took_ms) else None,
        consume_ms_p99=int(np.percentile(took_ms, 99)) if len(took_ms) else None,
        consumed=len(took_ms),
        queues_held=1,
    )


def _moment(at: float) -> int:
    return START_US + int(at * SECOND)


def gold_of(pool: Pool, *, ends: Sequence[int] | None = None, **figures: Any) -> Gold:
    """Gold of the judges."""
    return run(JUDGES, bronze(rows_of(pool)), Evaluation(**figures), ends=ends)


def opened(gold: Gold) -> list[tuple[float, str, str]]:
    """When each window was reported first, with its rule and kind."""
    return [
        (second(row["observed_at"]), row["rule"], row["kind"])
        for row in sorted(gold["stalled_windows"], key=lambda one: one["observed_at"])
        if row["revision"] == 1
    ]
