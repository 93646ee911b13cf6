"""Plans the runs that are due under a cron, fixed-rate, fixed-delay or one-off schedule.

Place in the walk: under the schedule lock, a centre reads the jobs that are due within the window,
plans each as written here, and stores runs and next times in one transaction.

        missed                  late          ahead
    ──────────────┬───────────────────┬───────────────────┬────→ time
             now - WINDOW_MS         now            now + WINDOW_MS

A planned time that is late by the window at most gets its run, each of them (XXL-Job runs once for
several). What is older is missed: the job's policy says whether one run makes up for it.

Invariant: pure. A next time lies after the moment it is asked for, or there is none. Each planned
time gets one run or is missed, and the next time lies beyond the window, so that a pass over the
same job plans nothing twice. A pass plans RUNS_MAX a job at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from engine.foundation.errors import MustBe
from pipelines.scheduler.cron import CronRule, cron_rule, next_fire_ms

INTERVAL_S_MAX: Final = 10 * 366 * 86_400
"""Ten years: an interval beyond it is a slip of the pen."""

SCHEDULES_KEPT: Final = 20_000
"""Read ones: a job is planned and sent again and again, and to read a rule takes 0.1 ms."""

MOMENT_MS_MAX: Final = 7_258_118_400_000
"""The end of 2199, as for cron rules."""
WINDOW_MS: Final = 5_000
"""As in XXL-Job: so far ahead runs are planned, and so late a planned time counts as due."""

RUNS_MAX: Final = 2 * WINDOW_MS // 1000 + 2
"""Schedules are of whole seconds: more do not fit into the window, and one for what was missed."""


class ScheduleKind(StrEnum):
    """How a job's times are given; XXL-Job's words, and ONCE."""

    NONE = "NONE"
    """By hand, by a parent, or by nobody."""
    CRON = "CRON"
    FIX_RATE = "FIX_RATE"
    """Seconds from one planned time to the next."""
    FIX_DELAY = "FIX_DELAY"
    """Seconds from the end of a run to the next."""
    ONCE = "ONCE"
    """At one moment, in ISO 8601; without a zone it is of the job's zone."""


class MisfirePolicy(StrEnum):
    """What is done for a time that no centre was there for."""

    DO_NOTHING = "DO_NOTHING"
    FIRE_ONCE_NOW = "FIRE_ONCE_NOW"
    """One run for all that was missed; its planned time is the first of those."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times of a job, read and found right."""

    kind: ScheduleKind
    rule: CronRule | None = None
    zone: ZoneInfo | None = None
    interval_ms: int = 0
    once_ms: int = 0

    def next_ms(self, after_ms: int) -> int | None:
        """The next planned time, in ms since 1970 UTC; None when there is none.

        Of a fixed rate, `after_ms` is the time before it; of a fixed delay, the end of the last run
        or the moment at which the job is started.
        """
        match self.kind:
            case ScheduleKind.NONE:
                return None
            case ScheduleKind.CRON:
                assert self.rule is not None, "a cron schedule has a rule"
                assert self.zone is not None, "and a zone"
                return next_fire_ms(self.rule, after_ms, self.zone)
            case ScheduleKind.FIX_RATE | ScheduleKind.FIX_DELAY:
                return after_ms + self.interval_ms
            case ScheduleKind.ONCE:
                return self.once_ms if self.once_ms > after_ms else None

    def after_missing_ms(self, planned_ms: int, missed_until_ms: int) -> int | None:
        """The first planned time after those that were missed, the first of which is `planned_ms`.

        A rate keeps its beat: the times stay whole intervals apart. XXL-Job counts from now on.
        """
        if self.kind is ScheduleKind.FIX_RATE:
            missed = (missed_until_ms - planned_ms) // self.interval_ms
            return planned_ms + (missed + 1) * self.interval_ms
        return self.next_ms(missed_until_ms)

    def upcoming_ms(self, first_ms: int | None, *, count: int) -> list[int]:
        """The next planned times from one on, `count` at most; of a fixed delay the first alone."""
        times: list[int] = []
        next_ms = first_ms
        while next_ms is not None and len(times) < count:
            times.append(next_ms)
            next_ms = None if self.waits_for_the_end else self.next_ms(next_ms)
        return times

    @property
    def waits_for_the_end(self) -> bool:
        """Is the next time known only when a run has ended?"""
        return self.kind is ScheduleKind.FIX_DELAY


@lru_cache(maxsize=SCHEDULES_KEPT)
def schedule_of(kind: str, text: str, zone: str = "UTC") -> Schedule:
    """The schedule that three texts give; raises ConfigError naming what is wrong."""
    try:
        known = ScheduleKind(kind)
    except ValueError as error:
        raise MustBe("schedule_kind", kind, f"one of {', '.join(ScheduleKind)}") from error
    there = zone_of(zone)
    match known:
        case ScheduleKind.NONE:
            return Schedule(known)
        case ScheduleKind.CRON:
            return Schedule(known, rule=cron_rule(text), zone=there)
        case ScheduleKind.FIX_RATE | ScheduleKind.FIX_DELAY:
            return Schedule(known, interval_ms=_interval_s(text) * 1000)
        case ScheduleKind.ONCE:
            return Schedule(known, once_ms=_moment_ms(text, there))


def zone_of(name: str) -> ZoneInfo:
    """The IANA zone of that name; raises ConfigError when there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise MustBe("zone", name, "a name of the IANA database, as Europe/Berlin") from error


def _interval_s(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 12
    if not is_number or not 1 <= int(text) <= INTERVAL_S_MAX:
        raise MustBe("schedule", text, f"whole seconds, 1 to {INTERVAL_S_MAX}")
    return int(text)


def _moment_ms(text: str, zone: ZoneInfo) -> int:
    try:
        given = datetime.fromisoformat(text)
        moment = given if given.tzinfo else given.replace(tzinfo=zone)
        moment_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000
    except (ValueError, OverflowError) as error:
        raise MustBe("schedule", text, "a moment in ISO 8601: 2030-01-31T08:00") from error
    if not 0 <= moment_ms < MOMENT_MS_MAX:
        raise MustBe("schedule", text, "a moment from 1970 to 2199")
    return int(moment_ms)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run to be."""

    planned_ms: int
    """The time that the schedule gives: what the run is for."""
    due_ms: int
    """When it is sent: then, or now if that is past."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pass makes of one job."""

    runs: tuple[PlannedRun, ...]
    next_ms: int | None
    """The next time that is not planned yet; None when there is none, or only its end sets it."""
    missed_from_ms: int | None = None
    """The first planned time that gets no run of its own, if there is one."""


def plan(schedule: Schedule, misfire: MisfirePolicy, *, next_ms: int, now_ms: int) -> Plan:
    """The runs of a job that is due at `next_ms`, up to the end of the window."""
    runs: list[PlannedRun] = []
    ahead_ms: int | None = next_ms
    missed_from_ms = None
    if next_ms + WINDOW_MS < now_ms:
        missed_from_ms = next_ms
        if misfire is MisfirePolicy.FIRE_ONCE_NOW:
            runs.append(PlannedRun(next_ms, now_ms))
        is_over = schedule.waits_for_the_end and bool(runs)
        missed_until_ms = now_ms - (0 if schedule.waits_for_the_end else WINDOW_MS + 1)
        ahead_ms = None if is_over else schedule.after_missing_ms(next_ms, missed_until_ms)
    while ahead_ms is not None and ahead_ms <= now_ms + WINDOW_MS and len(runs) < RUNS_MAX:
        runs.append(PlannedRun(ahead_ms, max(ahead_ms, now_ms)))
        ahead_ms = None if schedule.waits_for_the_end else schedule.next_ms(ahead_ms)
    assert ahead_ms is None or ahead_ms > now_ms + WINDOW_MS, "schedules are of whole seconds"
    return Plan(tuple(runs), ahead_ms, missed_from_ms)
