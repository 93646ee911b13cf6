"""Computes the numbers in a lag report: groups behind, stalls, duplicates and news.

Place in the walk: `gathering` → numbers → page, table of reports, notices. A row a group, the worst
first; causes by what they cost; and what is new against the period before, which is counted from
the same gold at the same cut.

Invariant: pure. A group has kept its objective only when all that is unknown could not change that.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from itertools import product
from typing import Any, Final

import numpy as np
import polars as pl

from pipelines.alerting.objectives import Objective, Objectives
from pipelines.base.settings import SECOND_US
from pipelines.base.time_units import micros, moment_at
from pipelines.reading.trust import Trust, trust_of
from pipelines.reports.courses import ABSENT, BEHIND, NOTHING, UNKNOWN, WITHIN, Course, courses
from pipelines.reports.courses import drawn as drawn_of
from pipelines.reports.gathering import Gathered
from pipelines.reports.incidents import (
    dead_letters,
    duplicate_causes,
    redelivered_by_group,
    retention_risks,
    stall_causes,
    stalls_by_group,
)
from pipelines.reports.news import headline_of, news_of
from pipelines.reports.numbers import FORMAT, Check, Emitter, GroupFigures, Numbers, Verdict
from pipelines.reports.windows import Window
from pipelines.sentences.duplicates import CameAgain

_RESTS_ON: Final = ("consumer_lag", "consumer_lag_rollups", "group_state")
"""Tables from which a group's verdict is made."""
_SCALE: Final = 1_000_000
"""Shares are whole millionths before they are percent: the same everywhere."""


def lag_report(gathered: Gathered, objectives: Objectives, *, lake: str) -> Numbers:
    """The numbers of the gathered window; `lake` is its address, for people."""
    window = gathered.window
    now = courses(gathered, window, objectives)
    before = courses(gathered, window.before, objectives)
    known_from = gathered.known_from
    before_is_known = known_from is not None and known_from < window.begin
    groups = _groups(gathered, now, before, objectives)
    stalls = stall_causes(gathered, before_is_known=before_is_known)
    duplicates = duplicate_causes(gathered, before_is_known=before_is_known)
    dead = dead_letters(gathered, before_is_known=before_is_known)
    retention = retention_risks(gathered)
    violations = gathered.violations.filter(pl.col("is_now"))
    has_violations = violations.height > 0
    emitters = _emitters(gathered)
    return Numbers(
        format=FORMAT,
        lake=lake,
        period=window.period.value,
        begin_us=micros(window.begin),
        end_us=micros(window.end),
        zone=window.zone,
        title=str(window),
        slot_s=window.slot_s,
        run_id=gathered.cut.run_id,
        cycle=gathered.cut.cycle,
        told_at_us=gathered.cut.told_at_us,
        known_from_us=None if known_from is None else micros(known_from),
        before_is_known=before_is_known,
        headline=headline_of(groups, emitters),
        groups=groups,
        stalls=stalls,
        duplicates=duplicates,
        dead_letters=dead,
        retention=retention,
        emitters=emitters,
        checks=_checks(gathered.results),
        violations=int(violations["violations"].sum()) if has_violations else None,
        unaccounted=int(violations["unaccounted"].sum()) if has_violations else None,
        news=(
            news_of(groups, stalls, duplicates, dead, gone=_gone(before, now))
            if before_is_known
            else ()
        ),
    )


def _groups(
    gathered: Gathered,
    now: dict[tuple[str, str], Course],
    before: dict[tuple[str, str], Course],
    objectives: Objectives,
) -> tuple[GroupFigures, ...]:
    stalls, again = stalls_by_group(gathered), redelivered_by_group(gathered)
    letters = gathered.dead.filter(pl.col("is_now")).group_by("cluster", "group")
    dead = {(row[0], row[1]): int(row[2]) for row in letters.agg(pl.col("letters").sum()).rows()}
    trust = trust_of(gathered.results, gathered.failures)
    emitters = _emitters_of(gathered.slots)
    states = _last_states(gathered)
    found = []
    for key, course in now.items():
        if not np.any(course.states != ABSENT):
            continue
        found.append(
            _figures(
                course,
                gathered.window,
                objective=objectives.of(*key),
                before=before.get(key),
                stalled=stalls.get(key, (0, 0)),
                again=again.get(key, (CameAgain(0), 0)),
                letters=dead.get(key, 0),
                withheld=_withheld(trust, gathered.window, key[1], emitters.get(key, ())),
                state=states.get(key, "UNKNOWN"),
            )
        )
    return tuple(sorted(found, key=_worst_first))


def _gone(before: dict[tuple[str, str], Course], now: dict[tuple[str, str], Course]) -> list[str]:
    """Groups of the period before that are not in this one."""
    there = {key for key, course in now.items() if np.any(course.states != ABSENT)}
    was = {key for key, course in before.items() if np.any(course.states != ABSENT)}
    return [group for _, group in sorted(was - there)]


def _figures(
    course: Course,
    window: Window,
    *,
    objective: Objective,
    before: Course | None,
    stalled: tuple[int, int],
    again: tuple[CameAgain, int],
    letters: int,
    withheld: str,
    state: str,
) -> GroupFigures:
    slot_s = window.slot_s
    within, behind, unknown = (course.count(one) * slot_s for one in (WITHIN, BEHIND, UNKNOWN))
    known = np.flatnonzero(course.behind_ms != NOTHING)
    worst = int(known[np.argmax(course.behind_ms[known])]) if known.size else None
    first = micros(window.begin) // (slot_s * SECOND_US)
    lag = int(course.lag_messages.max())
    course_ms, letters_drawn = drawn_of(course)
    ends_unknown = bool(course.states[-1] == UNKNOWN)
    return GroupFigures(
        cluster=course.cluster,
        group=course.group,
        verdict=verdict_of(within, behind, unknown, objective.share_percent),
        objective_ms=objective.lag_ms,
        target_percent=objective.share_percent,
        within_s=within,
        behind_s=behind,
        unknown_s=unknown,
        share_percent=_percent(within, within + behind),
        share_before_percent=None if before is None else _share(before),
        was_there=before is not None and bool(np.any(before.states != ABSENT)),
        worst_ms=None if worst is None else int(course.behind_ms[worst]),
        worst_at_us=None if worst is None else (first + worst + 1) * slot_s * SECOND_US,
        lag_max=None if lag == NOTHING else lag,
        end_ms=None if not known.size else int(course.behind_ms[known[-1]]),
        state="UNKNOWN" if ends_unknown else state,
        stalls=stalled[0],
        stood_s=stalled[1],
        redelivered=again[0].deliveries or 0,
        at_risk=again[1],
        dead_letters=letters,
        withheld=withheld,
        course_ms=course_ms,
        course=letters_drawn,
        is_part=bool(np.any(course.is_part)),
        end_is_part=bool(known.size and course.is_part[known[-1]]),
        again_is_least=again[0].reason is not None,
    )


def verdict_of(within_s: int, behind_s: int, unknown_s: int, target_percent: float) -> Verdict:
    """KEPT when it was, whatever the unknown time was like; MISSED likewise; else nobody knows."""
    whole = within_s + behind_s + unknown_s
    if not whole or not within_s + behind_s:
        return Verdict.UNCLEAR
    if within_s * 100 >= target_percent * whole:
        return Verdict.KEPT
    if (within_s + unknown_s) * 100 < target_percent * whole:
        return Verdict.MISSED
    return Verdict.UNCLEAR


def _share(course: Course) -> float | None:
    within, behind = course.count(WITHIN), course.count(BEHIND)
    return _percent(within, within + behind)


def _percent(part: int, whole: int) -> float | None:
    return None if not whole else part * 100 * _SCALE // whole / _SCALE


def _worst_first(one: GroupFigures) -> tuple[Any, ...]:
    order = list(Verdict).index(one.verdict)
    return order, -one.behind_s, -one.unknown_s, -(one.worst_ms or 0), one.cluster, one.group


def _emitters_of(slots: pl.DataFrame) -> dict[tuple[str, str], tuple[str, ...]]:
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    names = slots.select("cluster", "group", "emitter").unique(maintain_order=True)
    for cluster, group, emitter in names.iter_rows():
        found[cluster, group] = (*found.get((cluster, group), ()), emitter)
    return found


def _withheld(trust: Trust, window: Window, group: str, emitters: tuple[str, ...]) -> str:
    """Why nothing is to be believed of a group; empty when all may be."""
    for table, emitter in product(_RESTS_ON, emitters):
        held = trust.withheld(table, window.end, since=window.begin, emitter=emitter, group=group)
        if held is not None:
            return str(held)
    return ""


_BAD_FIRST: Final = (
    "UNKNOWN", "DATA_LOST", "STOPPED", "STALLED", "REWOUND", "SLOW", "NO_OFFSET", "PAUSED",
    "CATCHING_UP", "BROADCAST", "OK", "GONE",
)  # fmt: skip


def _last_states(gathered: Gathered) -> dict[tuple[str, str], str]:
    """The state of each group at the end of the window, the worst of its brokers'."""
    key = ["emitter", "cluster", "group"]
    last = gathered.states.sort("observed_at").unique(key, keep="last", maintain_order=True)
    found: dict[tuple[str, str], str] = {}
    for cluster, group, state in last.select("cluster", "group", "state").iter_rows():
        there = found.get((cluster, group), state)
        found[cluster, group] = min(there, state, key=_badness)
    return found


def _badness(state: str) -> int:
    return _BAD_FIRST.index(state) if state in _BAD_FIRST else 0


def _emitters(gathered: Gathered) -> tuple[Emitter, ...]:
    shipped = {row["emitter"]: row for row in gathered.shipped.iter_rows(named=True)
               if row["is_now"]}  # fmt: skip
    found = []
    for emitter, judged_to, each_ms in gathered.reached.sort("emitter").iter_rows():
        row = shipped.get(emitter)
        missing = doubled = None
        if row is not None:
            missing = int(row["rows_expected"]) - int(row["rows_distinct"])
            doubled = int(row["rows_found"]) - int(row["rows_distinct"])
        reaches = judged_to >= gathered.window.end
        found.append(Emitter(emitter, missing, doubled, micros(judged_to), reaches, each_ms))
    return tuple(found)


def _checks(results: pl.DataFrame) -> tuple[Check, ...]:
    judged = results.filter((pl.col("checked_rows") > 0) | ~pl.col("success"))
    found = []
    for (name,), runs in judged.sort("started_at", "run_id").group_by(
        ["expectation"], maintain_order=True
    ):
        failed = runs.filter(~pl.col("success"))
        last = (failed if failed.height else runs).row(-1, named=True)
        observed = last["observed_value"] or ""
        found.append(
            Check(str(name), last["table"], last["severity"], runs.height, failed.height, observed)
        )
    order = Counter({"CRITICAL": 0, "WARNING": 1, "INFO": 2})
    return tuple(
        sorted(found, key=lambda one: (not one.failed_runs, order[one.severity], one.expectation))
    )


def window_of(numbers: Numbers) -> tuple[datetime, datetime]:
    """Its begin and end."""
    return moment_at(numbers.begin_us), moment_at(numbers.end_us)
