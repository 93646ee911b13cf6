"""The moment a reader speaks of: how far each emitter had been judged when a cycle was complete.

Place in the walk: between gold and everybody who reads it. Every page, every answer and every
figure of one look takes its rows up to one `Moment`, so that no two numbers beside each other are
of different times.

Invariant: a moment is that of a complete cycle: a row is seen when its emitter had been judged at
least that far, in data time and in seq; what a cycle has half written is not seen. An emitter that
nobody has judged yet has no rows. Absent on purpose: Spark, and the wall clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pipelines.cycles.plan import Plan, last_done, plan_of_cycle
from pipelines.lake import Lake, sql_moment, sql_text
from pipelines.marts.mart import GoldTable
from pipelines.settings import SILENCE_US
from pipelines.staging.facts import SHIPPER_SUFFIX

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TimeInSql = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Reached:
    """How far one emitter has been judged."""

    emitter: str
    judged_to: datetime
    """Data time."""
    seq_to: int
    """Its newest bronze row that was taken."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A complete cycle of a lake, or a moment before it."""

    run_id: str
    cycle: int
    reached: tuple[Reached, ...]

    @property
    def newest(self) -> datetime | None:
        """The furthest any emitter has been judged; None when none has."""
        return max((one.judged_to for one in self.reached), default=None)

    @property
    def least(self) -> datetime | None:
        """How far every emitter has been judged, those that fell silent included."""
        return min((one.judged_to for one in self.reached), default=None)

    @property
    def silent(self) -> tuple[Reached, ...]:
        """Emitters that ended so long before the newest one that they tell nothing about now."""
        newest = self.newest
        return tuple(
            one
            for one in self.reached
            if newest is not None and newest - one.judged_to > timedelta(microseconds=SILENCE_US)
        )

    @property
    def judged_to(self) -> datetime | None:
        """How far every emitter that still speaks has been judged."""
        silent = self.silent
        return min((one.judged_to for one in self.reached if one not in silent), default=None)

    def capped(self, at: datetime) -> Moment:
        """The same cycle, asked about an earlier moment."""
        ends = tuple(
            Reached(one.emitter, min(one.judged_to, at), one.seq_to) for one in self.reached
        )
        return Moment(self.run_id, self.cycle, ends)

    def condition(
        self, table: GoldTable, *, since: datetime | None = None, time: TimeInSql = sql_moment
    ) -> str:
        """SQL: the rows of a gold table that are seen at this moment, not before `since`.

        Tables without an emitter are seen whole: they speak of runs of their own. `time` writes a
        moment, µs since 1970 UTC, in the words of the engine that is asked.
        """
        parts = [f"observed_at >= {time(_micros(since))}"] if since is not None else []
        if since is not None:
            parts.append(f"observed_date >= DATE '{since:%Y-%m-%d}'")
        if "emitter" in table.column_names:
            parts += self._seen("observed", table.seq_column, time)
        return " AND ".join(parts) or "true"

    def fact_condition(self, *, since: datetime | None = None, time: TimeInSql = sql_moment) -> str:
        """SQL: the rows of a bronze table that the cycle had taken, not before `since`.

        Rows of shippers have their own numbers: of shipments only the time is looked at.
        """
        parts = [f"event_time >= {time(_micros(since))}"] if since is not None else []
        if since is not None:
            parts.append(f"event_date >= DATE '{since:%Y-%m-%d}'")
        parts += self._seen("event", "seq", time)
        return " AND ".join(parts)

    def _seen(self, kind: str, seq: str, time: TimeInSql) -> list[str]:
        at = "observed_at" if kind == "observed" else "event_time"
        each = [
            f"(emitter = {sql_text(one.emitter)} AND {seq} <= {one.seq_to}"
            f" AND {at} <= {time(_micros(one.judged_to))})"
            for one in self.reached
        ]
        if kind == "event":
            each += [
                f"(emitter = {sql_text(one.emitter + SHIPPER_SUFFIX)}"
                f" AND event_time <= {time(_micros(one.judged_to))})"
                for one in self.reached
            ]
        parts = [f"({' OR '.join(each) or 'false'})"]
        newest = self.newest
        if newest is not None:  # Alone, so that it is held against partitions and statistics.
            parts.append(f"{at} <= {time(_micros(newest))}")
            parts.append(f"{kind}_date <= DATE '{newest:%Y-%m-%d}'")
        return parts


def sql_time(moment: datetime) -> str:
    """A moment as an SQL value, to the microsecond."""
    return sql_moment(_micros(moment))


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def last_complete(lake: Lake) -> Moment | None:
    """The last cycle that is recorded as done; None when no cycle of this lake was ever completed.

    LakeError for a table of plans that cannot be read.
    """
    return _moment_of(last_done(lake))


def cycle_moment(lake: Lake, cycle: int) -> Moment | None:
    """The moment of one cycle, as its plan tells it; None when there was no such cycle."""
    return _moment_of(plan_of_cycle(lake, cycle))


def _moment_of(plan: Plan | None) -> Moment | None:
    if plan is None:
        return None
    reached = tuple(
        Reached(cut.emitter, _EPOCH + timedelta(microseconds=cut.time_to_us), cut.seq_to)
        for cut in plan.cuts
    )
    return Moment(plan.run_id, plan.cycle, reached)


def reached_rows(moments: Sequence[Reached]) -> list[dict[str, Any]]:
    """The same as rows: emitter, judged_to, seq_to."""
    return [
        {"emitter": one.emitter, "judged_to": one.judged_to, "seq_to": one.seq_to}
        for one in moments
    ]
