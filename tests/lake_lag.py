"""Lag of the story's queues from closed formulas for offsets, second by second.

Producers send at a steady rate and consumers commit each five seconds; a queue's role says what
goes wrong on it and when.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.lake_story import BACK, LENGTH_S, RESTART, Cast, Story, at

PER_SECOND = {"orders": 8, "payments": 5}
COMMIT_PERIOD_S = 5
SLOW_FROM, SLOW_TO = 180, 280
CRASH, TAKEN_OVER = 381, 395
JOIN = 300
POISON = 420
FROZEN = 510
PULL_WINDOW = 1000


def write_lag(story: Story, seed: int) -> list[Queue]:
    """Watermarks, commits, lag and group states of every queue; returns the queues."""
    queues = list(_queues(story.cast, random.Random(seed)))
    for queue in queues:
        _lag(story, queue)
    _group_states(story, queues)
    return queues


@dataclass(frozen=True)
class Queue:
    """A queue as one group reads it."""

    group: str
    topic: str
    queue_id: int
    owner: str
    base: int
    role: str

    def max_offset(self, t: float) -> int:
        return self.base + int(PER_SECOND[self.topic] * t)

    def consumed_to(self, t: float) -> float:
        """Up to which second of production everything is committed at second `t`."""
        steady = max(0.0, t - t % COMMIT_PERIOD_S - 0.4)
        if self.role == "frozen" and t >= FROZEN:
            return FROZEN - 3.9
        if self.role == "slow" and SLOW_FROM <= t < SLOW_TO + 60:
            reported = t - t % COMMIT_PERIOD_S
            behind = max(0, min(reported - SLOW_FROM, (SLOW_TO + 60 - reported) * 1.6)) * 0.45
            return max(0.0, steady - behind)
        if self.role == "crashed" and CRASH <= t < TAKEN_OVER:
            return CRASH - CRASH % COMMIT_PERIOD_S - 0.4
        if self.role in ("crashed", "ledger") and BACK <= t < BACK + 5:
            return BACK - 15.4
        return steady

    def committed(self, t: float) -> int:
        return self.base + int(PER_SECOND[self.topic] * self.consumed_to(t))

    def pulled(self, t: float) -> int:
        newest = self.max_offset(CRASH if self.role == "crashed" and CRASH <= t < TAKEN_OVER else t)
        return min(newest, self.committed(t) + PULL_WINDOW)

    def holder(self, t: float) -> str:
        return "ledger-1@10.0.0.21" if self.role == "crashed" and t >= TAKEN_OVER else self.owner


def _queues(cast: Cast, chance: random.Random) -> Iterator[Queue]:
    for queue_id in range(4):
        base = 120_000 + chance.randrange(9_000)
        yield Queue(
            cast.billing, "orders", queue_id, f"billing-{queue_id % 2 + 1}@10.0.0.11", base, "well"
        )
        role = {0: "slow", 2: "frozen"}.get(queue_id, "well")
        owner = f"shipping-{queue_id // 2 + 1}@10.0.0.12"
        yield Queue(cast.shipping, "orders", queue_id, owner, base, role)
    for queue_id in range(4):
        base = 2**53 + 1 + chance.randrange(9_000)  # Beyond what a browser's number can hold.
        role, owner = ("crashed", "ledger-2") if queue_id >= 2 else ("ledger", "ledger-1")
        yield Queue(cast.ledger, "payments", queue_id, f"{owner}@10.0.0.2{owner[-1]}", base, role)


def _lag(story: Story, queue: Queue) -> None:
    """A watermark and its lag each second, and a commit each time the offset moved."""
    before = None
    for t in range(1, LENGTH_S + 1):
        if RESTART <= t < BACK:
            continue  # The broker is down: nobody reports.
        committed, newest = queue.committed(t), queue.max_offset(t)
        if committed != before:
            story.fact(t - 0.3, "consume_offsets", **_commit(queue, t, before, committed))
        before = committed
        store_time = (committed - queue.base) / PER_SECOND[queue.topic]
        mark = story.fact(t, "group_watermarks", **_watermark(queue, t, store_time))
        minute_ago = max(1, t - 60)
        change = (newest - committed) - (queue.max_offset(minute_ago) - queue.committed(minute_ago))
        trend = "STEADY" if abs(change) < 60 else "GROWING" if change > 0 else "SHRINKING"
        known = t > 60
        story.answer(
            "consumer_lag",
            t,
            mark,
            group=queue.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            lag_messages=newest - committed,
            time_lag_ms=max(0, round((t - store_time) * 1000)) if newest > committed else 0,
            time_lag_error_ms=400 if t == BACK else 0,
            provenance="INTERPOLATED" if t == BACK else "EXACT",
            inflight_messages=queue.pulled(t) - committed,
            committed=committed,
            persisted=queue.committed(max(1, t - COMMIT_PERIOD_S)),
            pulled=queue.pulled(t),
            min_offset=queue.base,
            max_offset=newest,
            trend=trend if known else None,
            lag_change_per_minute=change if known else None,
            drain_time_ms=None,
            last_commit_time=at(_last_commit(queue, t)),
            last_pull_time=at(t - 0.2),
            last_puller=queue.holder(t),
        )


def _last_commit(queue: Queue, t: int) -> float:
    """Unchanged reports count too; a crashed client reports nothing."""
    last = t - t % COMMIT_PERIOD_S
    crashed = queue.role == "crashed" and CRASH <= t < TAKEN_OVER
    return CRASH - CRASH % COMMIT_PERIOD_S if crashed else max(1, last)


def _commit(queue: Queue, t: int, before: int | None, committed: int) -> dict[str, Any]:
    restored = before is not None and committed < before
    return {
        "group": queue.group,
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "offset": committed,
        "previous_offset": before,
        "path": "RESTORE" if restored else "COMMIT_RPC",
        "trigger": "TIMER",
        "client_id": None if restored else queue.holder(t),
        "accepted": True,
        "min_offset": queue.base,
        "max_offset": queue.max_offset(t),
    }


def _watermark(queue: Queue, t: int, store_time: float) -> dict[str, Any]:
    return {
        "group": queue.group,
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "pulled": queue.pulled(t),
        "committed": queue.committed(t),
        "persisted": queue.committed(max(1, t - COMMIT_PERIOD_S)),
        "committed_state": "EXACT",
        "store_time_at_committed": at(store_time),
        "min_offset": queue.base,
        "max_offset": queue.max_offset(t),
        "last_store_time": at(t),
        "last_puller": queue.holder(t),
        "last_commit_time": at(_last_commit(queue, t)),
        "last_pull_time": at(t - 0.2),
        "reports": 1 if t % COMMIT_PERIOD_S == 0 else 0,
        "message_model": "CLUSTERING",
        "members": 2,
    }


def _group_states(story: Story, queues: list[Queue]) -> None:
    """The state of each group each 30 s and when it changes; a queue nobody has committed yet."""
    cast = story.cast
    for t in range(30, LENGTH_S + 1, 30):
        mark = story.fact(t, "group_watermarks", **_nothing_committed(cast.ledger))
        story.answer("consumer_lag", t, mark, **_never_committed(cast.ledger))
    changes = {SLOW_FROM + 20, SLOW_TO, CRASH + 12, TAKEN_OVER + 6, FROZEN + 12, BACK}
    ticks = {*range(30, LENGTH_S + 1, 30), *changes} - set(range(RESTART, BACK))
    for t in sorted(ticks):
        mark = story.fact(t, "queue_watermarks", **_produced(queues[0], t))
        for group in (cast.billing, cast.shipping, cast.ledger):
            mine = [queue for queue in queues if queue.group == group]
            lags = [queue.max_offset(t) - queue.committed(t) for queue in mine]
            times = [t - queue.consumed_to(t) for queue in mine]
            state, reason, not_ok = _judged(cast, group, t, max(lags))
            retry = 1 if group == cast.ledger else 0
            story.answer(
                "group_state",
                t,
                mark,
                group=group,
                state=state,
                reason=reason,
                lag_messages=sum(lags),
                time_lag_ms=round(max(times) * 1000),
                queues=len(mine) + retry,
                queues_known=len(mine),
                queues_not_ok=not_ok,
                members=3 if group == cast.billing and t >= JOIN else 2,
                trend="GROWING" if state == "STALLED" else "STEADY",
            )


def _produced(queue: Queue, t: int) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "min_offset": queue.base,
        "max_offset": queue.max_offset(t),
        "flushed_offset": queue.max_offset(t),
        "last_store_time": at(t),
        "readable": True,
    }


def _nothing_committed(group: str) -> dict[str, Any]:
    return {
        "group": group,
        "topic": f"%RETRY%{group}",
        "queue_id": 0,
        "committed_state": "NONE",
        "min_offset": 0,
        "max_offset": 0,
        "reports": 0,
    }


def _never_committed(group: str) -> dict[str, Any]:
    return {
        "group": group,
        "topic": f"%RETRY%{group}",
        "queue_id": 0,
        "provenance": "UNKNOWN",
        "unknown_reason": "NO_OFFSET",
        "min_offset": 0,
        "max_offset": 0,
    }


def _judged(cast: Cast, group: str, t: float, worst_lag: int) -> tuple[str, str, int]:
    if group == cast.shipping and t >= FROZEN + 12:
        since = int(t) - FROZEN
        reason = (
            f"orders queue 2: {since // COMMIT_PERIOD_S} commits in {since} s, offset unchanged, "
            f"lag {worst_lag:,} messages and growing"
        )
        return "STALLED", reason, 1
    if group == cast.shipping and SLOW_FROM + 20 <= t < SLOW_TO:
        return "SLOW", f"orders queue 0: advancing, but lag {worst_lag:,} never shrinks", 1
    if group == cast.ledger and CRASH + 12 <= t < TAKEN_OVER + 6:
        return "STOPPED", f"payments queues 2, 3: no commit, lag {worst_lag:,}", 2
    return "OK", f"every queue within its allowance; largest lag {worst_lag:,} messages", 0
