"""Rows of gold as a report gathers them, a few words each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from pipelines.lake.schemas import arrow_schema
from pipelines.reading.catalogue import BY_NAME
from pipelines.reports.cuts import Cut
from pipelines.reports.gathering import Gathered
from pipelines.reports.windows import Period, Window

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = Window(Period.HOURLY, BEGIN, BEGIN + timedelta(hours=1))
EMITTER, CLUSTER = "Prod/broker-a/0", "Prod"
CUT = Cut("run", 7, 1_772_373_600_000_000)
MOMENT = pl.Datetime("us", "UTC")
SLOTS = {
    "emitter": pl.String, "cluster": pl.String, "group": pl.String, "slot": pl.Int64,
    "behind_ms": pl.Int64, "lag_messages": pl.Int64, "queues": pl.Int64,
    "unknown_queues": pl.Int64,
}  # fmt: skip
STATES = {
    "emitter": pl.String, "cluster": pl.String, "group": pl.String, "observed_at": MOMENT,
    "state": pl.String, "queues_known": pl.Int32, "retained_until": MOMENT,
}  # fmt: skip
DEAD = {
    "is_now": pl.Boolean, "cluster": pl.String, "group": pl.String, "topic": pl.String,
    "reason": pl.String, "letters": pl.Int64,
}  # fmt: skip
FATES = {
    "emitter": pl.String, "cluster": pl.String, "group": pl.String, "edge": pl.Int32,
    "dead_lettered": pl.Int64, "redriven": pl.Int64, "discarded": pl.Int64, "expired": pl.Int64,
}  # fmt: skip
VIOLATIONS = {
    "is_now": pl.Boolean, "cluster": pl.String, "group": pl.String, "violations": pl.Int64,
    "unaccounted": pl.Int64,
}  # fmt: skip
SHIPPED = {
    "is_now": pl.Boolean, "emitter": pl.String, "rows_expected": pl.Int64,
    "rows_found": pl.Int64, "rows_distinct": pl.Int64,
}  # fmt: skip

REACHED = {"emitter": pl.String, "judged_to": MOMENT, "polled_each_ms": pl.Int64}


def at(minute: float) -> datetime:
    """The moment so many minutes into the hour."""
    return BEGIN + timedelta(minutes=minute)


def course(
    group: str, lags_s: Iterable[float | None], *, first: int = 0, emitter: str = EMITTER
) -> list[dict[str, Any]]:
    """A row a minute from the minute `first` on; None: unknown."""
    base = int(BEGIN.timestamp()) // 60
    return [
        {
            "emitter": emitter,
            "cluster": CLUSTER,
            "group": group,
            "slot": base + first + number + 1,
            "behind_ms": None if lag_s is None else int(lag_s * 1000),
            "lag_messages": None if lag_s is None else int(lag_s * 10),
            "queues": 4,
            "unknown_queues": 4 if lag_s is None else 0,
        }
        for number, lag_s in enumerate(lags_s)
    ]


def gathered(
    *slots: Sequence[dict[str, Any]], window: Window = HOUR, **parts: list[dict[str, Any]]
) -> Gathered:
    """What gold says, where it says anything."""
    reached = parts.pop("reached", [{"emitter": EMITTER, "judged_to": at(180)}])
    found = Gathered(
        window,
        CUT,
        slots=pl.DataFrame([row for some in slots for row in some], schema=SLOTS),
        states=pl.DataFrame(parts.pop("states", []), schema=STATES),
        stalls=_gold("stalled_windows", parts.pop("stalls", [])),
        risks=_gold("duplicate_risk_windows", parts.pop("risks", [])),
        dead=pl.DataFrame(parts.pop("dead", []), schema=DEAD),
        fates=pl.DataFrame(parts.pop("fates", []), schema=FATES),
        violations=pl.DataFrame(parts.pop("violations", []), schema=VIOLATIONS),
        shipped=pl.DataFrame(parts.pop("shipped", []), schema=SHIPPED),
        reached=pl.DataFrame(reached, schema=REACHED),
        results=_gold("dq_results", parts.pop("results", [])),
        failures=_gold("dq_failures", parts.pop("failures", [])),
        known_from=at(-600),
    )
    assert not parts, parts
    return replace(found)


def _gold(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    empty = pl.DataFrame(pl.from_arrow(arrow_schema(BY_NAME[name].columns).empty_table()))
    full = [{column: row.get(column) for column in empty.columns} for row in rows]
    return pl.DataFrame(full, schema=empty.schema)


def stall(
    group: str, opened: datetime, closed: datetime | None, kind: str = "FROZEN_HEAD", **fields: Any
) -> dict[str, Any]:
    """A stall as it is known at the cut."""
    return {
        "window_id": f"{group}-{opened:%H%M%S}", "cluster": CLUSTER, "group": group,
        "topic": "orders", "queue_id": 2, "emitter": EMITTER, "kind": kind, "rule": "STALLED",
        "opened_at": opened, "closed_at": closed, "observed_at": closed or opened,
        "evidence": "7 commits, offset unchanged", **fields,
    }  # fmt: skip


def risk(group: str, opened: datetime, outcome: str, **fields: Any) -> dict[str, Any]:
    """A risk of duplicates as it is known at the cut."""
    return {
        "window_id": f"{group}-{opened:%H%M%S}", "cluster": CLUSTER, "group": group,
        "cause": "CONSUMER_CRASH", "outcome": outcome, "opened_at": opened,
        "at_risk_messages": 100, "certain_messages": 60, "redelivered_messages": 0, **fields,
    }  # fmt: skip
