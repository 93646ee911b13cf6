"""Defines a consistent moment at which to read gold, taken from a complete cycle.

Place in the walk: between gold and everybody who reads it: one look takes its rows up to one
`Moment`, so that no two numbers are of different times. It says as well of which emitters nothing
is known by then, and why (`unknown`).

Invariant: a row is seen when its emitter had been judged at least that far, in data time and in
seq, at a complete cycle. While the process that computes gold waits, since nothing comes, the
present goes on: so emitters that stop all at once are silent as one that stops alone. Absent on
purpose: Spark, and the wall clock of the reader; when the cycle was planned is recorded, and
reveals a clock that is ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from pipelines.base.settings import CLOCK_SKEW_ALLOWED_US, SILENCE_US, silence_us
from pipelines.base.time_units import micros, moment_at
from pipelines.cycles.plan import Plan, last_done, plan_of_cycle
from pipelines.lake.lake import Lake, sql_moment, sql_text
from pipelines.lake.lease import DRIVER, idle_at
from pipelines.marts.mart import GoldTable
from pipelines.reading.lasting_lifecycle import lasting_rows
from pipelines.reading.leaders import ends_of_leading
from pipelines.reading.retirements import retirements
from pipelines.sentences.emitters import clock_ahead, silent_since
from pipelines.staging.facts import SHIPPER_SUFFIX

WAITED_LEAST: Final = timedelta(seconds=10)
"""Between two shipments there is always a while without one: shorter waiting is none."""

TimeInSql = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Reached:
    """How far one emitter has been judged."""

    emitter: str
    judged_to: datetime
    """Data time."""
    seq_to: int
    """Its newest bronze row that was taken."""
    silence_us: int = field(default=SILENCE_US, compare=False)
    """How long it may be silent before nothing is known of it."""
    report_each_ms: int | None = field(default=None, compare=False)
    """How often it asks a broker that it watches from outside; None: it reports on itself, or did
    not say.
    """
    ended_at: datetime | None = field(default=None, compare=False)
    """When it was reported that its broker was taken out for good, and nothing came since, or that
    another node of it leads; None: it was not.
    """
    follows: bool = field(default=False, compare=False)
    """Did it end because another node of its broker leads?"""


@dataclass(frozen=True, slots=True)
class Moment:
    """A complete cycle of a lake, or a moment before it."""

    run_id: str
    cycle: int
    reached: tuple[Reached, ...]
    planned_at: datetime | None = field(default=None, compare=False)
    """When the cycle was planned, by the clock of the machine that computes; None: not known."""
    cluster: str | None = None
    """The one cluster that it is about; None: all of the lake."""
    others: tuple[Reached, ...] = ()
    """Emitters of other clusters: they say how late it is, and nothing else."""
    gold: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Per gold table, a version that it had when the cycle was done; those not named may be gone.
    """
    waited: timedelta = timedelta(0)
    """For how long, after that cycle was planned, the process that computes gold has looked for
    more and found nothing; both by its clock."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters that the lake holds, sorted, whichever one this is about."""
        return tuple(sorted({cluster_of(one.emitter) for one in self._everybody}))

    @property
    def is_observed(self) -> bool:
        """Is any broker that it is about watched from outside?"""
        return any(is_observer(one.emitter) for one in self.reached)

    def of_cluster(self, cluster: str) -> Moment:
        """The same moment, of one cluster: rows of others are not seen."""
        own = tuple(one for one in self._everybody if cluster_of(one.emitter) == cluster)
        others = tuple(one for one in self._everybody if cluster_of(one.emitter) != cluster)
        return replace(self, reached=own, cluster=cluster, others=others)

    @property
    def whole(self) -> Moment:
        """The same moment, of all clusters."""
        return replace(self, reached=self._everybody, cluster=None, others=())

    @property
    def _everybody(self) -> tuple[Reached, ...]:
        return (*self.reached, *self.others)

    @property
    def newest(self) -> datetime | None:
        """The furthest any emitter has been judged; None when none has."""
        return max((one.judged_to for one in self.reached), default=None)

    @property
    def least(self) -> datetime | None:
        """How far every emitter has been judged, those that fell silent included; one that was
        taken out counts when there is no other."""
        counted = self.there or self.reached
        return min((one.judged_to for one in counted), default=None)

    @property
    def ahead(self) -> tuple[Reached, ...]:
        """Emitters that were judged to moments that had not come when the cycle was planned: their
        clocks are ahead.
        """
        return tuple(one for one in self.reached if self._is_ahead(one))

    def _is_ahead(self, one: Reached) -> bool:
        allowed = timedelta(microseconds=CLOCK_SKEW_ALLOWED_US)
        return self.planned_at is not None and one.judged_to > self.planned_at + allowed

    @property
    def reported_to(self) -> datetime | None:
        """The furthest any emitter has been judged whose clock is not ahead; if all are, of all."""
        timely = [one.judged_to for one in self._everybody if not self._is_ahead(one)]
        return max(timely, default=max((one.judged_to for one in self._everybody), default=None))

    @property
    def present(self) -> datetime | None:
        """What is now in data time: `reported_to`, and later by as long as nothing more came."""
        reported_to = self.reported_to
        return None if reported_to is None else reported_to + self.waited

    @property
    def looked_at(self) -> datetime | None:
        """When the process that computes gold looked last and found nothing, by its clock; None
        when it has not waited since the cycle."""
        return self.planned_at + self.waited if self.planned_at and self.waited else None

    @property
    def ended(self) -> tuple[Reached, ...]:
        """Emitters whose brokers were taken out for good by then: nothing of them is there, and
        nobody waits for what they report."""
        present = self.present
        return tuple(
            one
            for one in self.reached
            if present is not None and one.ended_at is not None and one.ended_at <= present
        )

    @property
    def there(self) -> tuple[Reached, ...]:
        """All others: those that fell silent among them."""
        ended = self.ended
        return tuple(one for one in self.reached if one not in ended)

    @property
    def silent(self) -> tuple[Reached, ...]:
        """Emitters that ended so long before the present that they report nothing about now; one
        whose clock is ahead makes no other one silent, and one that was taken out is not.
        """
        present = self.present
        if present is None:
            return ()
        ended = self.ended
        return tuple(
            one
            for one in self.reached
            if one.judged_to < present - timedelta(microseconds=one.silence_us) and one not in ended
        )

    @property
    def silence_us(self) -> int:
        """How long nothing may be judged before what is now is unknown."""
        quiet = (*self.silent, *self.ended)
        speaking = (one.silence_us for one in self.reached if one not in quiet)
        return max(speaking, default=SILENCE_US)

    @property
    def unknown(self) -> dict[str, str]:
        """Per emitter of which nothing is known at this moment, why, in words."""
        reasons = {one.emitter: silent_since(one.emitter, one.judged_to) for one in self.silent}
        for one in self.ahead:
            assert self.planned_at is not None
            seconds = int((one.judged_to - self.planned_at).total_seconds())
            reasons[one.emitter] = clock_ahead(one.emitter, seconds)
        return reasons

    @property
    def judged_to(self) -> datetime | None:
        """How far every emitter that still speaks has been judged; of a cluster in which none
        does, the one that spoke last."""
        quiet = (*self.silent, *self.ended)
        speaking = (one.judged_to for one in self.reached if one not in quiet)
        return min(speaking, default=self.newest)

    def least_of(self, emitters: Iterable[str]) -> datetime | None:
        """How far all of these have been judged, those that fell silent included."""
        wanted = set(emitters)
        return min((one.judged_to for one in self.reached if one.emitter in wanted), default=None)

    def capped(self, at: datetime) -> Moment:
        """The same cycle, asked about an earlier moment."""

        def ends(emitters: Iterable[Reached]) -> tuple[Reached, ...]:
            return tuple(replace(one, judged_to=min(one.judged_to, at)) for one in emitters)

        reported_to = self.reported_to
        left = self.waited if reported_to is None else max(at - reported_to, timedelta(0))
        return replace(
            self,
            reached=ends(self.reached),
            others=ends(self.others),
            waited=min(self.waited, left),
        )

    def only(self, emitters: Iterable[str]) -> Moment:
        """The same moment without the emitters of which nothing had been judged by then."""
        known = set(emitters)
        return replace(
            self,
            reached=tuple(one for one in self.reached if one.emitter in known),
            others=tuple(one for one in self.others if one.emitter in known),
        )

    def condition(
        self, table: GoldTable, *, since: datetime | None = None, time: TimeInSql = sql_moment
    ) -> str:
        """SQL: the rows of a gold table that are seen at this moment, not before `since`.

        Tables without an emitter are seen whole: they speak of runs of their own. `time` writes a
        moment, µs since 1970 UTC, in the words of the engine that is asked.
        """
        parts = [f"observed_at >= {time(micros(since))}"] if since is not None else []
        if since is not None:
            parts.append(f"observed_date >= DATE '{since:%Y-%m-%d}'")
        if "emitter" in table.column_names:
            parts += self._seen("observed", table.seq_column, time)
        return " AND ".join(parts) or "true"

    def fact_condition(self, *, since: datetime | None = None, time: TimeInSql = sql_moment) -> str:
        """SQL: the rows of a bronze table that the cycle had taken, not before `since`.

        Rows of shippers have their own numbers: of shipments only the time is looked at.
        """
        parts = [f"event_time >= {time(micros(since))}"] if since is not None else []
        if since is not None:
            parts.append(f"event_date >= DATE '{since:%Y-%m-%d}'")
        parts += self._seen("event", "seq", time)
        return " AND ".join(parts)

    def _seen(self, kind: str, seq: str, time: TimeInSql) -> list[str]:
        at = "observed_at" if kind == "observed" else "event_time"
        each = [
            f"(emitter = {sql_text(one.emitter)} AND {seq} <= {one.seq_to}"
            f" AND {at} <= {time(micros(one.judged_to))})"
            for one in self.reached
        ]
        if kind == "event":
            each += [
                f"(emitter = {sql_text(one.emitter + SHIPPER_SUFFIX)}"
                f" AND event_time <= {time(micros(one.judged_to))})"
                for one in self.reached
            ]
        parts = [f"({' OR '.join(each) or 'false'})"]
        newest = self.newest
        if newest is not None:  # Alone, so that it is held against partitions and statistics.
            parts.append(f"{at} <= {time(micros(newest))}")
            parts.append(f"{kind}_date <= DATE '{newest:%Y-%m-%d}'")
        return parts


def cluster_of(emitter: str) -> str:
    """The cluster in an emitter's name, cluster/broker/broker_id: no part has a slash in it."""
    return emitter.partition("/")[0]


def is_observer(emitter: str) -> bool:
    """Does it report on a broker from outside? Its name has the observer's in place of a number."""
    return not emitter.rpartition("/")[2].isdecimal()


def sql_time(moment: datetime) -> str:
    """A moment as an SQL value, to the microsecond."""
    return sql_moment(micros(moment))


def last_complete(lake: Lake) -> Moment | None:
    """The last cycle that is recorded as done; None when no cycle of this lake was ever completed.

    LakeError for a table of plans that cannot be read.
    """
    plan = last_done(lake)
    if plan is None:
        return None
    moment = moment_of(plan)
    return with_own_silences(lake, replace(moment, waited=_waited(lake, moment)))


def cycle_moment(lake: Lake, cycle: int) -> Moment | None:
    """The moment of one cycle, as its plan reports it; None when there was no such cycle."""
    plan = plan_of_cycle(lake, cycle)
    return None if plan is None else with_own_silences(lake, moment_of(plan))


def _waited(lake: Lake, moment: Moment) -> timedelta:
    """How long nothing has come since a cycle, by the clock of whoever waits for it. Where it is
    not known, or its clock was set back, nobody has waited."""
    looked_at = idle_at(lake, DRIVER)
    if looked_at is None or moment.planned_at is None:
        return timedelta(0)
    waited = looked_at - moment.planned_at
    return waited if waited >= WAITED_LEAST else timedelta(0)


def moment_of(plan: Plan) -> Moment:
    """The moment that a plan reports, once it is carried out."""
    reached = tuple(
        Reached(cut.emitter, moment_at(cut.time_to_us), cut.seq_to) for cut in plan.cuts
    )
    return Moment(plan.run_id, plan.cycle, reached, plan.recorded_at, gold=plan.gold)


def with_own_silences(lake: Lake, moment: Moment) -> Moment:
    """The moment, with how often each emitter reports that reports on a broker from outside, as it
    had reported by then; a broker that reports on itself does so each second. And with those whose
    brokers were taken out for good, or that do not lead any more: nothing is seen of what they
    reported later.
    """
    of_observers = _of_observers(lake, moment)
    taken_out = retirements(lake)
    followers = ends_of_leading(lake, {one.emitter: one.seq_to for one in moment.reached})

    def known(one: Reached) -> Reached:
        period_ms, ended_at = of_observers.get(one.emitter, (None, None))
        by_hand = taken_out.get(one.emitter)
        if by_hand is not None and one.judged_to <= by_hand.judged_to:
            ended_at = by_hand.retired_at
        followed_at = followers.get(one.emitter)
        if followed_at is not None:
            until = min(one.judged_to, followed_at)
            return replace(one, judged_to=until, ended_at=followed_at, follows=True)
        return replace(
            one, silence_us=silence_us(period_ms), report_each_ms=period_ms, ended_at=ended_at
        )

    return replace(moment, reached=tuple(map(known, moment.reached)))


def _of_observers(lake: Lake, moment: Moment) -> dict[str, tuple[int | None, datetime | None]]:
    """Per emitter that reports on a broker from outside, how often it does, ms, and since when the
    broker is gone for good."""
    observers = [one for one in moment.reached if is_observer(one.emitter)]
    if not observers:
        return {}
    each = (f"(emitter = {sql_text(one.emitter)} AND seq <= {one.seq_to})" for one in observers)
    found: dict[str, tuple[int | None, datetime | None]] = {}
    for row in lasting_rows(lake, ("OBSERVED", "BROKER_GONE"), " OR ".join(each)):
        emitter, is_gone = row["emitter"], row["kind"] == "BROKER_GONE"
        period_ms = found.get(emitter, (None, None))[0] if is_gone else row["report_each_ms"]
        found[emitter] = (period_ms, row["event_time"] if is_gone else None)
    return found


def reached_rows(moments: Sequence[Reached]) -> list[dict[str, Any]]:
    """The same as rows: emitter, judged_to, seq_to."""
    return [
        {"emitter": one.emitter, "judged_to": one.judged_to, "seq_to": one.seq_to}
        for one in moments
    ]
