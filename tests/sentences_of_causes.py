"""Sentences about groups that are behind: one for each cause, also with unknown figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipelines.marts.causes.diagnosing import findings
from pipelines.marts.causes.finding import Figures, QueueFigures, said
from pipelines.marts.causes.queues import LateQueues, skews
from pipelines.marts.judging.ticks import WORDS
from pipelines.sentences import causes

SECOND = 1_000_000
TICK_US = 1_772_392_203 * SECOND
CLIENTS = tuple(f"192.0.2.{last}@4711#1234567890123" for last in (2, 3, 4))
MEMBER: dict[str, Any] = {
    "topic": "orders",
    "client_id": CLIENTS[0],
    "listeners": 20,
    "listeners_busy": 3,
    "listeners_queued": 0,
    "paused": False,
    "calls": 600,
    "consume_us_mean": 50_000,
    "consume_ms_p99": 60,
    "calm_us": 50_000,
    "consumed": 600,
    "failed": 0,
    "flow_count_ms": 0,
    "flow_bytes_ms": 0,
    "flow_span_ms": 0,
    "queues_held": 2,
    "topic_queues": 4,
    "group_members": 3,
    "idle_us": None,
}
SILENT = {"listeners_busy": None, "listeners_queued": None, "calls": None}
REST: dict[str, Any] = {
    "topic": "orders",
    "client_id": CLIENTS[0],
    "queue_id": 0,
    "first_held": 1_007,
    "held_count": 1,
    "finished_count": 2_000,
    "head_age_us": 40 * SECOND,
    "event_us": TICK_US - 6 * SECOND,
}
KEY: dict[str, Any] = {
    "topic": "orders",
    "client_id": CLIENTS[0],
    "queue_id": 2,
    "top_key": "customer-7",
    "top_key_messages": 240,
    "keyed_messages": 256,
}
COLD: dict[str, Any] = {
    "topic": "orders",
    "messages": 4_000,
    "size_bytes": 4_000_000,
    "behind_bytes_max": 90_000_000,
    "resident_bytes": 80_000_000,
    "messages_a_pull_max": 8,
    "pulls": 500,
    "disk_read_bytes": 3_990_000,
}
COMES_AND_GOES = [
    {"client_id": CLIENTS[0], "kind": kind, "event_us": TICK_US - (40 - number) * SECOND}
    for number, kind in enumerate(("LEFT", "JOINED") * 6)
]


def lag_of(*queues: tuple[int, int, int], of: int = 4, sent: int = 1_000) -> dict[str, Any]:
    """Queues of a topic that are behind: their number, their lag, and what each was given."""
    numbers, lags, given = np.array(queues).T
    every = np.ones(len(queues), np.int64)
    late = LateQueues(
        *(0 * every, 0 * every, numbers, lags, given, np.maximum(lags - 30, 0)),
        *(of * every, sent * every, ["orders"]),
    )
    return {"skew": skews(late)[0]}


def members(*of_each: dict[str, Any]) -> list[dict[str, Any]]:
    """What so many members report."""
    return [
        {**MEMBER, "client_id": client_id, **values}
        for client_id, values in zip(CLIENTS, of_each, strict=False)
    ]


GROUPS: dict[str, dict[str, Any]] = {
    "queues stand": {
        "standing": "Group shipping stands on queue 2 of orders on broker-a; 99 messages wait."
    },
    "paused, one member": {"stats": members({"paused": True})},
    "paused, some members": {"stats": members({"paused": True}, {"paused": True}, {})},
    "no members": {"members": 0},
    "no members, the last one left": {"members": 0, "changes": COMES_AND_GOES[:1]},
    "saturated, one member": {"stats": members({"listeners_busy": 20, "listeners_queued": 1})},
    "saturated, one of three": {
        "stats": members({"listeners_busy": 20, "listeners_queued": 1_700}, {}, {})
    },
    "saturated, one listener, calls unknown": {
        "stats": members(
            {"listeners": 1, "listeners_busy": 1, "listeners_queued": 7, "consume_us_mean": None}
        )
    },
    "slow by percentiles": {"stats": members({"consume_ms_p99": 1_200})},
    "slow by means": {"stats": members({"consume_ms_p99": None, "consume_us_mean": 900_000})},
    "too many messages": {"stats": members({"flow_count_ms": 30_000})},
    "too many bytes": {"stats": members({"flow_bytes_ms": 30_000})},
    "too much behind an unfinished message": {"stats": members({"flow_span_ms": 30_000})},
    "a queue that is not pulled": {
        "stats": members({"flow_span_ms": 30_000}),
        "rests": [REST, {**REST, "queue_id": 1, "finished_count": 9}],
    },
    "a queue that is not pulled, whose head waits": {
        "stats": members({"flow_span_ms": 30_000}),
        "rests": [{**REST, "head_age_us": None, "finished_count": 1}],
    },
    "a hot queue": lag_of((2, 4_000, 900)),
    "a queue that was hot": {**lag_of((2, 4_000, 0), sent=0), "was_hot": ("orders", 2)},
    "a queue that lags": lag_of((2, 4_000, 250)),
    "a queue that lags, what was sent unknown": {**lag_of((2, 31, 250)), "slots_known": 1},
    "a queue that lags beside unknown ones": {**lag_of((2, 4_000, 250)), "is_part": True},
    "queues that lag": lag_of(
        *((number, 3_000, 10) for number in (2, 3, 5)), of=1_000, sent=100_000
    ),
    "a hot key": {
        **lag_of((2, 100, 1)),
        "queues": [QueueFigures("orders", 2, 70)],
        "topics": {"orders": 4},
        "keys": [KEY],
    },
    "fewer queues than members": {
        "stats": members(*({"topic_queues": 2, "queues_held": held} for held in (1, 1, 0)))
    },
    "one queue": {
        "stats": members(*({"topic_queues": 1, "queues_held": held} for held in (1, 0, 0)))
    },
    "members without queues": {
        "stats": members({}, {"queues_held": 0, "idle_us": TICK_US - 60 * SECOND}, {})
    },
    "members without queues of several topics": {
        "stats": [
            *members({}, {}, {}),
            *(
                {
                    **MEMBER,
                    "topic": topic,
                    "queues_held": 0,
                    "topic_queues": None,
                    "idle_us": TICK_US - 60 * SECOND,
                }
                for topic in ("orders", "refunds")
            ),
        ]
    },
    "retries": {"retried": 412, "consumed": 588, "stats": members({"failed": 240})},
    "retries, failures unknown": {"retried": 4_120},
    "invisible times": {"came_back": 64, "consumed": 36},
    "a burst": {"given": (40, 40, 40, 4_100, 40)},
    "reads from disk": {"cold": [COLD]},
    "reads from afar": {"cold": [{**COLD, "disk_read_bytes": None, "resident_bytes": 90_000_001}]},
    "members that come and go": {"changes": COMES_AND_GOES},
    "unknown, nobody reports": {},
    "unknown, foreign clients": {"stats": members(SILENT)},
    "unknown, figures": {"stats": members({}, {}, {})},
}


def of_causes() -> Iterator[tuple[str, str]]:
    """(what of, sentence): findings, first seen and held; what is unknown; the end."""
    for name, given in GROUPS.items():
        for found in findings(group(**given)):
            yield f"{found.cause}: {name}", said(found.evidence)
    no_members = causes.no_members("shipping", "broker-a", None)
    yield "a cause that held until a moment ago", causes.held_at(no_members, TICK_US)
    for why, words in WORDS.items():
        yield f"UNKNOWN: {why}", causes.silent("shipping", "broker-a", words)
    yield "NONE", causes.none("shipping")


def group(**given: Any) -> Figures:
    """A group that is behind; `given`: what is known of it beside that."""
    known = {
        "group": "shipping",
        "broker": "broker-a",
        "tick_us": TICK_US,
        "slot_us": 30 * SECOND,
        "span_us": 40 * SECOND,
        "slots_known": 5,
        "lag": 4_000,
        "members": 3,
        "given": (40, 40, 40, 40, 40),
        "consumed": 1_000,
        "retried": 0,
        "came_back": 0,
    }
    return Figures(**{**known, **given})
